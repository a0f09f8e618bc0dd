//! A probe of an endpoint, over a connection of its own with the TLS and the PROXY header of its
//! upstream.
//!
//! Guarantees an end within the check's timeout, and that no more than a bounded part of an answer
//! is read.

use std::future::pending;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_TYPE, HOST, TE, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, Version};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::time::timeout_at;

use super::bounded_connection::BoundedConnection;
use crate::upstream::endpoints::{ConnectTerms, Endpoint, Http2Use, UpstreamConnectError};
use crate::upstream::spec::health::{HealthCheck, HealthSpec};
use tollgate_limiter::clock;
use tollgate_wire::transport::Stream;
use tollgate_wire::transport::tls::client::HttpOffer;

const AGENT: HeaderValue = HeaderValue::from_static("tollgate-health");

/// The most that is read of an answer of the health service, whose messages have a few bytes.
const MOST_BYTES: usize = 4096;

/// Bytes of content that an endpoint may send over HTTP/2 before it is asked for more: the least
/// that HTTP/2 begins with.
const WINDOW: u32 = 65_535;

/// `grpc.health.v1.HealthCheckRequest`
#[derive(Clone, PartialEq, Message)]
struct ServiceHealthRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`
#[derive(Clone, PartialEq, Message)]
struct ServiceHealthResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// `SERVING` of `grpc.health.v1.HealthCheckResponse.ServingStatus`.
const SERVING: i32 = 1;

/// Why a probe failed.
type ProbeError = Arc<str>;

/// Probes `endpoint`. `None`: the gateway had nothing left for a connection, which says nothing of
/// the endpoint.
pub async fn probe(endpoint: &Endpoint, spec: &HealthSpec) -> Option<Result<(), ProbeError>> {
    let deadline = clock::now() + spec.timeout;
    let offer = if endpoint.http2() == Http2Use::Never {
        HttpOffer::Http1
    } else {
        HttpOffer::Any
    };
    let stream = match endpoint
        .connect(ConnectTerms {
            deadline,
            offer,
            client: None,
        })
        .await
    {
        Ok(stream) => stream,
        Err(UpstreamConnectError::Exhausted(_)) => return None,
        Err(error) => return Some(Err(error.to_string().into())),
    };
    let asked = timeout_at(deadline, ask(endpoint, stream, &spec.check)).await;
    Some(asked.unwrap_or_else(|_| Err("it took too long to answer".into())))
}

async fn ask(endpoint: &Endpoint, stream: Stream, check: &HealthCheck) -> Result<(), ProbeError> {
    match check {
        HealthCheck::Tcp => Ok(()),
        HealthCheck::Http { path, host, status } => {
            let host = host.as_ref().unwrap_or(endpoint.host());
            let request = Request::get(path.as_str())
                .header(HOST, host)
                .header(USER_AGENT, AGENT);
            let request = request
                .body(Full::default())
                .map_err(|error| show(&error))?;
            let is_http2 = endpoint.http2() == Http2Use::Always || stream.is_http2();
            let answer = exchange(endpoint, stream, is_http2, request, async |response| {
                Ok(response.status())
            })
            .await?;
            if status.contains(answer) {
                Ok(())
            } else {
                Err(format!("it answered {answer}").into())
            }
        }
        HealthCheck::Grpc { service } => {
            exchange(
                endpoint,
                stream,
                true,
                call(service, endpoint)?,
                async |response| serves(response).await,
            )
            .await
        }
    }
}

/// Sends `request`, and lets `read` take what it needs of the response.
async fn exchange<T>(
    endpoint: &Endpoint,
    stream: Stream,
    is_http2: bool,
    mut request: Request<Full<Bytes>>,
    read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, ProbeError>,
) -> Result<T, ProbeError> {
    let io = TokioIo::new(BoundedConnection::new(stream));
    if is_http2 {
        address(&mut request, endpoint)?;
        let mut client = http2::Builder::new(TokioExecutor::new());
        client
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        let (mut sender, connection) = client.handshake(io).await.map_err(|error| show(&error))?;
        let answered = async {
            let response = sender
                .send_request(request)
                .await
                .map_err(|error| show(&error))?;
            read(response).await
        };
        return tokio::select! { biased; answer = answered => answer, never = outlive(connection) => never };
    }
    request
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    let (mut sender, connection) = http1::handshake(io).await.map_err(|error| show(&error))?;
    let answered = async {
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| show(&error))?;
        read(response).await
    };
    tokio::select! { biased; answer = answered => answer, never = outlive(connection) => never }
}

/// Drives a connection. The wait for an answer learns of its end.
async fn outlive<T>(connection: impl Future) -> T {
    connection.await;
    pending().await
}

/// Moves the host into the request's target, where HTTP/2 has it.
fn address(request: &mut Request<Full<Bytes>>, endpoint: &Endpoint) -> Result<(), ProbeError> {
    let host = request.headers_mut().remove(HOST);
    let host = host.as_ref().unwrap_or(endpoint.host());
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(if endpoint.is_secure() {
        Scheme::HTTPS
    } else {
        Scheme::HTTP
    });
    parts.authority = Some(Authority::try_from(host.as_bytes()).map_err(|error| show(&error))?);
    *request.uri_mut() = Uri::from_parts(parts).map_err(|error| show(&error))?;
    *request.version_mut() = Version::HTTP_2;
    Ok(())
}

/// A call of the health service (https://github.com/grpc/grpc/blob/master/doc/health-checking.md).
fn call(service: &str, endpoint: &Endpoint) -> Result<Request<Full<Bytes>>, ProbeError> {
    let message = ServiceHealthRequest {
        service: service.to_owned(),
    }
    .encode_to_vec();
    let mut body = BytesMut::with_capacity(5 + message.len());
    body.put_u8(0);
    body.put_u32(u32::try_from(message.len()).map_err(|error| show(&error))?);
    body.extend_from_slice(&message);
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let request = Request::builder()
        .method(Method::POST)
        .uri(Uri::from(path))
        .header(HOST, endpoint.host());
    let request = request.header(USER_AGENT, AGENT).header(TE, "trailers");
    let request = request.header(CONTENT_TYPE, "application/grpc");
    request
        .body(Full::new(body.freeze()))
        .map_err(|error| show(&error))
}

fn grpc_status(fields: &HeaderMap) -> Option<&str> {
    Some(fields.get("grpc-status")?.to_str().unwrap_or("?"))
}

/// Whether the health service says that its service serves.
async fn serves(response: Response<Incoming>) -> Result<(), ProbeError> {
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        return Err(format!("it answered {}", head.status).into());
    }
    let collected = Limited::new(body, MOST_BYTES)
        .collect()
        .await
        .map_err(|error| Arc::from(error.to_string()))?;
    let in_trailers = collected.trailers().and_then(grpc_status);
    match in_trailers.or_else(|| grpc_status(&head.headers)) {
        Some("0") => {}
        Some(status) => {
            return Err(format!("the health service answered with grpc-status {status}").into());
        }
        None => return Err("the health service answered without grpc-status".into()),
    }
    let body = collected.to_bytes();
    let message = body
        .get(5..)
        .filter(|_| body.first() == Some(&0))
        .unwrap_or_default();
    match ServiceHealthResponse::decode(message) {
        Ok(ServiceHealthResponse { status: SERVING }) => Ok(()),
        Ok(other) => Err(format!(
            "the health service says that it does not serve (status {})",
            other.status
        )
        .into()),
        Err(error) => Err(show(&error)),
    }
}

fn show(error: &dyn std::error::Error) -> ProbeError {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
        .into()
}
