//! Failures, by whether an upstream had the request: an upstream that had it may have worked on it.
//!
//! Failures do not know whether something was sent. The proxy marks the requests that it sends.

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
        match self {
            Self::NoEndpoint
            | Self::UpstreamOverloaded
            | Self::ConcurrencyLimited
            | Self::Exhausted
            | Self::ConnectFailed
            | Self::ConnectTimeout
            | Self::TlsFailed
            | Self::WebSocketUnsupported
            | Self::ForwardTimeout
            | Self::UnsentCallOverdue => true,
            Self::BadRequest(_)
            | Self::ClientGone
            | Self::Denied(_)
            | Self::NoRoute
            | Self::ServedByHttps { .. }
            | Self::MethodNotAllowed(_)
            | Self::RequestTimeout
            | Self::BodyTooSlow
            | Self::BodyTooLarge
            | Self::UriTooLong
            | Self::HeadersTooLarge
            | Self::Misdirected
            | Self::NetworkRefused
            | Self::Unauthenticated { .. }
            | Self::IdentityRefused { .. }
            | Self::Maintenance { .. }
            | Self::AttemptsLimited(_)
            | Self::AuthenticationUnavailable { .. }
            | Self::Relayed(_)
            | Self::Overloaded
            | Self::UpstreamClosed
            | Self::UpstreamInvalid
            | Self::ResponseTimeout
            | Self::CallOverdue
            | Self::NotImplemented(_)
            | Self::VersionNotSupported
            | Self::Panicked => false,
        }
    }
}
