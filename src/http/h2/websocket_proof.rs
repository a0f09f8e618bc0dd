//! The proof that a server speaks WebSocket, which HTTP/1.1 asks for and HTTP/2 does without (RFC 8441 §5.1).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// The text behind the key (RFC 6455 §1.3).
const SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A `Sec-WebSocket-Key`.
pub fn random_key() -> String {
    STANDARD.encode(fastrand::u128(..).to_be_bytes())
}

/// The `Sec-WebSocket-Accept` for `key`.
pub fn accept(key: &[u8]) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(SUFFIX).finalize())
}
