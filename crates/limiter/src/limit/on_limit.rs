//! What happens to a request that a limit denies.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::limit::fixed_response::FixedResponse;

/// What happens to a request that a limit denies.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum OnLimit {
    /// It is refused with 429 and a problem.
    #[default]
    Reject,
    /// It is refused with this answer.
    Answer(Arc<FixedResponse>),
    /// It waits for its tokens, where there is somewhere to wait.
    Queue(Queueing),
    /// It passes, to something cheaper.
    Degrade(Degrade),
}

/// How long and how many requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queueing {
    pub max_wait: Duration,
    /// On this node, whatever they wait for.
    pub max_waiting: NonZeroUsize,
}

/// What a request over the limit gets instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Degrade {
    /// Another upstream, by name.
    Upstream(Arc<str>),
    /// A fixed answer.
    Respond(Arc<FixedResponse>),
}

impl OnLimit {
    /// The same where there are no upstreams to go to instead: then a request is refused.
    #[must_use]
    pub fn without_upstreams(&self) -> Self {
        match self {
            Self::Degrade(Degrade::Upstream(_)) => Self::Reject,
            other => other.clone(),
        }
    }
}
