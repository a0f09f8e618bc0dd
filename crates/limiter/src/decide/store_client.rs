//! Calls the shared store, measures the calls and learns from their answers.
//!
//! Guarantees that the whole node learns from each answer: the breaker, the local buckets that an outage starts from,
//! remembered denials, leases, metrics.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryFutureExt;
use metrics::{Histogram, histogram};
use tokio::time::{sleep_until, timeout_at};

use crate::algorithm::concurrency::GrantedPermits;
use crate::clock::{self, Instant};
use crate::decide::check::TokenChecks;
use crate::limit::definition::OnOutage;
use crate::limit::key::Key;
use crate::node::Node;
use crate::node::lease::LeaseSource;
use crate::store::{
    self, Adjustment, BucketCharge, Change, Grant, PermitClaim, ServerId, Store, StoreError, StoreFailure,
};

/// The tokens left of a lease are given back when three of this many parts of its time have passed.
const LEASE_PARTS: u32 = 4;

/// A worker's access to the shared store.
pub(crate) struct StoreClient {
    pub node: Arc<Node>,
    pub store: Arc<dyn Store>,
    seconds: Histogram,
}

/// An answer of the store, and its times in microseconds of this node's monotonic clock.
struct StoreAnswer<T> {
    answer: T,
    sent_us: u64,
    now_us: u64,
}

impl StoreClient {
    /// Metrics go to the recorder that is installed by now.
    pub fn new(node: Arc<Node>, store: Arc<dyn Store>) -> Self {
        Self { node, store, seconds: histogram!("tollgate_store_call_duration_seconds") }
    }

    /// The longest that a request may wait.
    pub fn timeout(&self) -> Duration {
        self.store.timeout()
    }

    /// Whether the store may not be asked for the bucket of `key`.
    #[inline]
    pub fn is_away(&self, key: &Key) -> bool {
        self.node.breaker.is_open() && self.node.breaker.is_open_for(self.store.server_of(key))
    }

    /// Whether the store may not be asked for one of the buckets of `checks`.
    #[inline]
    pub fn is_any_away(&self, checks: &TokenChecks) -> bool {
        self.node.breaker.is_open() && checks.charges().iter().any(|charge| self.is_away(&charge.key))
    }

    /// Whether the store may be asked for none of the buckets of `checks`.
    pub fn are_all_away(&self, checks: &TokenChecks) -> bool {
        checks.charges().iter().all(|charge| self.is_away(&charge.key))
    }

    /// Like [`Self::is_away`], of permits.
    #[inline]
    pub fn has_permits_away(&self, key: &Key) -> bool {
        self.node.breaker.is_open() && self.node.breaker.is_open_for(self.store.server_of_permits(key))
    }

    /// The end of a call that is made now, and that nobody has waited for yet.
    fn deadline(&self) -> Instant {
        clock::now() + self.timeout()
    }

    /// The store's answer for `requests` equal requests. `None`: it could not decide by `deadline`. A leased limit also
    /// takes tokens ahead, as many as are of use.
    pub async fn take(self: &Arc<Self>, checks: &TokenChecks, requests: u32, deadline: Instant) -> Option<Grant> {
        let ahead = match checks.charges() {
            [charge] if charge.is_leased() => {
                let (needed, nodes) = (charge.cost.saturating_mul(requests.into()), self.node.share.get().nodes());
                self.node.leases.ahead(charge, needed, nodes, clock::monotonic_micros()) / charge.cost.max(1)
            }
            _ => 0,
        };
        self.take_units(checks, requests, u32::try_from(ahead).unwrap_or(u32::MAX), deadline).await
    }

    /// Takes `ahead` units for the lease: for a single leased limit only.
    pub async fn take_ahead(self: &Arc<Self>, checks: &TokenChecks, ahead: u32) {
        self.take_units(checks, 0, ahead, self.deadline()).await;
    }

    /// Like [`Self::take`], with `ahead` more units, which go to the lease. The levels in the answer do not tell the two
    /// apart.
    async fn take_units(
        self: &Arc<Self>,
        checks: &TokenChecks,
        requests: u32,
        ahead: u32,
        deadline: Instant,
    ) -> Option<Grant> {
        let (charges, units) = (checks.charges(), requests.saturating_add(ahead));
        let StoreAnswer { answer: grant, sent_us, now_us } =
            self.call(self.store.take(charges, units), requests, deadline, || self.server_of_all(charges)).await?;
        self.decided(charges.iter().map(|charge| self.store.server_of(&charge.key)));
        for ((charge, policy), level) in checks.iter().zip(&grant.levels) {
            if policy.on_outage == OnOutage::Local {
                self.node.memory.observe(charge, level, now_us);
            }
            if grant.units < units && level.retry_after_us > 0 {
                let cost = store::cost_of(charges, charge);
                self.node.denials.remember(charge, policy.settled_later, cost, level, sent_us);
            }
        }
        if let ([charge], [level]) = (charges, &*grant.levels)
            && charge.is_leased()
        {
            let tokens = charge.cost.saturating_mul(grant.units.saturating_sub(requests).into());
            let source = LeaseSource { sent_us, taken_at_us: grant.at_us };
            self.node.leases.deposit(charge, tokens, *level, source);
            if tokens > 0 {
                self.return_later(charge, source);
            }
        }
        Some(grant)
    }

    /// Gives back the tokens of `source` that are not spent by the end of the lease's useful time.
    fn return_later(self: &Arc<Self>, charge: &BucketCharge, source: LeaseSource) {
        let age = clock::monotonic_micros().saturating_sub(source.sent_us);
        let lease = Duration::from_micros(charge.quota.lease_us());
        let at = clock::now() + (lease * (LEASE_PARTS - 1) / LEASE_PARTS).saturating_sub(Duration::from_micros(age));
        let (client, charge) = (self.clone(), charge.clone());
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
        let change = Change::Refund { charge: charge.quota.charge(tokens), taken_at_us: source.taken_at_us };
        // A client that was denied for lack of these tokens may pass now: the next request is asked for after the
        // refund.
        self.node.denials.forget(&charge.key);
        self.adjust(&[Adjustment { key: charge.key.clone(), quota: charge.quota, change }]).await;
    }

    /// Corrects buckets. `false`: the call may have failed, and may have worked all the same.
    pub async fn adjust(&self, adjustments: &[Adjustment]) -> bool {
        let server = || adjustments.first().map_or(ServerId::ONLY, |first| self.store.server_of(&first.key));
        let call = self.store.adjust(adjustments).map_err(|error| StoreFailure { server: server(), error });
        self.call(call, 0, self.deadline(), || None).await.is_some()
    }

    /// Claims permits for this node. `None`: the store did not answer.
    pub async fn claim(&self, claims: &[PermitClaim]) -> Option<Vec<GrantedPermits>> {
        self.claim_by(claims, self.deadline()).await
    }

    /// The server that has the buckets of all of these charges.
    fn server_of_all(&self, charges: &[BucketCharge]) -> Option<ServerId> {
        let mut servers = charges.iter().map(|charge| self.store.server_of(&charge.key));
        let first = servers.next()?;
        servers.all(|server| server == first).then_some(first)
    }

    /// These servers decided.
    fn decided(&self, servers: impl Iterator<Item = ServerId>) {
        // Which server has a key is computed only then.
        if self.node.breaker.has_trouble() {
            servers.for_each(|server| self.node.breaker.succeeded(server));
        }
    }

    /// Like [`Self::claim`], for a request that waits until `deadline` at most.
    pub async fn claim_by(&self, claims: &[PermitClaim], deadline: Instant) -> Option<Vec<GrantedPermits>> {
        if clock::now() >= deadline {
            return None;
        }
        let server = || claims.first().map(|first| self.store.server_of_permits(&first.key));
        let call = self.store.claim(claims);
        let call = call.map_err(|error| StoreFailure { server: server().unwrap_or(ServerId::ONLY), error });
        let answer = self.call(call, 1, deadline, server).await?.answer;
        self.decided(claims.iter().map(|claim| self.store.server_of_permits(&claim.key)));
        Some(answer)
    }

    /// Makes a call that is given up at `deadline`. The breaker hears of the failure, unless the call had less than half
    /// of the time limit: its request had spent the rest on something else. `server` is asked when the time is over. `None`:
    /// the call is to several servers, and nobody knows which of them is late.
    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreFailure>>,
        requests: u32,
        deadline: Instant,
        server: impl Fn() -> Option<ServerId>,
    ) -> Option<StoreAnswer<T>> {
        let sent_us = clock::monotonic_micros();
        let answer = match timeout_at(deadline, call).await {
            Ok(answer) => answer.map_err(|StoreFailure { server, error }| (Some(server), error)),
            Err(_) => Err((server(), StoreError::Timeout)),
        };
        let now_us = clock::monotonic_micros();
        self.seconds.record(Duration::from_micros(now_us.saturating_sub(sent_us)));
        self.node.outcomes.count(answer.as_ref().map_err(|(_, error)| error));
        match answer {
            Ok(answer) => Some(StoreAnswer { answer, sent_us, now_us }),
            Err((server, error)) => {
                let in_vain = Duration::from_micros(now_us.saturating_sub(sent_us)) >= self.timeout() / 2;
                if let Some(server) = server.filter(|_| in_vain || error != StoreError::Timeout) {
                    self.node.breaker.failed(server, &error, requests, || self.store.server_name(server));
                }
                None
            }
        }
    }
}
