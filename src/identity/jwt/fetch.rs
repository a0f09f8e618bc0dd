//! Fetches the keys of an issuer: one request on one connection, on the control plane.
//!
//! Guarantees that the answer is bounded. Redirects are not followed: they could lead anywhere.

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, USER_AGENT};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::key_set::{KeySetError, MAX_SET};
use super::spec::KeySetUrl;
use crate::transport::tls::client::HttpOffer;
use crate::transport::{ClearStream, Stream};

/// Fetches the text of the set.
///
/// # Errors
/// Why it could not be fetched.
pub async fn fetch(url: &KeySetUrl) -> Result<Bytes, String> {
    let stream = connect(url).await?;
    let broken = |error: hyper::Error| format!("the connection broke off: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let request = Request::get(&url.target)
        .header(HOST, &url.authority)
        .header(ACCEPT, "application/json")
        .header(CONNECTION, "close")
        .header(USER_AGENT, "tollgate")
        .body(Empty::<Bytes>::new())
        .map_err(|_| "the URL cannot be asked for")?;
    let exchange = async { text(sender.send_request(request).await.map_err(broken)?).await };
    tokio::pin!(connection, exchange);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        // It ends with the answer's last byte, which nobody may have read yet.
        _ = &mut connection => exchange.await,
    }
}

async fn connect(url: &KeySetUrl) -> Result<Stream, String> {
    let socket = TcpStream::connect((url.host.as_str(), url.port)).await;
    let socket = socket.map_err(|error| format!("cannot connect: {error}"))?;
    match &url.tls {
        None => Ok(Stream::from(socket)),
        Some((tls, name)) => {
            let encrypted = tls.connect(ClearStream::Tcp(socket), name, HttpOffer::Http1).await;
            encrypted.map(Stream::from).map_err(|error| format!("no TLS connection that can be trusted: {error}"))
        }
    }
}

async fn text(response: Response<Incoming>) -> Result<Bytes, String> {
    if response.status() != StatusCode::OK {
        return Err(format!("the answer is {} and not 200", response.status().as_u16()));
    }
    let body = Limited::new(response.into_body(), MAX_SET).collect().await;
    let too_large = KeySetError::TooLarge;
    body.map(|body| body.to_bytes()).map_err(|error| format!("the answer broke off, or {too_large}: {error}"))
}
