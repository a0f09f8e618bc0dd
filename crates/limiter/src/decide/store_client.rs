//! Calls to the shared store: made, measured, and learned from.
//!
//! Guarantees that whatever a call tells is told to the whole node: the breaker, the local buckets that an outage starts
//! from, the metrics. Refuses to know who waits for the answer.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};

use crate::algorithm::concurrency::GrantedPermits;
use crate::clock;
use crate::decide::local_decision as shortcut;
use crate::limit::spec::OnOutage;
use crate::node::Node;
use crate::node::lease::Source;
use crate::store::{self, Adjustment, Ask, Grant, PermitClaim, Store, StoreError};

/// One worker's way to the shared store.
pub(crate) struct StoreClient {
    pub node: Arc<Node>,
    pub store: Arc<dyn Store>,
    seconds: Histogram,
}

/// Calls by what came of them.
pub(crate) struct Outcomes {
    ok: Counter,
    failed: [Counter; StoreError::NAMES.len()],
}

/// What the store said, and when: in microseconds of this node's monotonic clock.
struct Answered<T> {
    answer: T,
    sent_us: u64,
    now_us: u64,
}

impl Outcomes {
    /// Metrics go to the recorder that is installed by now.
    pub fn new() -> Self {
        Self {
            ok: counter!("tollgate_store_calls_total", "outcome" => "ok"),
            failed: StoreError::NAMES.map(|outcome| counter!("tollgate_store_calls_total", "outcome" => outcome)),
        }
    }

    pub fn count<T>(&self, answer: &Result<T, StoreError>) {
        match answer {
            Ok(_) => self.ok.increment(1),
            Err(error) => self.failed[error.index()].increment(1),
        }
    }
}

impl StoreClient {
    /// Metrics go to the recorder that is installed by now.
    pub fn new(node: Arc<Node>, store: Arc<dyn Store>) -> Self {
        Self { node, store, seconds: histogram!("tollgate_store_call_duration_seconds") }
    }

    /// The longest a request may wait.
    pub fn patience(&self) -> Duration {
        self.store.timeout()
    }

    /// The store's answer for `requests` equal requests, or `None` when it could not decide. Of a leased limit it takes
    /// tokens ahead, as many as are worth it.
    pub async fn take(self: &Arc<Self>, asks: &[Ask], requests: u32) -> Option<Grant> {
        let ahead = match asks {
            [ask] if shortcut::is_leased(ask) => {
                let (needed, nodes) = (ask.cost.saturating_mul(requests.into()), self.node.share.get().nodes());
                self.node.leases.ahead(ask, needed, nodes, clock::monotonic_micros()) / ask.cost.max(1)
            }
            _ => 0,
        };
        self.take_ahead(asks, requests, u32::try_from(ahead).unwrap_or(u32::MAX)).await
    }

    /// The same with `ahead` more units, which go to the stock: of one leased limit only. What the requests hear does not
    /// tell them apart from those.
    pub async fn take_ahead(self: &Arc<Self>, asks: &[Ask], requests: u32, ahead: u32) -> Option<Grant> {
        let units = requests.saturating_add(ahead);
        let Answered { answer: grant, sent_us, now_us } = self.call(self.store.take(asks, units), requests).await?;
        for (ask, level) in asks.iter().zip(&grant.levels) {
            if ask.on_outage == OnOutage::Local {
                self.node.memory.note(ask, level, now_us);
            }
            if grant.units < units && level.retry_after_us > 0 {
                self.node.denials.note(ask, store::cost_of(asks, ask), level, sent_us);
            }
        }
        if let ([ask], [level]) = (asks, &*grant.levels)
            && shortcut::is_leased(ask)
        {
            let tokens = ask.cost.saturating_mul(grant.units.saturating_sub(requests).into());
            let source = Source { sent_us, taken_at_us: grant.at_us };
            self.node.leases.deposit(ask, tokens, *level, source);
            if tokens > 0 {
                self.return_later(ask, source);
            }
        }
        Some(grant)
    }

    /// Corrects buckets. `false`: it may have failed, and may have worked all the same.
    pub async fn adjust(&self, adjustments: &[Adjustment]) -> bool {
        self.call(self.store.adjust(adjustments), 0).await.is_some()
    }

    /// Says what this node holds of slots, and hears what it may. `None`: nobody knows.
    pub async fn claim(&self, claims: &[PermitClaim]) -> Option<Vec<GrantedPermits>> {
        self.call(self.store.claim(claims), 1).await.map(|answered| answered.answer)
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T, StoreError>>, requests: u32) -> Option<Answered<T>> {
        let sent_us = clock::monotonic_micros();
        let answer = call.await;
        let now_us = clock::monotonic_micros();
        self.seconds.record(Duration::from_micros(now_us.saturating_sub(sent_us)));
        self.node.outcomes.count(&answer);
        match answer {
            Ok(answer) => {
                self.node.breaker.succeeded();
                Some(Answered { answer, sent_us, now_us })
            }
            Err(error) => {
                self.node.breaker.failed(&error, requests);
                None
            }
        }
    }
}
