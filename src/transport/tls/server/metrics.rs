//! Counts and times the handshakes of a listener.

use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};

/// How a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeOutcome {
    /// With new keys, by a certificate.
    Full,
    /// By a ticket of an earlier connection.
    Resumed,
    /// The client took too long, or its turn to compute did not come in time.
    Timeout,
    /// The client left.
    Closed,
    /// The client speaks HTTP in the clear.
    PlainHttp,
    /// The client has no certificate, or one that does not hold.
    ClientCertificate,
    /// The bytes that came are not TLS, or both sides have no version or algorithm in common.
    Failed,
}

impl HandshakeOutcome {
    /// At their own indices.
    const ALL: [(Self, &'static str); 7] = [
        (Self::Full, "full"),
        (Self::Resumed, "resumed"),
        (Self::Timeout, "timeout"),
        (Self::Closed, "closed"),
        (Self::PlainHttp, "plain_http"),
        (Self::ClientCertificate, "client_certificate"),
        (Self::Failed, "failed"),
    ];
}

/// The metrics of handshakes.
pub struct HandshakeMetrics {
    ended: [Counter; HandshakeOutcome::ALL.len()],
    duration: Histogram,
}

impl HandshakeMetrics {
    pub fn new() -> Self {
        let ended =
            HandshakeOutcome::ALL.map(|(_, outcome)| counter!("tollgate_tls_handshakes_total", "outcome" => outcome));
        ended.iter().for_each(|counter| counter.increment(0));
        Self { ended, duration: histogram!("tollgate_tls_handshake_duration_seconds") }
    }

    /// Counts a handshake that ended after `duration`. Only those that succeeded are timed.
    pub fn ended(&self, outcome: HandshakeOutcome, duration: Duration) {
        self.ended[outcome as usize].increment(1);
        if matches!(outcome, HandshakeOutcome::Full | HandshakeOutcome::Resumed) {
            self.duration.record(duration.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_counted_under_its_own_name() {
        for (index, (outcome, _)) in HandshakeOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
    }
}
