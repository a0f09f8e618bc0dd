//! The proof that a server speaks WebSocket: HTTP/1.1 requires it, HTTP/2 does without (RFC 8441
//! §5.1).

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
/// that a failure is recorded with the request.
#[derive(Clone, Debug)]
pub struct WebSocketProof(Arc<str>);

impl WebSocketProof {
    /// The proof for a request with this `Sec-WebSocket-Key`.
    pub fn for_key(key: &str) -> Self {
        Self(accept(key.as_bytes()).into())
    }

    /// Checks the response to that request.
    ///
    /// # Errors
    /// `UpstreamInvalid`, if the response looks as if the upstream had switched, and it has not.
    pub fn check<B>(&self, response: &Response<B>) -> Result<(), Failure> {
        let status = response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS {
            match response.headers().get(SEC_WEBSOCKET_ACCEPT) {
                Some(value) if *value == *self.0 => Ok(()),
                Some(_) | None => Err(Failure::UpstreamInvalid),
            }
        } else if status.is_success() {
            Err(Failure::UpstreamInvalid)
        } else {
            Ok(())
        }
    }
}
