//! TLS, by rustls. `stream` is a connection after its handshake, of either side; `client` makes
//! those to upstreams and `server` those of clients.

pub mod client;
pub mod server;
mod stream;

pub use stream::{EncryptedSocket, TlsStream};
