//! The way of a request through its upstream's endpoints, for those who ask for it. Nothing is noted for others.

use std::sync::Arc;

use crate::clock::{self, Instant};
use crate::upstream::endpoints::{Endpoint, PickedEndpoint};

/// What became of a request at its upstream.
#[derive(Default)]
pub struct ForwardReport {
    pub upstream: Option<Arc<str>>,
    /// The latest endpoint.
    pub endpoint: Option<Arc<Endpoint>>,
    /// How often it went to an endpoint, connections that could not be opened among them.
    pub attempts: u32,
    /// When it went to the latest endpoint.
    pub begun: Option<Instant>,
    /// When the head of that endpoint's response came.
    pub head: Option<Instant>,
}

impl ForwardReport {
    /// The request goes to `endpoint`.
    pub fn begin(&mut self, endpoint: &PickedEndpoint) {
        self.endpoint = Some(Arc::clone(endpoint));
        self.attempts = self.attempts.saturating_add(1);
        (self.begun, self.head) = (Some(clock::now()), None);
    }

    /// The endpoint has answered.
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
