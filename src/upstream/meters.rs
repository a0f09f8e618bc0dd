//! What is counted of an upstream. Handles are resolved once: a request formats no label.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::endpoints::ConnectError;
use crate::error::Failure;

/// The metrics of one upstream.
pub struct Meters {
    requests: [Counter; Outcome::COUNT],
    connections: Gauge,
    connected: Counter,
    connect_failed: Counter,
    connect_timeout: Counter,
    retries: Counter,
    response_seconds: Histogram,
}

/// How forwarding one request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// With a response of the upstream's, whatever its status.
    Response,
    NoEndpoint,
    ConnectFailed,
    ConnectTimeout,
    ResponseTimeout,
    UpstreamClosed,
    UpstreamInvalid,
    /// The request itself, or its body, was at fault.
    ClientError,
    /// The client left before there was an answer.
    Cancelled,
}

/// One request being forwarded; counted when dropped.
pub struct Pending<'a> {
    meters: &'a Meters,
    outcome: Outcome,
}

/// An open connection.
pub struct OpenConnection(Gauge);

impl Outcome {
    const COUNT: usize = 9;
    const ALL: [(Self, &'static str); Self::COUNT] = [
        (Self::Response, "response"),
        (Self::NoEndpoint, "no_endpoint"),
        (Self::ConnectFailed, "connect_failed"),
        (Self::ConnectTimeout, "connect_timeout"),
        (Self::ResponseTimeout, "response_timeout"),
        (Self::UpstreamClosed, "upstream_closed"),
        (Self::UpstreamInvalid, "upstream_invalid"),
        (Self::ClientError, "client_error"),
        (Self::Cancelled, "cancelled"),
    ];
}

impl From<&Failure> for Outcome {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::NoEndpoint => Self::NoEndpoint,
            Failure::ConnectFailed => Self::ConnectFailed,
            Failure::ConnectTimeout => Self::ConnectTimeout,
            Failure::ResponseTimeout => Self::ResponseTimeout,
            Failure::UpstreamClosed => Self::UpstreamClosed,
            Failure::UpstreamInvalid => Self::UpstreamInvalid,
            _ => Self::ClientError,
        }
    }
}

impl Meters {
    pub(super) fn new(upstream: &str) -> Self {
        let name = || upstream.to_owned();
        let connects = |outcome: &'static str| counter!("tollgate_upstream_connects_total", "upstream" => name(), "outcome" => outcome);
        Self {
            requests: Outcome::ALL.map(
                |(_, outcome)| counter!("tollgate_upstream_requests_total", "upstream" => name(), "outcome" => outcome),
            ),
            connections: gauge!("tollgate_upstream_connections", "upstream" => name()),
            connected: connects("connected"),
            connect_failed: connects("failed"),
            connect_timeout: connects("timeout"),
            retries: counter!("tollgate_upstream_retries_total", "upstream" => name()),
            response_seconds: histogram!("tollgate_upstream_response_seconds", "upstream" => name()),
        }
    }

    /// A request comes in. Until told otherwise, its client has left.
    pub fn request(&self) -> Pending<'_> {
        Pending { meters: self, outcome: Outcome::Cancelled }
    }

    /// A connection was opened: it is counted as long as the guard lives.
    pub fn connected(&self) -> OpenConnection {
        self.connected.increment(1);
        self.connections.increment(1);
        OpenConnection(self.connections.clone())
    }

    pub fn connect_failed(&self, error: &ConnectError) {
        match error {
            ConnectError::Timeout => self.connect_timeout.increment(1),
            ConnectError::Failed(_) => self.connect_failed.increment(1),
        }
    }

    /// A request is sent again, here or elsewhere.
    pub fn retried(&self) {
        self.retries.increment(1);
    }

    /// From the request being sent to the response's header section.
    pub fn responded(&self, after: Duration) {
        self.response_seconds.record(after);
    }
}

impl Pending<'_> {
    /// The request is answered.
    pub fn finish<T>(mut self, result: &Result<T, Failure>) {
        self.outcome = result.as_ref().map_or_else(Outcome::from, |_| Outcome::Response);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(counter) = self.meters.requests.get(self.outcome as usize) {
            counter.increment(1);
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_stands_at_its_own_place() {
        for (place, (outcome, _)) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, place);
        }
    }
}
