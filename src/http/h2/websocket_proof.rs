//! The proof that a server speaks WebSocket, which HTTP/1.1 asks for and HTTP/2 does without (RFC
//! 8441 §5.1).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::SEC_WEBSOCKET_ACCEPT;
use http::{Response, StatusCode};
use sha1::{Digest, Sha1};

use crate::error::Failure;

/// The text behind the key (RFC 6455 §1.3).
const SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A `Sec-WebSocket-Key`.
pub fn random_key() -> String {
    STANDARD.encode(fastrand::u128(..).to_be_bytes())
}

/// The `Sec-WebSocket-Accept` for `key`.
pub fn accept(key: &[u8]) -> String {
    STANDARD.encode(
        Sha1::new()
            .chain_update(key)
            .chain_update(SUFFIX)
            .finalize(),
    )
}

/// The `Sec-WebSocket-Accept` of an upstream that has read our key. An extension of the request, so
/// that the request's own account has the failure.
#[derive(Clone, Debug)]
pub struct WebSocketProof(Arc<str>);

impl WebSocketProof {
    /// For a request with this `Sec-WebSocket-Key`.
    pub fn of_key(key: &str) -> Self {
        Self(accept(key.as_bytes()).into())
    }

    /// Checks what the request was answered with.
    ///
    /// # Errors
    /// An upstream that did not switch must not look as if it had.
    pub fn check<B>(&self, response: &Response<B>) -> Result<(), Failure> {
        let proves = || {
            response
                .headers()
                .get(SEC_WEBSOCKET_ACCEPT)
                .is_some_and(|value| *value == *self.0)
        };
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS if proves() => Ok(()),
            StatusCode::SWITCHING_PROTOCOLS => Err(Failure::UpstreamInvalid),
            status if status.is_success() => Err(Failure::UpstreamInvalid),
            _ => Ok(()),
        }
    }
}
