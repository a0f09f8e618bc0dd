//! HTTP/2 (RFC 9113) as both sides of the gateway use it, on the `h2` crate: how a body is sent
//! under flow control, how one is received, how a stream becomes a tunnel, and how large a head is.
//!
//! Guarantees that no body is buffered beyond its window, and that a peer which makes no progress
//! is noticed.

mod head_size;
mod receive_body;
mod send_body;
mod stream_tunnel;
pub mod websocket_proof;

pub use head_size::HeadBound;
pub use receive_body::ReceivedBody;
pub use send_body::{BodySender, SendFailure};
pub use stream_tunnel::StreamTunnel;

/// Most unread bytes of one body, and most unsent bytes of one.
pub const STREAM_WINDOW: u32 = 64 * 1024;
