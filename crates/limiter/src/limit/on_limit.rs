//! How a request that a limit denies is treated.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::limit::fixed_response::FixedResponse;

/// How a request that a limit denies is treated.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum OnLimit {
    /// It is refused with 429 and a problem.
    #[default]
    Reject,
    /// It is refused with this response.
    Answer(Arc<FixedResponse>),
    /// It waits for its tokens, where the layer has a queue.
    Queue(Queueing),
    /// It passes, to a cheaper upstream or response.
    Degrade(Degrade),
}

/// How long and how many requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queueing {
    /// A request that would have to wait longer is refused.
    pub max_wait: Duration,
    /// Requests that wait on this node at a time, whatever their keys. When all places are taken, the longest line gives
    /// one to a key with few.
    pub max_waiting: NonZeroUsize,
}

/// The cheaper alternative for a request over the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Degrade {
    /// Another upstream, by name.
    Upstream(Arc<str>),
    /// A fixed response.
    Respond(Arc<FixedResponse>),
}

impl OnLimit {
    /// This choice where there are no other upstreams: `Degrade::Upstream` becomes `Reject`.
    #[must_use]
    pub fn without_upstreams(&self) -> Self {
        match self {
            Self::Degrade(Degrade::Upstream(_)) => Self::Reject,
            other => other.clone(),
        }
    }
}
