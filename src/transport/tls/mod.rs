//! TLS, by rustls. `stream` is a connection after its handshake, of either side.

mod stream;

pub use stream::{EncryptedSocket, TlsStream};
