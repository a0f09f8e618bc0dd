//! The metrics of an upstream. Guarantees that handles are resolved once: a request formats no
//! label.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::bounds::{ConnectionBound, ConnectionSlot};
use super::endpoints::UpstreamConnectError;
use tollgate_limiter::clock::{self, Instant};
use tollgate_wire::error::Failure;

/// The metrics of one upstream.
pub struct UpstreamMetrics {
    requests: [Counter; ForwardOutcome::COUNT],
    pending: Gauge,
    connections: Gauge,
    connected: Counter,
    connect_failed: Counter,
    connect_timeout: Counter,
    tls_failed: Counter,
    connect_exhausted: Counter,
    retries: Counter,
    retried_requests: [Counter; RetriedOutcome::COUNT],
    response_seconds: Histogram,
}

/// How forwarding one request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForwardOutcome {
    /// The upstream responded, with any status.
    Response,
    NoEndpoint,
    /// The upstream is at its bounds.
    Overloaded,
    /// The upstream is at the bound that its latency sets.
    Limited,
    /// The gateway had nothing left for a connection.
    Exhausted,
    ConnectFailed,
    ConnectTimeout,
    TlsFailed,
    ResponseTimeout,
    UpstreamClosed,
    UpstreamInvalid,
    WebSocketUnsupported,
    /// The request or its body was at fault.
    ClientError,
    /// The client left before there was an answer.
    Cancelled,
}

/// The outcome of a request that its route sends again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetriedOutcome {
    /// An attempt after the first brought an answer that is not sent again.
    Succeeded,
    /// No attempt brought such an answer.
    Failed,
    /// The budget did not pay for another attempt.
    OverBudget,
}

/// Counts one forwarded request by its outcome, when dropped.
pub struct OutcomeRecorder<'a> {
    metrics: &'a UpstreamMetrics,
    /// `None`: it was given up.
    outcome: Option<ForwardOutcome>,
    deadline: Option<Instant>,
}

/// Counts an open connection until it is dropped.
pub struct CountedConnection {
    open: Gauge,
    /// The place of the connection, where the upstream bounds them.
    slot: Option<ConnectionSlot>,
}

impl ForwardOutcome {
    const COUNT: usize = 14;
    const ALL: [(Self, &'static str); Self::COUNT] = [
        (Self::Response, "response"),
        (Self::NoEndpoint, "no_endpoint"),
        (Self::Overloaded, "overloaded"),
        (Self::Limited, "limited"),
        (Self::Exhausted, "exhausted"),
        (Self::ConnectFailed, "connect_failed"),
        (Self::ConnectTimeout, "connect_timeout"),
        (Self::TlsFailed, "tls_failed"),
        (Self::ResponseTimeout, "response_timeout"),
        (Self::UpstreamClosed, "upstream_closed"),
        (Self::UpstreamInvalid, "upstream_invalid"),
        (Self::WebSocketUnsupported, "websocket_unsupported"),
        (Self::ClientError, "client_error"),
        (Self::Cancelled, "cancelled"),
    ];
}

impl RetriedOutcome {
    const COUNT: usize = 3;
    const ALL: [(Self, &'static str); Self::COUNT] = [
        (Self::Succeeded, "succeeded"),
        (Self::Failed, "failed"),
        (Self::OverBudget, "over_budget"),
    ];
}

impl From<&Failure> for ForwardOutcome {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::NoEndpoint => Self::NoEndpoint,
            Failure::UpstreamOverloaded => Self::Overloaded,
            Failure::ConcurrencyLimited => Self::Limited,
            Failure::Exhausted => Self::Exhausted,
            Failure::ConnectFailed => Self::ConnectFailed,
            Failure::ConnectTimeout => Self::ConnectTimeout,
            Failure::TlsFailed => Self::TlsFailed,
            Failure::ResponseTimeout => Self::ResponseTimeout,
            Failure::UpstreamClosed => Self::UpstreamClosed,
            Failure::UpstreamInvalid => Self::UpstreamInvalid,
            Failure::WebSocketUnsupported => Self::WebSocketUnsupported,
            Failure::ClientGone => Self::Cancelled,
            _ => Self::ClientError,
        }
    }
}

impl UpstreamMetrics {
    pub(super) fn new(upstream: &str) -> Self {
        let outcomes = ["connected", "failed", "timeout", "tls_failed", "exhausted"];
        let [connected, connect_failed, connect_timeout, tls_failed, connect_exhausted] =
            outcomes.map(|outcome| {
                counter!("tollgate_upstream_connects_total", "upstream" => upstream.to_owned(), "outcome" => outcome)
            });
        Self {
            requests: ForwardOutcome::ALL.map(
                |(_, outcome)| counter!("tollgate_upstream_requests_total", "upstream" => upstream.to_owned(), "outcome" => outcome),
            ),
            pending: gauge!("tollgate_upstream_pending_requests", "upstream" => upstream.to_owned()),
            connections: gauge!("tollgate_upstream_connections", "upstream" => upstream.to_owned()),
            connected,
            connect_failed,
            connect_timeout,
            tls_failed,
            connect_exhausted,
            retries: counter!("tollgate_upstream_retries_total", "upstream" => upstream.to_owned()),
            retried_requests: RetriedOutcome::ALL.map(|(_, outcome)| {
                counter!("tollgate_upstream_retried_requests_total", "upstream" => upstream.to_owned(), "outcome" => outcome)
            }),
            response_seconds: histogram!("tollgate_upstream_response_seconds", "upstream" => upstream.to_owned()),
        }
    }

    /// Begins to count a request: as cancelled, until another outcome is recorded. One that is
    /// given up at `deadline` has had no answer in time.
    pub fn request(&self, deadline: Option<Instant>) -> OutcomeRecorder<'_> {
        OutcomeRecorder {
            metrics: self,
            outcome: None,
            deadline,
        }
    }

    /// Counts an opened connection for as long as the returned guard lives.
    pub fn connected(&self, slot: Option<ConnectionSlot>) -> CountedConnection {
        self.connected.increment(1);
        self.connections.increment(1);
        CountedConnection {
            open: self.connections.clone(),
            slot,
        }
    }

    /// How many requests wait for a connection.
    pub(super) fn pending(&self) -> Gauge {
        self.pending.clone()
    }

    /// Counts a failed attempt to connect.
    pub fn connect_failed(&self, error: &UpstreamConnectError) {
        match error {
            UpstreamConnectError::Timeout => self.connect_timeout.increment(1),
            UpstreamConnectError::Failed(_) => self.connect_failed.increment(1),
            UpstreamConnectError::Tls(_) | UpstreamConnectError::OfferRefused(_) => {
                self.tls_failed.increment(1)
            }
            UpstreamConnectError::Exhausted(_) => self.connect_exhausted.increment(1),
            UpstreamConnectError::Overloaded => {}
        }
    }

    /// Counts a retry, at this endpoint or another.
    pub fn retried(&self) {
        self.retries.increment(1);
    }

    /// Counts what became of a request that its route sends again.
    pub fn retries_ended(&self, outcome: RetriedOutcome) {
        if let Some(counter) = self.retried_requests.get(outcome as usize) {
            counter.increment(1);
        }
    }

    /// Records the time from sending the request to the response's header section.
    pub fn responded(&self, after: Duration) {
        self.response_seconds.record(after);
    }
}

impl OutcomeRecorder<'_> {
    /// Records the outcome.
    pub fn finish<T>(mut self, result: &Result<T, Failure>) {
        self.outcome = Some(
            result
                .as_ref()
                .map_or_else(ForwardOutcome::from, |_| ForwardOutcome::Response),
        );
    }
}

impl Drop for OutcomeRecorder<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.unwrap_or_else(|| {
            let is_overdue = self
                .deadline
                .is_some_and(|deadline| clock::now() >= deadline);
            if is_overdue {
                ForwardOutcome::ResponseTimeout
            } else {
                ForwardOutcome::Cancelled
            }
        });
        if let Some(counter) = self.metrics.requests.get(outcome as usize) {
            counter.increment(1);
        }
    }
}

impl CountedConnection {
    /// See [`ConnectionSlot::bound`].
    pub fn bound(&self) -> Option<&Arc<ConnectionBound>> {
        self.slot.as_ref()?.bound()
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.open.decrement(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_listed_at_its_own_index() {
        for (place, (outcome, _)) in ForwardOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, place);
        }
        for (place, (outcome, _)) in RetriedOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, place);
        }
    }
}
