//! Connections beneath HTTP, of both sides: a [`Stream`] is a socket in the clear, or TLS over one.
//! What comes before HTTP on a client's connection is read by `proxy_protocol` and `tls`; `peer` is
//! its other end, and it was accepted from a `listening_socket`.
//!
//! Guarantees that the code above cannot tell them apart, except by asking, and that a stream in
//! the clear costs no more than its socket.

mod clear_stream;
mod halves;
pub mod immediate_write;
pub mod listening_socket;
pub mod peer;
pub mod proxy_protocol;
mod stream;
pub mod tls;

pub use clear_stream::ClearStream;
pub use halves::{ReadHalf, WriteHalf};
pub use stream::Stream;
