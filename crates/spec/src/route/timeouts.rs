//! The time limits of a route, each in place of its upstream's.

use std::time::Duration;

/// Time limits; `None`: the upstream's holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTimeLimits {
    /// To open a connection, and to wait for one at the bounds.
    pub connect: Option<Duration>,
    /// From the request being sent to the response's header section, for each time that it is sent.
    pub response: Option<Duration>,
    /// Between two pieces of a body.
    pub idle: Option<Duration>,
    /// For a byte either way in a tunnel.
    pub tunnel_idle: Option<Duration>,
}

/// The time that an answer may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerTimeLimits {
    /// From when the limits let the request pass to the answer's header section.
    pub head: Option<Duration>,
    /// From the request's header section to the end of the answer's body.
    pub whole: Option<Duration>,
}

impl UpstreamTimeLimits {
    /// Whether those of the upstream hold.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
