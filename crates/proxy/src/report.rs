//! The facts of a request that the proxy alone knows: whether a part of it was sent, and its way
//! through its upstream's endpoints.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::upstream::endpoints::{Endpoint, PickedEndpoint};
use tollgate_limiter::clock::{self, Instant};

/// Whether an upstream may have worked on a request. The mark outlives the future that forwards,
/// which a timeout may drop.
#[derive(Debug, Default)]
pub struct SentMark(AtomicBool);

/// The course of a request at its upstream.
#[derive(Default)]
pub struct ForwardReport {
    pub upstream: Option<Arc<str>>,
    /// The latest endpoint.
    pub endpoint: Option<Arc<Endpoint>>,
    /// The number of times that the request went to an endpoint, connections that could not be
    /// opened among them.
    pub attempts: u32,
    /// When the request went to the latest endpoint.
    pub begun: Option<Instant>,
    /// When the head of that endpoint's response came.
    pub head: Option<Instant>,
}

impl SentMark {
    /// Whether anything was sent, other than to an upstream that says it has not processed it.
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Marks a request that is about to be sent. Returns whether it was marked before.
    #[inline]
    pub(super) fn set(&self) -> bool {
        let before = self.is_set();
        self.0.store(true, Relaxed);
        before
    }

    /// Restores the mark from before an attempt that did not reach its upstream.
    pub(super) fn restore(&self, before: bool) {
        self.0.store(before, Relaxed);
    }
}

impl ForwardReport {
    /// Records that the request goes to `endpoint`.
    pub fn begin(&mut self, endpoint: &PickedEndpoint) {
        self.endpoint = Some(Arc::clone(endpoint));
        self.attempts = self.attempts.saturating_add(1);
        self.begun = Some(clock::now());
        self.head = None;
    }

    /// Records that the endpoint has answered.
    pub fn answered(&mut self, now: Instant) {
        self.head = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::balance::Tried;
    use crate::upstream::{Upstream, test_spec};

    #[test]
    fn an_attempt_without_an_answer_has_not_the_head_of_the_one_before() {
        let endpoints = ["http://10.0.0.1".to_owned()].into_iter();
        let upstream = Upstream::new(Arc::new(test_spec(endpoints)), None);
        let picked = upstream.pick(&mut Tried::default()).unwrap();
        let mut report = ForwardReport::default();
        report.begin(&picked);
        report.answered(clock::now());
        assert_eq!((report.attempts, report.head.is_some()), (1, true));
        report.begin(&picked);
        assert_eq!((report.attempts, report.head), (2, None));
    }
}
