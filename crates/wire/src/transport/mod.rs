//! Connections beneath HTTP, of both sides: a [`Stream`] is a socket in the clear, or TLS over one.
//! A `listening_socket` at a `listen_address` accepts a client's connection. `proxy_protocol` and
//! `tls` read the bytes before HTTP; `peer` is the connection's other end, and `address` has the
//! rules about IP addresses.
//!
//! Guarantees that the code above cannot tell streams apart, except by asking, and that a stream in
//! the clear costs no more than its socket.

pub mod address;
mod clear_stream;
mod halves;
pub mod immediate_write;
pub mod listen_address;
pub mod listening_socket;
pub mod peer;
pub mod proxy_protocol;
mod stream;
pub mod tls;

pub use clear_stream::ClearStream;
pub use halves::{ReadHalf, WriteHalf};
pub use stream::Stream;
