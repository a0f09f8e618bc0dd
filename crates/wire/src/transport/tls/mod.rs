//! TLS, by rustls. `stream` is a connection after its handshake, of either side. `client` makes
//! handshakes with upstreams, by the settings of `client_spec`, and `server` with clients.

pub mod client;
pub mod client_spec;
pub mod server;
mod stream;

pub use stream::{EncryptedSocket, TlsStream};
