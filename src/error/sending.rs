//! Failures, by whether an upstream had the request: then it may have worked on it.
//!
//! Failures do not know that. The proxy does, which marks what it sends.

use tollgate_limiter::request::permit::Unanswered;

use super::Failure;

impl Failure {
    /// This failure of a request that `was_sent` or not, and the outcome that settles the request's
    /// limits instead of a response.
    #[must_use]
    pub fn settle(self, was_sent: bool) -> (Self, Unanswered) {
        if was_sent {
            return (self, Unanswered::Forwarded);
        }
        let failure = match self {
            Self::ResponseTimeout => Self::ForwardTimeout,
            Self::CallOverdue => Self::UnsentCallOverdue,
            other => other,
        };
        let unanswered = if failure.spares_client() {
            Unanswered::NotForwarded
        } else {
            Unanswered::Refused
        };
        (failure, unanswered)
    }

    /// Whether the client is not at fault where nothing was sent.
    fn spares_client(&self) -> bool {
        let of_upstream = matches!(
            self,
            Self::NoEndpoint | Self::UpstreamOverloaded | Self::ConcurrencyLimited
        );
        let of_connection = matches!(
            self,
            Self::ConnectFailed | Self::ConnectTimeout | Self::TlsFailed
        );
        let of_time = matches!(self, Self::ForwardTimeout | Self::UnsentCallOverdue);
        of_upstream
            || of_connection
            || of_time
            || matches!(self, Self::Exhausted | Self::WebSocketUnsupported)
    }
}
