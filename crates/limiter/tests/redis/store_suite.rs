//! The behaviour that every store must have, each test run against all stores.

use std::sync::Arc;

use tollgate_limiter::algorithm::calendar::{CalendarUnit, Period};
use tollgate_limiter::algorithm::concurrency::{GrantedPermits, PermitRequest};
use tollgate_limiter::algorithm::quota::Quota;
use tollgate_limiter::algorithm::window::Window;
use tollgate_limiter::clock;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::adjustment::{Adjustment, AdjustmentBatch, AdjustmentOutcome, Change};
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::{BucketCharge, Grant, PermitClaim, Store};
use tollgate_testing::node::connected;
use tollgate_testing::redis::RedisServer;
use tollgate_testing::{HOUR, SECOND, charge, eventually, shape};

/// A store and what keeps it alive.
struct Fixture {
    store: Arc<dyn Store>,
    _server: Option<RedisServer>,
}

impl Fixture {
    async fn memory() -> Self {
        Self {
            store: Arc::new(MemoryStore::new(10_000)),
            _server: None,
        }
    }

    async fn redis() -> Self {
        let server = RedisServer::start();
        Self {
            store: Arc::new(connected(&server.spec()).await),
            _server: Some(server),
        }
    }

    async fn take(&self, charges: &[BucketCharge], units: u32) -> Grant {
        self.store.take(charges, units).await.unwrap()
    }

    async fn owe(&self, charge: &BucketCharge, tokens: u64) {
        self.owe_since(charge, tokens, clock::monotonic_micros())
            .await;
    }

    async fn owe_since(&self, charge: &BucketCharge, tokens: u64, since_us: u64) {
        self.adjust(
            charge,
            Change::Charge {
                charge: charge.quota.charge(tokens),
                since_us,
            },
        )
        .await;
    }

    async fn give_back(&self, charge: &BucketCharge, tokens: u64, taken_at_us: u64) {
        self.adjust(
            charge,
            Change::Refund {
                charge: charge.quota.charge(tokens),
                taken_at_us,
            },
        )
        .await;
    }

    async fn adjust(&self, charge: &BucketCharge, change: Change) {
        let adjustment = Adjustment {
            key: charge.key.clone(),
            quota: charge.quota,
            change,
        };
        let results = self
            .store
            .adjust(&AdjustmentBatch::once(vec![adjustment]))
            .await;
        assert_eq!(results, [Ok(AdjustmentOutcome::Applied)]);
    }

    /// Whether one request passes.
    async fn passes(&self, charges: &[BucketCharge]) -> bool {
        self.take(charges, 1).await.units == 1
    }
}

async fn denies_once_the_burst_is_spent(store: Fixture) {
    let charges = [charge("k", shape(10, HOUR, 10), 1)];
    for left in (0..10).rev() {
        let grant = store.take(&charges, 1).await;
        assert_eq!(
            (
                grant.units,
                grant.levels[0].remaining,
                grant.levels[0].retry_after_us
            ),
            (1, left, 0)
        );
    }
    let denied = store.take(&charges, 1).await;
    assert_eq!(denied.units, 0);
    let level = denied.levels[0];
    assert!(
        level.retry_after_us > 200 * SECOND && level.retry_after_us <= 360 * SECOND,
        "{level:?}"
    );
    assert!(
        level.reset_after_us > HOUR - 160 * SECOND && level.reset_after_us <= HOUR,
        "{level:?}"
    );
}

async fn grants_as_many_units_as_fit(store: Fixture) {
    let charges = [charge("k", shape(10, HOUR, 10), 3)];
    let grant = store.take(&charges, 7).await;
    assert_eq!((grant.units, grant.levels[0].remaining), (3, 1));
    assert!(grant.levels[0].retry_after_us > 0);
}

async fn a_cost_takes_as_many_tokens(store: Fixture) {
    let charges = [charge("k", shape(10, HOUR, 10), 5)];
    assert!(store.passes(&charges).await);
    assert!(store.passes(&charges).await);
    assert!(!store.passes(&charges).await);
}

async fn a_cost_over_the_burst_never_passes(store: Fixture) {
    let charges = [charge("k", shape(10, HOUR, 10), 11)];
    assert!(!store.passes(&charges).await);
    assert!(store.passes(&[charge("k", shape(10, HOUR, 10), 10)]).await);
}

async fn a_request_passes_all_its_limits_or_charges_none(store: Fixture) {
    let wide = charge("wide", shape(5, HOUR, 5), 1);
    let narrow = charge("narrow", shape(2, HOUR, 2), 1);
    let both = [wide.clone(), narrow];
    assert_eq!(store.take(&both, 4).await.units, 2);
    let denied = store.take(&both, 1).await;
    assert_eq!(denied.units, 0);
    assert_eq!(
        (denied.levels[0].remaining, denied.levels[0].retry_after_us),
        (3, 0)
    );
    assert!(denied.levels[1].retry_after_us > 0);
    assert_eq!(store.take(&[wide], 9).await.units, 3);
}

async fn a_denial_charges_nothing(store: Fixture) {
    let dear = [charge("k", shape(10, HOUR, 10), 6)];
    assert!(store.passes(&dear).await);
    for _ in 0..20 {
        assert!(!store.passes(&dear).await);
    }
    assert_eq!(
        store
            .take(&[charge("k", shape(10, HOUR, 10), 1)], 9)
            .await
            .units,
        4
    );
}

async fn two_keys_are_independent(store: Fixture) {
    let limit = shape(1, HOUR, 1);
    assert!(store.passes(&[charge("a", limit, 1)]).await);
    assert!(store.passes(&[charge("b", limit, 1)]).await);
    assert!(!store.passes(&[charge("a", limit, 1)]).await);
}

async fn a_limit_listed_twice_is_charged_twice(store: Fixture) {
    let limit = shape(10, HOUR, 10);
    let twice = [
        charge("k", limit, 2),
        charge("other", limit, 1),
        charge("k", limit, 3),
    ];
    let first = store.take(&twice, 1).await;
    assert_eq!(
        first
            .levels
            .iter()
            .map(|level| level.remaining)
            .collect::<Vec<_>>(),
        [5, 9, 5]
    );
    assert!(store.passes(&twice).await);
    assert!(!store.passes(&twice).await);
}

async fn a_changed_limit_keeps_what_was_consumed(store: Fixture) {
    assert_eq!(
        store
            .take(&[charge("k", shape(10, HOUR, 10), 1)], 7)
            .await
            .units,
        7
    );
    let slower = [charge("k", shape(7, 24 * HOUR, 20), 1)];
    assert_eq!(store.take(&slower, 0).await.levels[0].remaining, 13);
    assert_eq!(store.take(&slower, 20).await.units, 13);
}

async fn a_lowered_limit_locks_nobody_out(store: Fixture) {
    assert_eq!(
        store
            .take(&[charge("k", shape(10, 24 * HOUR, 10), 1)], 10)
            .await
            .units,
        10
    );
    let lower = [charge("k", shape(20, HOUR, 2), 1)];
    let denied = store.take(&lower, 1).await;
    // Ten tokens were consumed, one may be: the others flow off at the new rate.
    assert!(
        (1..=9 * HOUR / 20).contains(&denied.levels[0].retry_after_us),
        "{denied:?}"
    );
    let quick = [charge("k", shape(20, SECOND, 2), 1)];
    eventually("a token is back", || store.passes(&quick)).await;
}

async fn a_burst_that_is_halved_and_restored_grants_nothing_twice(store: Fixture) {
    let whole = [charge("k", shape(10, HOUR, 200), 1)];
    let half = [charge("k", shape(10, HOUR, 100), 1)];
    assert_eq!(store.take(&whole, 300).await.units, 200);
    for _ in 0..3 {
        let denied = store.take(&half, 300).await;
        assert_eq!((denied.units, denied.levels[0].remaining), (0, 0));
        assert_eq!(store.take(&whole, 300).await.units, 0);
    }
}

async fn a_limit_that_became_slower_keeps_the_old_rate_until_it_grants(store: Fixture) {
    assert_eq!(
        store
            .take(&[charge("k", shape(100, SECOND, 10), 1)], 10)
            .await
            .units,
        10
    );
    let slower = [charge("k", shape(2, HOUR, 2), 1)];
    let denied = store.take(&slower, 1).await;
    assert!(denied.levels[0].retry_after_us <= 90_000, "{denied:?}");
    eventually("a token is back", || store.passes(&slower)).await;
    store.take(&slower, 2).await;
    let denied = store.take(&slower, 1).await;
    assert!(denied.levels[0].reset_after_us > HOUR / 4, "{denied:?}");
}

async fn tokens_come_back_with_time(store: Fixture) {
    let charges = [charge("k", shape(20, SECOND, 1), 1)];
    assert!(store.passes(&charges).await);
    eventually("a token is back", || store.passes(&charges)).await;
}

async fn a_leased_limit_keeps_its_reserve_back(store: Fixture) {
    let charges = [charge("k", shape(100, HOUR, 100).leased(1), 1)];
    assert_eq!(store.take(&charges, 200).await.units, 99);
    let exact = [charge("k", shape(100, HOUR, 100), 1)];
    assert_eq!(
        store.take(&exact, 200).await.units,
        1,
        "the reserve is kept from whoever asks for a lease"
    );
    assert_eq!(store.take(&charges, 1).await.levels[0].remaining, 0);
}

async fn a_debt_is_charged_beyond_an_empty_bucket(store: Fixture) {
    let charges = [
        charge("k", shape(10, HOUR, 10), 1),
        charge("other", shape(10, HOUR, 10), 1),
    ];
    assert_eq!(store.take(&charges, 2).await.units, 2);
    store.owe(&charges[0], 3).await;
    assert_eq!(store.take(&charges, 0).await.levels[0].remaining, 5);
    store.owe(&charges[0], 1_000).await;
    let denied = store.take(&charges, 1).await;
    let owed_us = 996 * 360 * SECOND;
    assert!(
        (owed_us - 600 * SECOND..=owed_us).contains(&denied.levels[0].retry_after_us),
        "{denied:?}"
    );
    assert_eq!(denied.levels[1].remaining, 8);
}

async fn what_flowed_in_since_a_debt_was_admitted_pays_for_it(store: Fixture) {
    let quick = [charge("quick", shape(100, SECOND, 100), 1)];
    let slow = [charge("slow", shape(10, HOUR, 10), 1)];
    let since_us = clock::monotonic_micros();
    eventually("some time has passed", || async {
        clock::monotonic_micros() >= since_us + 200_000
    })
    .await;
    store.owe_since(&quick[0], 15, since_us).await;
    assert_eq!(store.take(&quick, 0).await.levels[0].remaining, 100);
    store.take(&slow, 1).await;
    store.owe_since(&slow[0], 3, since_us).await;
    assert_eq!(store.take(&slow, 0).await.levels[0].remaining, 6);
    let window = [charge(
        "window",
        Window::sliding(10, SECOND / 10).unwrap(),
        1,
    )];
    store.owe_since(&window[0], 10, since_us).await;
    assert_eq!(
        store.take(&window, 0).await.levels[0].remaining,
        10,
        "they have expired"
    );
}

async fn a_debt_counts_as_far_as_can_be_counted(store: Fixture) {
    let charges = [charge("k", shape(1_000, SECOND, 10), 1)];
    store.take(&charges, 10).await;
    store.owe(&charges[0], 3_600_000).await;
    let left = store.take(&charges, 0).await.levels[0];
    assert!(
        left.reset_after_us > HOUR - 600 * SECOND && left.reset_after_us <= HOUR + 10_000,
        "{left:?}"
    );
    store.owe(&charges[0], u64::MAX).await;
    assert!(!store.passes(&charges).await, "as much as can be counted");
}

async fn unspent_tokens_are_given_back(store: Fixture) {
    let charges = [charge("k", shape(10, HOUR, 10), 1)];
    store.take(&charges, 1).await;
    let grant = store.take(&charges, 6).await;
    store.give_back(&charges[0], 4, grant.at_us).await;
    assert_eq!(store.take(&charges, 0).await.levels[0].remaining, 7);
    store.give_back(&charges[0], 9, grant.at_us + HOUR).await;
    assert_eq!(
        store.take(&charges, 0).await.levels[0].remaining,
        7,
        "nothing was taken in the future"
    );
}

/// A year, and so whole days away from its end, whenever this runs.
fn year(quota: u64) -> Window {
    Window::fixed(quota, Period::every(365 * 24 * HOUR)).unwrap()
}

async fn a_fixed_window_has_its_quota_once(store: Fixture) {
    let charges = [charge("k", year(5), 1)];
    assert_eq!(store.take(&charges, 3).await.levels[0].remaining, 2);
    let grant = store.take(&charges, 3).await;
    assert_eq!((grant.units, grant.levels[0].remaining), (2, 0));
    assert_eq!(
        grant.levels[0].retry_after_us, grant.levels[0].reset_after_us,
        "all come back at its end"
    );
    assert!(
        (1..=365 * 24 * HOUR).contains(&grant.levels[0].retry_after_us),
        "{grant:?}"
    );
    assert!(!store.passes(&charges).await);
}

async fn a_fixed_window_ends_when_the_clock_says_so(store: Fixture) {
    let charges = [charge(
        "k",
        Window::fixed(3, Period::every(SECOND)).unwrap(),
        1,
    )];
    store.take(&charges, 3).await;
    eventually("the next second", || async {
        store.take(&charges, 0).await.levels[0].remaining == 3
    })
    .await;
}

async fn a_window_of_a_calendar_has_its_quota_once(store: Fixture) {
    let month = Period::calendar(CalendarUnit::Month, "Europe/Berlin").unwrap();
    let charges = [
        charge("k", Window::fixed(5, month).unwrap(), 5),
        charge("b", shape(5, HOUR, 5), 1),
    ];
    let first = store.take(&charges, 1).await;
    assert_eq!((first.units, first.levels[1].remaining), (1, 4));
    assert!(
        (1..=31 * 24 * HOUR).contains(&first.levels[0].reset_after_us),
        "{first:?}"
    );
    assert!(!store.passes(&charges).await || first.levels[0].reset_after_us < SECOND);
}

async fn a_sliding_window_gives_each_token_back_a_window_later(store: Fixture) {
    let charges = [charge("k", Window::sliding(3, SECOND / 2).unwrap(), 1)];
    assert_eq!(store.take(&charges, 5).await.units, 3);
    // Half a second may have passed before the next is asked for.
    eventually("a token is denied for as long as the window", async || {
        store.take(&charges, 3).await;
        let denied = store.take(&charges, 1).await;
        (1..=SECOND / 2).contains(&denied.levels[0].retry_after_us)
    })
    .await;
    eventually("a token is back", || store.passes(&charges)).await;
}

async fn windows_and_buckets_are_all_or_nothing_together(store: Fixture) {
    let hour = Window::sliding(4, HOUR).unwrap();
    let all = [
        charge("fixed", year(9), 2),
        charge("sliding", hour, 1),
        charge("bucket", shape(9, HOUR, 9), 3),
    ];
    let grant = store.take(&all, 9).await;
    assert_eq!(grant.units, 3);
    assert_eq!(
        grant
            .levels
            .iter()
            .map(|level| level.remaining)
            .collect::<Vec<_>>(),
        [3, 1, 0]
    );
    assert!(!store.passes(&all).await);
    assert!(
        store.passes(&all[..2]).await,
        "the others were charged nothing"
    );
}

async fn another_window_keeps_what_was_consumed(store: Fixture) {
    let limits: [Quota; 3] = [
        Window::sliding(10, HOUR).unwrap().into(),
        year(10).into(),
        Window::sliding(10, 2 * HOUR).unwrap().into(),
    ];
    for (left, limit) in (0..9).rev().zip(limits.into_iter().cycle()) {
        let grant = store.take(&[charge("k", limit, 1)], 1).await;
        assert_eq!(grant.levels[0].remaining, left + 1, "by {limit:?}");
    }
}

async fn another_algorithm_begins_anew(store: Fixture) {
    let limits: [Quota; 2] = [
        Window::sliding(10, HOUR).unwrap().into(),
        shape(10, HOUR, 10).into(),
    ];
    for limit in limits.into_iter().cycle().take(4) {
        let charges = [charge("k", limit, 1)];
        assert_eq!(store.take(&charges, 7).await.levels[0].remaining, 3);
        assert_eq!(store.take(&charges, 3).await.units, 3);
        assert!(!store.passes(&charges).await, "by {limit:?}");
    }
}

async fn a_shorter_window_locks_nobody_out(store: Fixture) {
    assert_eq!(
        store
            .take(&[charge("k", Window::sliding(10, HOUR).unwrap(), 1)], 10)
            .await
            .units,
        10
    );
    let short = [charge("k", Window::sliding(10, SECOND / 4).unwrap(), 1)];
    assert!(store.take(&short, 1).await.levels[0].retry_after_us <= SECOND / 4);
    eventually("it is over", || store.passes(&short)).await;
}

async fn a_window_is_charged_and_refunded(store: Fixture) {
    for (key, window) in [
        ("fixed", year(10)),
        ("sliding", Window::sliding(10, HOUR).unwrap()),
    ] {
        let charges = [charge(key, window, 1)];
        let grant = store.take(&charges, 6).await;
        store.give_back(&charges[0], 4, grant.at_us).await;
        assert_eq!(store.take(&charges, 0).await.levels[0].remaining, 8);
        store.give_back(&charges[0], 1, grant.at_us + HOUR).await;
        assert_eq!(
            store.take(&charges, 0).await.levels[0].remaining,
            8,
            "nothing was taken in the future"
        );
        store.owe(&charges[0], 3).await;
        assert_eq!(store.take(&charges, 0).await.levels[0].remaining, 5);
        store.owe(&charges[0], 1_000).await;
        assert!(!store.passes(&charges).await);
    }
}

/// A claim of `node` on the key "k", which has ten permits.
fn said(node: u64, turn: u64, wanted: u64, needed: u64) -> [PermitClaim; 1] {
    let claim = PermitRequest {
        wanted,
        demand: wanted,
        kept: needed,
        needed,
        largest_cost: 1,
        turn,
    };
    [PermitClaim {
        key: Key::from("k"),
        most: 10,
        node,
        claim,
    }]
}

async fn nodes_share_permits_and_keep_those_in_use(store: Fixture) {
    let claim = async |said: [PermitClaim; 1]| {
        let granted = store.store.claim(&said).await.unwrap()[0];
        (granted.own, granted.others)
    };
    assert_eq!(claim(said(1, 1, 7, 7)).await, (7, 0));
    assert_eq!(claim(said(2, 1, 7, 2)).await, (3, 7));
    assert_eq!(claim(said(3, 1, 1, 0)).await, (0, 10));
    assert_eq!(claim(said(1, 2, 1, 1)).await, (1, 3));
    assert_eq!(claim(said(1, 1, 9, 9)).await, (1, 3), "an older word");
    assert_eq!(claim(said(2, 2, 0, 0)).await, (0, 1));
    let two = [
        said(4, 1, 5, 0),
        [PermitClaim {
            key: Key::from("other"),
            ..said(4, 2, 20, 0)[0].clone()
        }],
    ]
    .concat();
    assert_eq!(
        store.store.claim(&two).await.unwrap(),
        [
            GrantedPermits {
                own: 5,
                others: 1,
                share: 10
            },
            GrantedPermits {
                own: 10,
                others: 0,
                share: 10
            }
        ]
    );
}

async fn a_node_that_lacks_permits_lowers_the_share_of_the_others(store: Fixture) {
    let claim = async |said: [PermitClaim; 1]| store.store.claim(&said).await.unwrap()[0];
    assert_eq!(
        claim(said(1, 1, 10, 10)).await,
        GrantedPermits {
            own: 10,
            others: 0,
            share: 10
        }
    );
    assert_eq!(
        claim(said(2, 1, 8, 0)).await,
        GrantedPermits {
            own: 0,
            others: 10,
            share: 5
        }
    );
    assert_eq!(
        claim(said(1, 2, 10, 9)).await,
        GrantedPermits {
            own: 9,
            others: 0,
            share: 5
        }
    );
    assert_eq!(
        claim(said(2, 2, 8, 0)).await,
        GrantedPermits {
            own: 1,
            others: 9,
            share: 5
        }
    );
}

async fn permits_of_a_silent_node_come_back_within_seconds(store: Fixture) {
    let claim = async |said: [PermitClaim; 1]| store.store.claim(&said).await.unwrap()[0].own;
    assert_eq!(claim(said(1, 1, 10, 10)).await, 10);
    assert_eq!(claim(said(2, 1, 1, 0)).await, 0);
    eventually("the first node's permits are free", || async {
        claim(said(2, 2, 1, 0)).await == 1
    })
    .await;
}

async fn permits_and_tokens_of_one_key_are_separate(store: Fixture) {
    assert!(store.passes(&[charge("k", shape(1, HOUR, 1), 1)]).await);
    assert_eq!(
        store.store.claim(&said(1, 1, 10, 0)).await.unwrap()[0].own,
        10
    );
    assert!(!store.passes(&[charge("k", shape(1, HOUR, 1), 1)]).await);
}

/// Expands each behaviour over each store.
macro_rules! suite {
    ($($behaviour:ident)*) => {
        mod memory {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(super::Fixture::memory().await).await;
            })*
        }
        mod redis {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(super::Fixture::redis().await).await;
            })*
        }
    };
}

suite! {
    denies_once_the_burst_is_spent
    grants_as_many_units_as_fit
    a_cost_takes_as_many_tokens
    a_cost_over_the_burst_never_passes
    a_request_passes_all_its_limits_or_charges_none
    a_denial_charges_nothing
    two_keys_are_independent
    a_limit_listed_twice_is_charged_twice
    a_changed_limit_keeps_what_was_consumed
    a_lowered_limit_locks_nobody_out
    a_burst_that_is_halved_and_restored_grants_nothing_twice
    a_limit_that_became_slower_keeps_the_old_rate_until_it_grants
    tokens_come_back_with_time
    a_leased_limit_keeps_its_reserve_back
    a_debt_is_charged_beyond_an_empty_bucket
    a_debt_counts_as_far_as_can_be_counted
    what_flowed_in_since_a_debt_was_admitted_pays_for_it
    unspent_tokens_are_given_back
    a_fixed_window_has_its_quota_once
    a_fixed_window_ends_when_the_clock_says_so
    a_window_of_a_calendar_has_its_quota_once
    a_sliding_window_gives_each_token_back_a_window_later
    windows_and_buckets_are_all_or_nothing_together
    another_window_keeps_what_was_consumed
    another_algorithm_begins_anew
    a_shorter_window_locks_nobody_out
    a_window_is_charged_and_refunded
    nodes_share_permits_and_keep_those_in_use
    a_node_that_lacks_permits_lowers_the_share_of_the_others
    permits_of_a_silent_node_come_back_within_seconds
    permits_and_tokens_of_one_key_are_separate
}
