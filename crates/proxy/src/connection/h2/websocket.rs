//! WebSockets to upstreams of HTTP/2: the upgrade of RFC 6455 as an extended CONNECT (RFC 8441).
//!
//! Guarantees that clients see the upgrade of HTTP/1.1 that they asked for: a 2xx is a 101 with its
//! proof.

use bytes::Bytes;
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode};

use tollgate_wire::http::h2::{StreamTunnel, websocket_proof};

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// A request for a WebSocket that was sent to an upstream. Dropping it before the answer cancels
/// it.
pub struct WebSocketRequest {
    send: SendStream<Bytes>,
    /// The proof that the client waits for.
    accept: HeaderValue,
}

/// Makes an extended CONNECT of the upgrade in `request`, and returns the proof that the client
/// waits for. `None`: the request has no key.
pub fn translate(request: &mut Request<()>) -> Option<HeaderValue> {
    let key = request.headers_mut().remove(SEC_WEBSOCKET_KEY)?;
    *request.method_mut() = Method::CONNECT;
    request
        .extensions_mut()
        .insert(Protocol::from_static("websocket"));
    HeaderValue::try_from(websocket_proof::accept(key.as_bytes())).ok()
}

impl WebSocketRequest {
    pub fn new(send: SendStream<Bytes>, accept: HeaderValue) -> Self {
        Self { send, accept }
    }

    /// Ends the request that the upstream has refused. A stream that has ended meanwhile needs no
    /// end.
    pub fn end_refused(mut self) {
        let _ = self.send.send_data(Bytes::new(), true);
    }

    /// The tunnel, and the answer that the client gets.
    pub fn open(self, response: Response<RecvStream>) -> (StreamTunnel, Response<()>) {
        let (mut parts, received) = response.into_parts();
        parts.status = StatusCode::SWITCHING_PROTOCOLS;
        parts
            .headers
            .insert(CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(UPGRADE, WEBSOCKET);
        parts.headers.insert(SEC_WEBSOCKET_ACCEPT, self.accept);
        (
            StreamTunnel::new(self.send, received),
            Response::from_parts(parts, ()),
        )
    }
}
