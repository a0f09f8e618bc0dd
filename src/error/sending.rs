//! Failures, by whether an upstream had the request: then it may have worked on it.

use tollgate_limiter::request::permit::Unanswered;

use super::Failure;

impl Failure {
    /// The outcome that settles the request's limits instead of a response.
    pub fn unanswered(&self) -> Unanswered {
        match self {
            Self::NoEndpoint | Self::UpstreamOverloaded | Self::Exhausted => Unanswered::NotForwarded,
            Self::ConnectFailed | Self::ConnectTimeout | Self::TlsFailed => Unanswered::NotForwarded,
            Self::WebSocketUnsupported | Self::ConcurrencyLimited => Unanswered::NotForwarded,
            Self::ForwardTimeout | Self::UnsentCallOverdue => Unanswered::NotForwarded,
            _ => Unanswered::Forwarded,
        }
    }

    /// This failure of an attempt, when an earlier one was sent.
    #[must_use]
    pub fn after_sending(self) -> Self {
        let is_unsent = self.unanswered() == Unanswered::NotForwarded;
        if is_unsent { Self::AfterSending(Box::new(self)) } else { self }
    }

    /// This failure of a request that no upstream had anything of.
    #[must_use]
    pub fn before_sending(self) -> Self {
        match self {
            Self::ResponseTimeout => Self::ForwardTimeout,
            Self::CallOverdue => Self::UnsentCallOverdue,
            other => other,
        }
    }

    /// The failure of the last attempt itself.
    pub fn of_attempt(&self) -> &Self {
        if let Self::AfterSending(failure) = self { failure } else { self }
    }
}
