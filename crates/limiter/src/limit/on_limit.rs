//! How a request that a limit denies is treated.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::limit::fixed_response::FixedResponse;

/// How a request that a limit denies is treated.
///
/// A cheaper response instead of 429:
///
/// ```
/// use http::StatusCode;
/// use tollgate_limiter::limit::fixed_response::FixedResponse;
/// use tollgate_limiter::limit::on_limit::{Degrade, OnLimit};
/// use tollgate_limiter::{Limit, client_ip};
///
/// let empty = FixedResponse { status: StatusCode::OK, headers: vec![], body: "[]".into() };
/// let degrade = OnLimit::Degrade(Degrade::Respond(empty.into()));
/// let limit = Limit::per_second("searches", 10).key(client_ip()).on_limit(degrade);
/// # limit.build().unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum OnLimit {
    /// The request is refused with 429 and a problem.
    #[default]
    Reject,
    /// The request is refused with this response.
    Answer(Arc<FixedResponse>),
    /// The request waits for its tokens, where the layer has a queue.
    Queue(Queueing),
    /// The request passes, to a cheaper upstream or response.
    Degrade(Degrade),
}

/// How long and how many requests wait: see [`LimitBuilder::queue`](crate::LimitBuilder::queue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queueing {
    /// A request that would have to wait longer is refused.
    pub max_wait: Duration,
    /// Requests that wait on this node at a time, whatever their keys. When all places are taken,
    /// the longest line gives one to a key with few.
    pub max_waiting: NonZeroUsize,
}

/// The cheaper alternative for a request over the limit. See [`OnLimit`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Degrade {
    /// Another upstream, by name.
    Upstream(Arc<str>),
    /// A fixed response.
    Respond(Arc<FixedResponse>),
}

impl OnLimit {
    /// The upstream that requests over the limit go to, if there is one.
    pub fn upstream(&self) -> Option<&Arc<str>> {
        match self {
            Self::Degrade(Degrade::Upstream(name)) => Some(name),
            _ => None,
        }
    }

    /// This choice where there are no other upstreams: `Degrade::Upstream` becomes `Reject`.
    #[must_use]
    pub fn without_upstreams(&self) -> Self {
        match self {
            Self::Degrade(Degrade::Upstream(_)) => Self::Reject,
            other => other.clone(),
        }
    }
}
