use std::num::NonZeroU64;
use std::sync::Weak;
use std::time::Duration;

use parking_lot::Mutex;

use super::*;
use crate::algorithm::concurrency::GrantedPermits;
use crate::algorithm::level::Level;
use crate::algorithm::token_bucket::TokenBucket;
use crate::decide::check::CheckPolicy;
use crate::limit::definition::{AfterLocal, OnOutage};
use crate::node::lease::LeaseSource;
use crate::store::adjustment::{AdjustmentBatch, AdjustmentOutcome, AdjustmentResult};
use crate::store::{Grant, Levels, PermitClaim, ServerId, StoreError, StoreFailure};

const SECOND: u64 = 1_000_000;
const SHORT: Duration = Duration::from_millis(4);

fn charge(key: &str, tokens: u64) -> BucketCharge {
    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }
    let bucket = TokenBucket::new(nonzero(tokens), nonzero(SECOND), nonzero(tokens)).unwrap();
    BucketCharge {
        key: Key::from(key),
        quota: bucket.into(),
        cost: 1,
        largest_cost: 1,
        local_us: u64::MAX,
    }
}

fn leased_charge() -> BucketCharge {
    let charge = charge("leased", 1_000);
    BucketCharge {
        quota: charge.quota.leased(1),
        ..charge
    }
}

fn exact_charge() -> BucketCharge {
    charge("exact", 10)
}

fn checks(charges: &[(BucketCharge, OnOutage)]) -> Checks {
    let mut checks = Checks::default();
    for (charge, on_outage) in charges {
        checks.tokens.push(
            charge.clone(),
            CheckPolicy {
                on_outage: *on_outage,
            },
        );
    }
    checks
}

/// Denies the requests of one key, and takes its time.
#[derive(Default)]
struct DenyingStore {
    denied_key: &'static str,
    delay: Duration,
    /// The process is stopped for so long while it is asked.
    stopped_for: Duration,
    /// While the store is asked, tokens taken ahead come to this node.
    node: Mutex<Weak<Node>>,
    /// The number of charges of each call.
    calls: Mutex<Vec<usize>>,
}

impl Store for DenyingStore {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        self.calls.lock().push(charges.len());
        if let Some(node) = self.node.lock().upgrade() {
            deposit(&node);
        }
        let retry_after_us = |charge: &BucketCharge| {
            if charge.key == Key::from(self.denied_key) {
                SECOND
            } else {
                0
            }
        };
        let level = |charge| Level {
            retry_after_us: retry_after_us(charge),
            ..Level::default()
        };
        let levels: Levels = charges.iter().map(level).collect();
        let denied = levels.iter().any(|level| level.retry_after_us > 0);
        Box::pin(async move {
            tokio::time::sleep(self.delay).await;
            tokio::time::advance(self.stopped_for).await;
            Ok(Grant {
                units: if denied { 0 } else { units },
                levels,
                at_us: 50,
                ..Grant::default()
            })
        })
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        Box::pin(std::future::ready(vec![
            Ok(AdjustmentOutcome::Applied);
            batch.len()
        ]))
    }

    fn claim<'a>(
        &'a self,
        _: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        Box::pin(std::future::ready(Err(StoreError::Io)))
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(20)
    }
}

/// A few tokens taken ahead, at 7 us of the store's clock.
fn deposit(node: &Node) -> LeaseSource {
    let source = LeaseSource {
        sent_us: clock::monotonic_micros(),
        taken_at_us: 7,
    };
    node.leases
        .deposit(&leased_charge(), 5, Level::default(), source);
    source
}

struct Fixture {
    node: Arc<Node>,
    store: Arc<DenyingStore>,
    limiter: Limiter,
}

impl Fixture {
    fn new(store: DenyingStore) -> Self {
        let breaker = Arc::new(Breaker::new());
        let share = Arc::new(FleetShare::expecting(1));
        let node = Arc::new(Node::new(Arc::new(MemoryStore::new(100)), breaker, share));
        let store = Arc::new(store);
        Self {
            limiter: Limiter::for_node(node.clone(), store.clone()),
            node,
            store,
        }
    }

    /// Tokens taken ahead come while the store is asked.
    fn with_tokens_meanwhile(store: DenyingStore) -> Self {
        let fixture = Self::new(store);
        *fixture.store.node.lock() = Arc::downgrade(&fixture.node);
        fixture
    }

    async fn decide(&self, charges: &[BucketCharge]) -> Decision {
        let local: Vec<_> = charges
            .iter()
            .map(|charge| (charge.clone(), OnOutage::Local))
            .collect();
        self.limiter.decide(&checks(&local)).wait().await
    }

    fn calls(&self) -> Vec<usize> {
        self.store.calls.lock().clone()
    }

    /// The keys of the debts, which are paid by this.
    fn debts(&self) -> Vec<Key> {
        let owed = self
            .node
            .debts
            .collect(clock::monotonic_micros(), 100, |_| true);
        owed.into_iter().map(|owed| owed.key).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_leased_limit_is_paid_with_tokens_that_came_meanwhile() {
    let fixture = Fixture::with_tokens_meanwhile(DenyingStore {
        denied_key: "leased",
        ..DenyingStore::default()
    });
    let decision = fixture.decide(&[leased_charge()]).await;
    assert_eq!(
        (decision.granted, decision.decided_by),
        (true, DecidedBy::Lease)
    );
}

#[tokio::test(start_paused = true)]
async fn a_denied_leased_limit_beside_an_exact_one_is_paid_with_tokens_that_came_meanwhile() {
    let fixture = Fixture::with_tokens_meanwhile(DenyingStore {
        denied_key: "leased",
        ..DenyingStore::default()
    });
    let decision = fixture.decide(&[leased_charge(), exact_charge()]).await;
    assert_eq!((decision.granted, fixture.calls()), (true, vec![2, 1]));
}

#[tokio::test(start_paused = true)]
async fn a_denial_by_an_exact_limit_is_final() {
    let fixture = Fixture::with_tokens_meanwhile(DenyingStore {
        denied_key: "exact",
        ..DenyingStore::default()
    });
    let decision = fixture.decide(&[leased_charge(), exact_charge()]).await;
    assert_eq!((decision.granted, fixture.calls()), (false, vec![2]));
}

#[tokio::test(start_paused = true)]
async fn a_grant_by_the_store_spends_no_tokens_that_came_meanwhile() {
    let fixture = Fixture::with_tokens_meanwhile(DenyingStore::default());
    assert_eq!(
        fixture.decide(&[leased_charge()]).await.decided_by,
        DecidedBy::Redis
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_paid_by_lease_and_store_names_the_source_of_each() {
    let fixture = Fixture::new(DenyingStore::default());
    deposit(&fixture.node);
    let decision = fixture.decide(&[leased_charge(), exact_charge()]).await;
    assert_eq!((decision.granted, fixture.calls()), (true, vec![1]));
    let lease = DecisionSource {
        decided_by: DecidedBy::Lease,
        taken_at_us: 7,
        counted: true,
    };
    let store = DecisionSource {
        decided_by: DecidedBy::Redis,
        taken_at_us: decision.taken_at_us,
        counted: true,
    };
    assert_eq!([decision.source(0), decision.source(1)], [lease, store]);
}

#[tokio::test(start_paused = true)]
async fn tokens_whose_lease_ended_while_the_process_was_stopped_are_not_spent() {
    let fixture = Fixture::new(DenyingStore {
        stopped_for: Duration::from_millis(60),
        ..DenyingStore::default()
    });
    // No clock reads 0 at the start: the test is about the lease's end.
    clock::monotonic_micros();
    tokio::time::advance(Duration::from_millis(1)).await;
    deposit(&fixture.node);
    assert!(
        fixture
            .decide(&[leased_charge(), exact_charge()])
            .await
            .granted
    );
    assert_eq!(
        fixture.calls(),
        [1, 2],
        "the store is asked for the leased limit after all"
    );
}

#[tokio::test(start_paused = true)]
async fn tokens_return_to_the_lease_when_the_exact_limit_denies_or_the_request_is_dropped() {
    let fixture = Fixture::new(DenyingStore {
        denied_key: "exact",
        delay: SHORT,
        ..DenyingStore::default()
    });
    let source = deposit(&fixture.node);
    assert!(
        !fixture
            .decide(&[leased_charge(), exact_charge()])
            .await
            .granted
    );
    let both = [leased_charge(), charge("another", 10)];
    assert!(
        tokio::time::timeout(SHORT / 2, fixture.decide(&both))
            .await
            .is_err()
    );
    assert_eq!(fixture.calls(), [1, 1], "each was paid from the lease");
    assert_eq!(fixture.node.leases.withdraw(&leased_charge(), source), 5);
}

#[tokio::test(start_paused = true)]
async fn grants_during_an_outage_are_owed_where_limits_are_local_and_denials_are_not() {
    let fixture = Fixture::new(DenyingStore::default());
    fixture
        .node
        .breaker
        .trip(ServerId::ONLY, &StoreError::Io, String::new);
    let local = (charge("local", 1), OnOutage::Local);
    for limits in [
        vec![local.clone()],
        vec![(charge("allowing", 1), OnOutage::Allow), local],
    ] {
        let checks = checks(&limits);
        let granted = [(); 2].map(|()| {
            let granted = fixture
                .limiter
                .decide(&checks)
                .done()
                .is_some_and(|decision| decision.granted);
            (granted, fixture.debts())
        });
        assert_eq!(
            granted,
            [(true, vec![Key::from("local")]), (false, Vec::new())]
        );
        tokio::time::advance(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_owed_to_a_key_that_the_store_cannot_charge() {
    let fixture = Fixture::new(DenyingStore::default());
    fixture
        .node
        .breaker
        .trip(ServerId::ONLY, &StoreError::Io, String::new);
    let foreign = charge("foreign", 1);
    let own = charge("own", 1);
    fixture
        .node
        .foreign_keys
        .remember(&foreign.key, clock::monotonic_micros());
    let checks = checks(&[(foreign, OnOutage::Local), (own, OnOutage::Local)]);
    assert!(
        fixture
            .limiter
            .decide(&checks)
            .done()
            .is_some_and(|decision| decision.granted)
    );
    assert_eq!(fixture.debts(), [Key::from("own")]);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_local_for_a_time_denies_or_allows_once_the_store_has_been_away_for_it() {
    for (then, passes) in [(AfterLocal::Deny, false), (AfterLocal::Allow, true)] {
        let fixture = Fixture::new(DenyingStore::default());
        fixture
            .node
            .breaker
            .trip(ServerId::ONLY, &StoreError::Io, String::new);
        let on_outage = OnOutage::LocalFor {
            time: Duration::from_secs(10),
            then,
        };
        let checks = checks(&[
            (charge("timed", 1), on_outage),
            (charge("local", 1), OnOutage::Local),
        ]);
        let decide = || fixture.limiter.decide(&checks).done().unwrap();
        assert!(
            decide().granted && !decide().granted,
            "its share, and no more"
        );
        assert_eq!(fixture.debts().len(), 2);
        tokio::time::advance(Duration::from_micros(9_999_000)).await;
        assert!(decide().granted && fixture.debts().len() == 2);
        tokio::time::advance(Duration::from_secs(1)).await;
        let decision = decide();
        assert_eq!(
            (decision.granted, decision.source(0).counted),
            (passes, false)
        );
        assert_eq!(
            fixture.debts(),
            if passes {
                vec![Key::from("local")]
            } else {
                Vec::new()
            }
        );
        fixture.node.breaker.close(ServerId::ONLY);
        fixture
            .node
            .breaker
            .trip(ServerId::ONLY, &StoreError::Io, String::new);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(decide().granted, "another outage has a time of its own");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_requests_counts_its_time_alone_from_when_it_was_last_heard_of() {
    let fixture = Fixture::new(DenyingStore::default());
    let on_outage = OnOutage::LocalFor {
        time: Duration::from_secs(10),
        then: AfterLocal::Deny,
    };
    let checks = checks(&[(charge("timed", 1), on_outage)]);
    fixture.node.share.note_announced(clock::monotonic_micros());
    tokio::time::advance(Duration::from_secs(10)).await;
    fixture
        .node
        .breaker
        .trip(ServerId::ONLY, &StoreError::Io, String::new);
    let decide = || {
        fixture
            .limiter
            .decide(&checks)
            .done()
            .is_some_and(|decision| decision.granted)
    };
    assert!(!decide(), "the others have held its share back for as long");
    fixture.node.share.note_announced(clock::monotonic_micros());
    assert!(decide());
}
