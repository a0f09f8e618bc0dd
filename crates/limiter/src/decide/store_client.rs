//! Calls the shared store, measures the calls and learns from their answers.
//!
//! Guarantees that the whole node learns from each answer: the breaker, the local buckets that an
//! outage starts from, remembered denials, leases, metrics. The breaker does not learn from answers
//! that come too late.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryFutureExt;
use metrics::{Histogram, histogram};
use tokio::sync::Semaphore;
use tokio::time::{sleep_until, timeout_at};

use crate::algorithm::concurrency::GrantedPermits;
use crate::algorithm::level::Level;
use crate::clock::{self, Instant};
use crate::decide::check::TokenChecks;
use crate::limit::key::Key;
use crate::node::Node;
use crate::node::denial_cache::CallTimes;
use crate::node::lease::LeaseSource;
use crate::store::adjustment::{self, Adjustment, AdjustmentBatch, AdjustmentResult, Change};
use crate::store::merged_charges::MergedCharge;
use crate::store::usual_duration::UsualDuration;
use crate::store::{
    self, BucketCharge, Grant, PermitClaim, ServerId, Store, StoreError, StoreFailure,
};

/// The tokens left of a lease are given back when three of this many parts of its time have passed.
const LEASE_PARTS: u32 = 4;

/// Tokens are taken ahead while a call takes one of this many parts of a lease's time at most:
/// those of a slower call would arrive too old to be spent.
const CALL_PARTS: u64 = 4;

/// Calls of a worker that go on after their requests have given up, about 1 KiB each. Beyond, a
/// call is dropped, and what its requests were granted is owed.
const MAX_LATE_CALLS: usize = 1_024;

/// A worker's access to the shared store.
pub(crate) struct StoreClient {
    pub node: Arc<Node>,
    pub store: Arc<dyn Store>,
    /// A place for each call that may still go on after its requests have given up.
    pub late_calls: Arc<Semaphore>,
    usual_duration: UsualDuration,
    seconds: Histogram,
    /// The requests that share a call.
    batch_requests: Histogram,
}

impl StoreClient {
    /// Metrics go to the recorder that is installed by now.
    pub fn new(node: Arc<Node>, store: Arc<dyn Store>) -> Self {
        let late_calls = Arc::new(Semaphore::new(MAX_LATE_CALLS));
        let seconds = histogram!("tollgate_store_call_duration_seconds");
        let batch_requests = histogram!("tollgate_store_batch_requests");
        Self {
            node,
            store,
            late_calls,
            usual_duration: UsualDuration::default(),
            seconds,
            batch_requests,
        }
    }

    /// The longest that a request may wait.
    pub fn timeout(&self) -> Duration {
        self.store.timeout()
    }

    /// Whether the store may not be asked for the bucket of `key`, or cannot read it.
    #[inline]
    pub fn is_away(&self, key: &Key) -> bool {
        let breaker = &self.node.breaker;
        (breaker.is_open() && breaker.is_open_for(self.store.server_of(key)))
            || self.is_foreign(key)
    }

    fn is_foreign(&self, key: &Key) -> bool {
        let keys = &self.node.foreign_keys;
        !keys.is_empty() && keys.contains(key, clock::monotonic_micros())
    }

    /// Whether the store may not be asked for one of the buckets of `checks`.
    #[inline]
    pub fn is_any_away(&self, checks: &TokenChecks) -> bool {
        let impaired = self.node.breaker.is_open() || !self.node.foreign_keys.is_empty();
        impaired
            && checks
                .charges()
                .iter()
                .any(|charge| self.is_away(&charge.key))
    }

    /// `checks` with the policies that hold by now, after the time that the servers of their
    /// buckets have been away.
    pub fn as_of_now<'a>(&self, checks: &'a TokenChecks) -> Cow<'a, TokenChecks> {
        checks.as_of_now(|key| self.away_for(self.store.server_of(key)))
    }

    /// For how long this node may have decided alone on the keys of `server`. The others count from
    /// when they last heard of it.
    pub fn away_for(&self, server: ServerId) -> Duration {
        self.node
            .breaker
            .open_for(server)
            .max(self.node.share.unheard_for())
    }

    /// Whether the store may be asked for none of the buckets of `checks`.
    pub fn are_all_away(&self, checks: &TokenChecks) -> bool {
        checks
            .charges()
            .iter()
            .all(|charge| self.is_away(&charge.key))
    }

    /// Like [`Self::is_away`], of permits.
    #[inline]
    pub fn has_permits_away(&self, key: &Key) -> bool {
        self.node.breaker.is_open()
            && self
                .node
                .breaker
                .is_open_for(self.store.server_of_permits(key))
    }

    /// The end of a call that is made now, and that nobody has waited for yet.
    fn deadline(&self) -> Instant {
        clock::now() + self.timeout()
    }

    /// The time in which nearly every call ends now.
    pub fn typical_duration(&self) -> Duration {
        self.usual_duration.get()
    }

    /// Whether tokens of a leased limit that are taken ahead now can be spent: calls are quick
    /// enough for that.
    pub fn may_take_ahead(&self, charge: &BucketCharge) -> bool {
        let longest = Duration::from_micros(charge.quota.lease_us() / CALL_PARTS);
        charge.is_leased() && self.usual_duration.get() <= longest
    }

    /// Units that a call for `requests` equal requests takes ahead for the lease. Only a single
    /// leased limit has some.
    pub fn units_ahead(&self, checks: &TokenChecks, requests: u32, now_us: u64) -> u32 {
        let [charge] = checks.charges() else { return 0 };
        if !self.may_take_ahead(charge) {
            return 0;
        }
        let needed = charge.cost.saturating_mul(requests.into());
        let nodes = self.node.share.get().nodes();
        let ahead = self.node.leases.ahead(charge, needed, nodes, now_us) / charge.cost.max(1);
        u32::try_from(ahead).unwrap_or(u32::MAX)
    }

    /// Takes `ahead` units for the lease: for a single leased limit only. No request waits for it.
    pub async fn take_ahead(self: &Arc<Self>, checks: &TokenChecks, ahead: u32) {
        let sent_us = clock::monotonic_micros();
        let limit = store::late_answer_limit(self.timeout());
        match timeout_at(clock::now() + limit, self.ask(checks, 0, ahead, sent_us)).await {
            Ok(Ok(_)) if waited(sent_us) > self.timeout() => self.node.outcomes.count_late(),
            Ok(answer) => drop(self.hear_grant(answer, checks, 0, sent_us)),
            Err(_) => self.fail(
                self.server_of_all(checks.charges()),
                &StoreError::Timeout,
                0,
                sent_us,
            ),
        }
    }

    /// Asks for `requests` units, and for `ahead` more, which go to the lease. The levels in the
    /// answer do not tell the two apart. The node learns from the answer, however late it is.
    pub async fn ask(
        self: &Arc<Self>,
        checks: &TokenChecks,
        requests: u32,
        ahead: u32,
        sent_us: u64,
    ) -> Result<Grant, StoreFailure> {
        let charges = checks.charges();
        let units = requests.saturating_add(ahead);
        if requests > 0 {
            self.batch_requests.record(f64::from(requests));
        }
        let answer = self.store.take(charges, units).await;
        let now_us = clock::monotonic_micros();
        let took_us = now_us.saturating_sub(sent_us);
        self.seconds.record(Duration::from_micros(took_us));
        let grant = answer?;
        self.usual_duration.learn(took_us);
        for (index, ((charge, policy), level)) in checks.iter().zip(&grant.levels).enumerate() {
            if grant.foreign.contains(&index) {
                continue;
            }
            if policy.on_outage.is_local() {
                // This node's own share is of what is held back too.
                let whole = grant.whole.get(index).unwrap_or(level);
                self.node.memory.observe(charge, whole, now_us);
            }
            if grant.units < units && level.retry_after_us > 0 {
                let cost = store::cost_of(charges, charge);
                let times = CallTimes {
                    sent_us,
                    answered_us: now_us,
                };
                self.node.denials.remember(charge, cost, level, times);
            }
        }
        if let ([charge], [level]) = (charges, &*grant.levels)
            && charge.is_leased()
            && grant.foreign.is_empty()
        {
            let tokens = charge
                .cost
                .saturating_mul(grant.units.saturating_sub(requests).into());
            let source = LeaseSource {
                sent_us,
                taken_at_us: grant.at_us,
            };
            // The lease counts from the beginning of the call, and the store up to its end.
            let full_in_us = level.reset_after_us.saturating_add(took_us);
            let level = Level {
                reset_after_us: full_in_us,
                ..*level
            };
            self.node.leases.deposit(charge, tokens, level, source);
            if tokens > 0 {
                self.return_later(charge, source);
            }
        }
        Ok(grant)
    }

    /// The answer to `requests` requests that waited for it since `sent_us`, counted.
    fn hear<T>(&self, answer: Result<T, StoreFailure>, requests: u32, sent_us: u64) -> Option<T> {
        match answer {
            Ok(answer) => {
                self.node.outcomes.count(None);
                Some(answer)
            }
            Err(StoreFailure { server, error }) => {
                self.fail(Some(server), &error, requests, sent_us);
                None
            }
        }
    }

    /// Like [`Self::hear`], of a call to take from the buckets of `checks`. Their servers have
    /// decided.
    pub fn hear_grant(
        self: &Arc<Self>,
        answer: Result<Grant, StoreFailure>,
        checks: &TokenChecks,
        requests: u32,
        sent_us: u64,
    ) -> Option<Grant> {
        let grant = self.hear(answer, requests, sent_us)?;
        self.decided(
            checks
                .charges()
                .iter()
                .map(|charge| self.store.server_of(&charge.key)),
        );
        if grant.foreign.is_empty() {
            Some(grant)
        } else {
            Some(self.decide_foreign(checks, grant, requests))
        }
    }

    /// Counts a failure. The breaker hears of it, unless the call was given up within half of the
    /// time limit: its requests had spent the rest on something else. `server` is `None` where
    /// nobody knows which of several is late.
    fn fail(&self, server: Option<ServerId>, error: &StoreError, requests: u32, sent_us: u64) {
        self.node.outcomes.count(Some(error));
        let in_vain = *error != StoreError::Timeout || waited(sent_us) >= self.timeout() / 2;
        if let Some(server) = server.filter(|_| in_vain) {
            self.node
                .breaker
                .failed(server, error, requests, || self.store.server_name(server));
        }
    }

    /// Notes that `requests` requests gave up the call of `sent_us`, which takes longer than this
    /// at least.
    pub fn give_up(&self, checks: &TokenChecks, requests: u32, sent_us: u64) {
        self.usual_duration
            .learn(u64::try_from(waited(sent_us).as_micros()).unwrap_or(u64::MAX));
        self.fail(
            self.server_of_all(checks.charges()),
            &StoreError::Timeout,
            requests,
            sent_us,
        );
    }

    /// Tells the breaker which server failed a call to several, when nobody could tell at the time.
    pub fn blame(&self, checks: &TokenChecks, failure: &StoreFailure, requests: u32) {
        if self.server_of_all(checks.charges()).is_none() {
            let StoreFailure { server, error } = failure;
            self.node
                .breaker
                .failed(*server, error, requests, || self.store.server_name(*server));
        }
    }

    /// Refunds `units` that were taken at `taken_at_us` of the store's clock, and that no request
    /// used.
    pub async fn refund(&self, checks: &TokenChecks, units: u32, taken_at_us: u64) {
        self.adjust(&AdjustmentBatch::once(
            checks
                .charges()
                .iter()
                .map(|charge| {
                    // A client that was denied for lack of these tokens may pass now.
                    self.node.denials.forget(&charge.key);
                    let charge_back = charge
                        .quota
                        .charge(charge.cost.saturating_mul(units.into()));
                    let change = Change::Refund {
                        charge: charge_back,
                        taken_at_us,
                    };
                    Adjustment {
                        key: charge.key.clone(),
                        quota: charge.quota,
                        change,
                    }
                })
                .collect(),
        ))
        .await;
    }

    /// Gives back the tokens of `source` that are not spent by the end of the lease's useful time.
    fn return_later(self: &Arc<Self>, charge: &BucketCharge, source: LeaseSource) {
        let age = clock::monotonic_micros().saturating_sub(source.sent_us);
        let lease = Duration::from_micros(charge.quota.lease_us());
        let at = clock::now()
            + (lease * (LEASE_PARTS - 1) / LEASE_PARTS).saturating_sub(Duration::from_micros(age));
        let client = self.clone();
        let charge = charge.clone();
        tokio::spawn(async move {
            sleep_until(at).await;
            client.return_unspent(&charge, source).await;
        });
    }

    async fn return_unspent(&self, charge: &BucketCharge, source: LeaseSource) {
        let tokens = self.node.leases.withdraw(charge, source);
        let held_us = clock::monotonic_micros().saturating_sub(source.sent_us);
        // Most of it has flowed in again, or the store takes no calls.
        if charge.quota.flow_us(tokens) <= held_us || self.is_away(&charge.key) {
            return;
        }
        let held = self
            .node
            .share
            .held_back_since(&MergedCharge::new(charge), source.sent_us);
        let charge_back = charge
            .quota
            .refund_holding_back(held, charge.quota.charge(tokens));
        let change = Change::Refund {
            charge: charge_back,
            taken_at_us: source.taken_at_us,
        };
        // A client that was denied for lack of these tokens may pass now: the next request is asked
        // for after the refund.
        self.node.denials.forget(&charge.key);
        // Sent once: nothing is owed, and a refund that is lost admits nothing too much.
        self.adjust(&AdjustmentBatch::once(vec![Adjustment {
            key: charge.key.clone(),
            quota: charge.quota,
            change,
        }]))
        .await;
    }

    /// Corrects buckets.
    pub async fn adjust(&self, batch: &AdjustmentBatch) -> Vec<AdjustmentResult> {
        let sent_us = clock::monotonic_micros();
        let results = self.store.adjust(batch).await;
        self.seconds.record(waited(sent_us));
        self.node
            .outcomes
            .count(adjustment::summary(&results).err().as_ref());
        results
    }

    /// Claims permits for this node. `None`: the store did not answer.
    pub async fn claim(&self, claims: &[PermitClaim]) -> Option<Vec<GrantedPermits>> {
        self.claim_by(claims, self.deadline()).await
    }

    /// Like [`Self::claim`], for a request that waits until `deadline` at most.
    pub async fn claim_by(
        &self,
        claims: &[PermitClaim],
        deadline: Instant,
    ) -> Option<Vec<GrantedPermits>> {
        if clock::now() >= deadline {
            return None;
        }
        let call = self.store.claim(claims);
        let call = call.map_err(|error| StoreFailure {
            server: self.server_of_first(claims).unwrap_or(ServerId::ONLY),
            error,
        });
        let answer = self
            .call(call, 1, deadline, || self.server_of_first(claims))
            .await?;
        self.decided(
            claims
                .iter()
                .map(|claim| self.store.server_of_permits(&claim.key)),
        );
        Some(answer)
    }

    fn server_of_first(&self, claims: &[PermitClaim]) -> Option<ServerId> {
        let first = claims.first()?;
        Some(self.store.server_of_permits(&first.key))
    }

    /// The server that has the buckets of all of these charges.
    fn server_of_all(&self, charges: &[BucketCharge]) -> Option<ServerId> {
        let mut servers = charges
            .iter()
            .map(|charge| self.store.server_of(&charge.key));
        let first = servers.next()?;
        servers.all(|server| server == first).then_some(first)
    }

    /// Notes that `servers` decided.
    fn decided(&self, servers: impl Iterator<Item = ServerId>) {
        // The server of a key is computed only then.
        if self.node.breaker.has_trouble() {
            servers.for_each(|server| self.node.breaker.succeeded(server));
        }
    }

    /// Makes a call that is given up at `deadline`. `server` is asked when the time is over.
    /// `None`: the call is to several servers, and nobody knows which of them is late.
    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreFailure>>,
        requests: u32,
        deadline: Instant,
        server: impl Fn() -> Option<ServerId>,
    ) -> Option<T> {
        let sent_us = clock::monotonic_micros();
        let answer = timeout_at(deadline, call).await;
        self.seconds.record(waited(sent_us));
        match answer {
            Ok(answer) => self.hear(answer, requests, sent_us),
            Err(_) => {
                self.fail(server(), &StoreError::Timeout, requests, sent_us);
                None
            }
        }
    }
}

fn waited(since_us: u64) -> Duration {
    Duration::from_micros(clock::monotonic_micros().saturating_sub(since_us))
}
