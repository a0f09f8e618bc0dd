//! Counts and times the handshakes of a listener.

use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};

/// The end of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeOutcome {
    /// New keys were agreed on, by a certificate.
    Full,
    /// A ticket of an earlier connection was taken.
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
    /// The gateway closed the connection meanwhile: another one needed room, or a drain has ended.
    Evicted,
}

impl HandshakeOutcome {
    /// Every outcome, at its own index.
    const ALL: [(Self, &'static str); 8] = [
        (Self::Full, "full"),
        (Self::Resumed, "resumed"),
        (Self::Timeout, "timeout"),
        (Self::Closed, "closed"),
        (Self::PlainHttp, "plain_http"),
        (Self::ClientCertificate, "client_certificate"),
        (Self::Failed, "failed"),
        (Self::Evicted, "evicted"),
    ];
}

/// A handshake under way. Counts as evicted if it is dropped.
pub struct CountedHandshake<'a>(Option<&'a HandshakeMetrics>);

/// The metrics of handshakes.
pub struct HandshakeMetrics {
    ended: [Counter; HandshakeOutcome::ALL.len()],
    duration: Histogram,
}

impl HandshakeMetrics {
    pub fn new() -> Self {
        let ended = HandshakeOutcome::ALL
            .map(|(_, outcome)| counter!("tollgate_tls_handshakes_total", "outcome" => outcome));
        ended.iter().for_each(|counter| counter.increment(0));
        Self {
            ended,
            duration: histogram!("tollgate_tls_handshake_duration_seconds"),
        }
    }

    /// Counts a handshake that begins, once it ends.
    pub fn begin(&self) -> CountedHandshake<'_> {
        CountedHandshake(Some(self))
    }

    fn count(&self, outcome: HandshakeOutcome, duration: Duration) {
        self.ended[outcome as usize].increment(1);
        if matches!(outcome, HandshakeOutcome::Full | HandshakeOutcome::Resumed) {
            self.duration.record(duration.as_secs_f64());
        }
    }
}

impl CountedHandshake<'_> {
    /// Counts the end of the handshake after `duration`. Times handshakes that succeeded.
    pub fn end(mut self, outcome: HandshakeOutcome, duration: Duration) {
        if let Some(metrics) = self.0.take() {
            metrics.count(outcome, duration);
        }
    }
}

impl Drop for CountedHandshake<'_> {
    fn drop(&mut self) {
        if let Some(metrics) = self.0 {
            metrics.count(HandshakeOutcome::Evicted, Duration::ZERO);
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
