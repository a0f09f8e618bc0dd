//! Calls to the shared store: made, measured, and learned from.
//!
//! Guarantees that whatever a call tells is told to the whole node: the breaker, the local buckets that an outage starts
//! from, the metrics. Refuses to know who waits for the answer.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};

use super::node::Node;
use super::policy::OnOutage;
use crate::clock;
use crate::store::{self, Ask, Grant, Store, StoreError};

/// One worker's way to the shared store.
pub(super) struct Caller {
    pub node: Arc<Node>,
    pub store: Arc<dyn Store>,
    ok: Counter,
    failed: [Counter; StoreError::NAMES.len()],
    seconds: Histogram,
}

impl Caller {
    /// Metrics go to the recorder that is installed by now.
    pub fn new(node: Arc<Node>, store: Arc<dyn Store>) -> Self {
        Self {
            node,
            store,
            ok: counter!("tollgate_store_calls_total", "outcome" => "ok"),
            failed: StoreError::NAMES.map(|outcome| counter!("tollgate_store_calls_total", "outcome" => outcome)),
            seconds: histogram!("tollgate_store_call_duration_seconds"),
        }
    }

    /// The longest a request may wait.
    pub fn patience(&self) -> Duration {
        self.store.timeout()
    }

    /// The store's answer for `requests` equal requests, or `None` when it could not decide.
    pub async fn take(&self, asks: &[Ask], requests: u32) -> Option<Grant> {
        let (started, sent_us) = (clock::now(), clock::monotonic_micros());
        let answer = self.store.take(asks, requests).await;
        self.seconds.record(clock::now().saturating_duration_since(started));
        match answer {
            Ok(grant) => {
                self.ok.increment(1);
                self.node.breaker.succeeded();
                self.learn(asks, &grant, requests, sent_us);
                Some(grant)
            }
            Err(error) => {
                self.failed[error.index()].increment(1);
                self.node.breaker.failed(&error, requests);
                None
            }
        }
    }

    fn learn(&self, asks: &[Ask], grant: &Grant, requests: u32, sent_us: u64) {
        let now_us = clock::monotonic_micros();
        for (ask, level) in asks.iter().zip(&grant.levels) {
            if ask.on_outage == OnOutage::Local {
                self.node.memory.note(ask, level.reset_after_us, now_us);
            }
            if grant.units < requests && level.retry_after_us > 0 {
                self.node.denials.note(ask, store::cost_of(asks, ask), level, sent_us);
            }
        }
    }
}
