//! TLS, by rustls. `stream` is a connection after its handshake, of either side; `client` makes those to upstreams.

pub mod client;
mod stream;

pub use stream::{EncryptedSocket, TlsStream};
