//! The options that a request sets for its connection: the framing of its body, the form of its
//! answer, whether the connection goes on.

use tollgate_wire::http::h1::BodyFraming;

/// The options that a request sets for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionOptions {
    pub framing: BodyFraming,
    pub http_11: bool,
    /// A HEAD request: its response has no content.
    pub is_head: bool,
    /// The connection may carry another request.
    pub keeps_alive: bool,
    /// An HTTP/1.1 request with an Upgrade field: the response decides what follows.
    pub upgrade: bool,
    /// The client waits for a 100 before it sends a body.
    pub awaits_continue: bool,
    /// The client accepts trailer fields.
    pub takes_trailers: bool,
}

impl ConnectionOptions {
    /// The options for the answer to a request that could not be read.
    pub fn for_refused(is_head: bool) -> Self {
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
