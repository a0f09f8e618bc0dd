//! Calls the shared store, measures the calls and learns from their answers.
//!
//! Guarantees that the whole node learns from each answer: the breaker, the local buckets that an outage starts from,
//! remembered denials, leases, metrics.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Histogram, histogram};
use tokio::time::sleep_until;

use crate::algorithm::concurrency::GrantedPermits;
use crate::clock;
use crate::decide::check::TokenChecks;
use crate::limit::definition::OnOutage;
use crate::node::Node;
use crate::node::lease::LeaseSource;
use crate::store::adjustment::{self, Adjustment, AdjustmentBatch, AdjustmentResult, Change};
use crate::store::{self, BucketCharge, Grant, PermitClaim, Store, StoreError};

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

    /// The store's answer for `requests` equal requests. `None`: it could not decide. A leased limit also takes tokens
    /// ahead, as many as are of use.
    pub async fn take(self: &Arc<Self>, checks: &TokenChecks, requests: u32) -> Option<Grant> {
        let ahead = match checks.charges() {
            [charge] if charge.is_leased() => {
                let (needed, nodes) = (charge.cost.saturating_mul(requests.into()), self.node.share.get().nodes());
                self.node.leases.ahead(charge, needed, nodes, clock::monotonic_micros()) / charge.cost.max(1)
            }
            _ => 0,
        };
        self.take_ahead(checks, requests, u32::try_from(ahead).unwrap_or(u32::MAX)).await
    }

    /// Like [`Self::take`], with `ahead` more units, which go to the lease: for a single leased limit only. The levels
    /// in the answer do not tell the two apart.
    pub async fn take_ahead(self: &Arc<Self>, checks: &TokenChecks, requests: u32, ahead: u32) -> Option<Grant> {
        let (charges, units) = (checks.charges(), requests.saturating_add(ahead));
        let StoreAnswer { answer: grant, sent_us, now_us } =
            self.call(self.store.take(charges, units), requests).await?;
        for (index, ((charge, policy), level)) in checks.iter().zip(&grant.levels).enumerate() {
            if grant.foreign.contains(&index) {
                continue;
            }
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
            && grant.foreign.is_empty()
        {
            let tokens = charge.cost.saturating_mul(grant.units.saturating_sub(requests).into());
            let source = LeaseSource { sent_us, taken_at_us: grant.at_us };
            self.node.leases.deposit(charge, tokens, *level, source);
            if tokens > 0 {
                self.return_later(charge, source);
            }
        }
        match grant.foreign.is_empty() {
            true => Some(grant),
            false => Some(self.decide_foreign(checks, grant, requests)),
        }
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
        if charge.quota.flow_us(tokens) <= held_us || self.node.breaker.is_open() {
            return;
        }
        let change = Change::Refund { charge: charge.quota.charge(tokens), taken_at_us: source.taken_at_us };
        // A client that was denied for lack of these tokens may pass now: the next request is asked for after the
        // refund.
        self.node.denials.forget(&charge.key);
        // Sent once: nothing is owed, and a refund that is lost admits nothing too much.
        self.adjust(&AdjustmentBatch::once(vec![Adjustment { key: charge.key.clone(), quota: charge.quota, change }]))
            .await;
    }

    /// Corrects buckets.
    pub async fn adjust(&self, batch: &AdjustmentBatch) -> Vec<AdjustmentResult> {
        let mut results = Vec::new();
        let call = async {
            results = self.store.adjust(batch).await;
            adjustment::summary(&results)
        };
        self.call(call, 0).await;
        results
    }

    /// Claims permits for this node. `None`: the store did not answer.
    pub async fn claim(&self, claims: &[PermitClaim]) -> Option<Vec<GrantedPermits>> {
        self.call(self.store.claim(claims), 1).await.map(|timed| timed.answer)
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
        requests: u32,
    ) -> Option<StoreAnswer<T>> {
        let sent_us = clock::monotonic_micros();
        let answer = call.await;
        let now_us = clock::monotonic_micros();
        self.seconds.record(Duration::from_micros(now_us.saturating_sub(sent_us)));
        self.node.outcomes.count(&answer);
        match answer {
            Ok(answer) => {
                self.node.breaker.succeeded();
                Some(StoreAnswer { answer, sent_us, now_us })
            }
            Err(error) => {
                self.node.breaker.failed(&error, requests);
                None
            }
        }
    }
}
