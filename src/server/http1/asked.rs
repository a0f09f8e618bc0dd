//! What a request asks of its connection: how long it reads, what it writes, whether it goes on.

use crate::http::h1::BodyFraming;

/// What a request asks of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub framing: BodyFraming,
    pub http_11: bool,
    /// A HEAD request: its answer has no content.
    pub is_head: bool,
    /// The connection may carry another request.
    pub keeps_alive: bool,
    /// HTTP/1.1 with an Upgrade field: what follows depends on the answer.
    pub upgrade: bool,
    /// The client waits for a 100 before it sends content.
    pub awaits_continue: bool,
    /// The client looks at trailer fields.
    pub takes_trailers: bool,
}

impl Asked {
    /// By a request that could not be read.
    pub fn of_refused(is_head: bool) -> Self {
        Self {
            framing: BodyFraming::Length(0),
            http_11: true,
            is_head,
            keeps_alive: false,
            upgrade: false,
            awaits_continue: false,
            takes_trailers: false,
        }
    }
}
