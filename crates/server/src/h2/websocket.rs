//! WebSockets over HTTP/2: the extended CONNECT of RFC 8441, translated to the upgrade of RFC 6455
//! that handlers and upstreams know.
//!
//! Guarantees that a client gets its 200 only if the upstream proved that it switched. Routes and
//! limits see such a request as an upgrade of HTTP/1.1.

use bytes::Bytes;
use h2::ext::Protocol;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::{
    CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderValue, Method, Response, StatusCode};

use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;
use tollgate_wire::http::h1::upgrade::{self, UpgradeSender, Upgraded};
use tollgate_wire::http::h2::StreamTunnel;
use tollgate_wire::http::h2::websocket_proof::{self, WebSocketProof};

/// A client's request for a WebSocket, while it is being answered.
pub struct Request {
    stream: RecvStream,
    upgrade: UpgradeSender,
    proof: WebSocketProof,
}

/// Whether the request is an extended CONNECT, to whatever protocol.
pub fn is_extended_connect<B>(request: &http::Request<B>) -> bool {
    *request.method() == Method::CONNECT && request.extensions().get::<Protocol>().is_some()
}

/// Makes an upgrade of the extended CONNECT.
///
/// # Errors
/// The refusal of another protocol than WebSocket.
pub fn translate(
    request: http::Request<RecvStream>,
) -> Result<(http::Request<Body>, Request), Failure> {
    let (mut head, stream) = request.into_parts();
    let protocol = head.extensions.remove::<Protocol>();
    if !protocol.is_some_and(|protocol| protocol.as_str().eq_ignore_ascii_case("websocket")) {
        return Err(Failure::NotImplemented(
            "the only protocol for an extended CONNECT is websocket",
        ));
    }
    let key = websocket_proof::random_key();
    let proof = WebSocketProof::for_key(&key);
    let (upgrade, on_upgrade) = upgrade::channel();
    head.extensions.insert(on_upgrade);
    head.extensions.insert(proof.clone());
    head.method = Method::GET;
    // The stream is the tunnel: the request itself has no content.
    for name in [CONTENT_LENGTH, TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    head.headers
        .insert(CONNECTION, HeaderValue::from_static("upgrade"));
    head.headers
        .insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(key) = HeaderValue::from_str(&key) {
        head.headers.insert(SEC_WEBSOCKET_KEY, key);
    }
    Ok((
        http::Request::from_parts(head, Body::empty()),
        Request {
            stream,
            upgrade,
            proof,
        },
    ))
}

impl Request {
    /// Checks the response of a handler that has not checked it.
    ///
    /// # Errors
    /// The upstream did not switch.
    pub fn check(&self, response: &Response<Body>) -> Result<(), Failure> {
        self.proof.check(response)
    }

    /// Opens the tunnel, with the fields of the 101 except those for one connection.
    pub fn open(self, sender: &mut SendResponse<Bytes>, response: Response<Body>) {
        let (mut head, _) = response.into_parts();
        head.status = StatusCode::OK;
        for name in [CONNECTION, UPGRADE, SEC_WEBSOCKET_ACCEPT, CONTENT_LENGTH] {
            head.headers.remove(name);
        }
        match sender.send_response(Response::from_parts(head, ()), false) {
            Ok(send) => {
                let tunnel = StreamTunnel::new(send, self.stream);
                self.upgrade.send(Upgraded::new(tunnel, Bytes::new()));
            }
            Err(error) => {
                tracing::debug!(%error, "a tunnel could not be opened");
                sender.send_reset(Reason::INTERNAL_ERROR);
            }
        }
    }
}
