//! Asks an issuer for its keys and else: one request on one connection, on the control plane.
//!
//! Guarantees that the answer is bounded. Redirects are not followed: they could lead anywhere.

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::key_set::{KeySetError, MAX_SET};
use super::spec::KeySetUrl;
use tollgate_wire::transport::tls::client::HttpOffer;
use tollgate_wire::transport::{ClearStream, Stream};

/// Fetches the text of the set.
///
/// # Errors
/// Why it could not be fetched.
pub async fn fetch(url: &KeySetUrl) -> Result<Bytes, String> {
    let request = Request::get(&url.target)
        .header(ACCEPT, "application/json")
        .body(Full::default());
    let (status, text) = ask(url, request.map_err(|_| "the URL cannot be asked for")?).await?;
    if status == StatusCode::OK {
        Ok(text)
    } else {
        Err(format!("the answer is {} and not 200", status.as_u16()))
    }
}

/// Sends a request for the target of `url`, and returns the whole answer.
///
/// # Errors
/// Why there is none.
pub async fn ask(
    url: &KeySetUrl,
    mut request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), String> {
    let stream = connect(url).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken_off)?;
    let headers = request.headers_mut();
    headers.insert(
        HOST,
        HeaderValue::from_str(&url.authority).map_err(|_| "the URL cannot be asked for")?,
    );
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert(USER_AGENT, HeaderValue::from_static("tollgate"));
    let exchange = async { text(sender.send_request(request).await.map_err(broken_off)?).await };
    tokio::pin!(connection, exchange);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        // The connection ends with the answer's last byte, which may not have been read yet.
        _ = &mut connection => exchange.await,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes it so")]
fn broken_off(error: hyper::Error) -> String {
    format!("the connection broke off: {error}")
}

async fn connect(url: &KeySetUrl) -> Result<Stream, String> {
    let socket = TcpStream::connect((url.host.as_str(), url.port)).await;
    let socket = socket.map_err(|error| format!("cannot connect: {error}"))?;
    match &url.tls {
        None => Ok(Stream::from(socket)),
        Some((tls, name)) => {
            let encrypted = tls
                .connect(ClearStream::Tcp(socket), name, HttpOffer::Http1)
                .await;
            encrypted
                .map(Stream::from)
                .map_err(|error| format!("no TLS connection that can be trusted: {error}"))
        }
    }
}

async fn text(response: Response<Incoming>) -> Result<(StatusCode, Bytes), String> {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_SET).collect().await;
    let too_large = KeySetError::TooLarge;
    let body = body.map_err(|error| format!("the answer broke off, or {too_large}: {error}"))?;
    Ok((status, body.to_bytes()))
}
