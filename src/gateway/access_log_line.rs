//! A line of the access log: the fields of a request, taken at its head, and those of its answer, taken at its end.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use http::header::USER_AGENT;
use http::{HeaderValue, Request, Version};
use serde::Serialize;
use tollgate_limiter::limit::key::{CallerIdentity, host};

use crate::body::Body;
use crate::clock;
use crate::observe::access_log::AccessLog;

/// The fields of a request, kept until its answer has ended.
pub struct LoggedRequest {
    log: AccessLog,
    client: String,
    host: String,
    path: String,
    protocol: &'static str,
    request_id: HeaderValue,
    user_agent: Option<HeaderValue>,
    /// The client, where a route asks who it is.
    pub identity: Option<Arc<CallerIdentity>>,
}

/// The fields of the answer to a request.
pub struct LoggedAnswer<'a> {
    pub method: &'a str,
    pub route: &'a str,
    pub status: u16,
    /// Bytes of content.
    pub bytes: u64,
    /// Of a tunnel: bytes from the client.
    pub received: Option<u64>,
    /// Whether the whole answer was sent.
    pub complete: bool,
    pub seconds: f64,
    /// The name of the failure that the gateway answered with.
    pub problem: Option<&'static str>,
    /// Of a call of gRPC.
    pub grpc_status: Option<u8>,
}

#[derive(Serialize)]
struct AccessLogLine<'a> {
    /// Seconds since 1970-01-01T00:00:00Z at the end of the answer, to the microsecond.
    time: f64,
    client: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authenticator: Option<&'a str>,
    method: &'a str,
    host: &'a str,
    /// Without the query: queries carry secrets.
    path: &'a str,
    protocol: &'a str,
    route: &'a str,
    status: u16,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    received_bytes: Option<u64>,
    complete: bool,
    /// To the microsecond.
    duration_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grpc_status: Option<u8>,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<&'a str>,
}

impl LoggedRequest {
    /// The fields of `request`; of `None`, a request that could not be read, there are few.
    pub fn new(log: AccessLog, client: String, request_id: HeaderValue, request: Option<&Request<Body>>) -> Self {
        Self {
            log,
            client,
            host: request.map_or_else(String::new, |request| host::of(request.uri(), request.headers()).into_owned()),
            path: request.map_or("", |request| request.uri().path()).to_owned(),
            protocol: request.map_or("", |request| protocol(request.version())),
            request_id,
            user_agent: request.and_then(|request| request.headers().get(USER_AGENT).cloned()),
            identity: None,
        }
    }

    /// Hands the line over to the log.
    pub fn record(&self, answer: &LoggedAnswer<'_>) {
        self.log.record(&AccessLogLine {
            time: clock::wall().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_micros() as f64 / 1e6),
            client: &self.client,
            identity: self.identity.as_deref().map(CallerIdentity::id),
            authenticator: self.identity.as_deref().map(CallerIdentity::authenticator),
            method: answer.method,
            host: &self.host,
            path: &self.path,
            protocol: self.protocol,
            route: answer.route,
            status: answer.status,
            bytes: answer.bytes,
            received_bytes: answer.received,
            complete: answer.complete,
            duration_ms: (answer.seconds * 1e6).round() / 1e3,
            problem: answer.problem,
            grpc_status: answer.grpc_status,
            request_id: self.request_id.to_str().unwrap_or_default(),
            user_agent: self.user_agent.as_ref().and_then(|value| value.to_str().ok()),
        });
    }
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}
