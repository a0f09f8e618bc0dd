//! The way of one request to an upstream and of its response back.
//!
//! Guarantees that bodies stream, that either a response or a typed failure comes out, and that every upstream gets
//! HTTP/1.1 it can read one way only. Knows nothing of routes, limits and listeners.

use std::future::Future;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;

use super::body::Upload;
use super::client::{Client, Connection};
use super::forwarded::Origin;
use super::headers::Found;
use super::retry::{MAX_ENDPOINTS, Retry};
use super::upgrade::Wish;
use super::{additions, headers, target};
use crate::body::Body;
use crate::clock;
use crate::error::Failure;
use crate::gateway::route::{Forward, HostPolicy};
use crate::request_id::REQUEST_ID;
use crate::upstream::Upstream;
use crate::upstream::balance::Tried;
use crate::upstream::endpoints::ConnectError;

/// One worker's way to upstreams, with the connections it keeps.
pub struct Proxy {
    client: Client,
}

/// A request ready to be sent, but for what depends on the endpoint.
struct Outbound {
    request: Request<Upload>,
    wish: Option<Wish>,
    /// Its Host is the endpoint's.
    host_of_endpoint: bool,
}

impl Default for Proxy {
    fn default() -> Self {
        Self { client: Client::new() }
    }
}

impl Proxy {
    /// Drops idle connections whose time is over. To be called every few seconds on the worker.
    pub fn sweep(&self) {
        self.client.sweep();
    }

    /// Connections kept without work.
    pub fn idle_connections(&self) -> usize {
        self.client.idle()
    }

    /// Sends `request` to an endpoint of `upstream`. Must run inside the worker's runtime.
    ///
    /// The response's body streams; the connection is free again when it ended. Failures are those of the upstream
    /// (502, 503, 504), or of the request and its body (400, 408, 413, 501).
    pub fn forward<'a>(
        &'a self,
        request: Request<Body>,
        rule: &Forward,
        upstream: &'a Arc<Upstream>,
        origin: &Origin,
        request_id: &'a HeaderValue,
    ) -> impl Future<Output = Result<Response<Body>, Failure>> + Send + 'a {
        let pending = upstream.meters().request();
        // Made before the future and used where it lies within: a request is large.
        let mut outbound = Outbound::prepare(request, rule, upstream, origin, request_id);
        async move {
            let result = match &mut outbound {
                Ok(outbound) => self.exchange(outbound, upstream, request_id).await,
                Err(failure) => Err(failure.clone()),
            };
            pending.finish(&result);
            result
        }
    }

    async fn exchange(
        &self,
        outbound: &mut Outbound,
        upstream: &Upstream,
        request_id: &HeaderValue,
    ) -> Result<Response<Body>, Failure> {
        upstream.budget().deposit();
        let mut retry = Retry::default();
        loop {
            let mut connection = self.reach(upstream, retry.is_spent()).await?;
            let request = outbound.address_to(&connection);
            if connection.is_used() {
                retry.remember(&request);
            }
            match connection.send(request).await {
                Ok(response) => {
                    upstream.meters().responded(clock::now().saturating_duration_since(connection.leased_at()));
                    return relay(response, connection, outbound.wish.take(), request_id);
                }
                Err(failed) => outbound.request = retry.decide(failed, upstream)?,
            }
        }
    }

    /// A connection to the first endpoint that has one to give.
    async fn reach(&self, upstream: &Upstream, fresh: bool) -> Result<Box<Connection>, Failure> {
        let mut tried = Tried::default();
        let mut failure = Failure::NoEndpoint;
        while tried.count() < MAX_ENDPOINTS
            && let Some(endpoint) = upstream.pick(&mut tried)
        {
            match self.client.lease(upstream, endpoint, fresh).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = connect_failure(&error),
            }
        }
        Err(failure)
    }
}

fn connect_failure(error: &ConnectError) -> Failure {
    match error {
        ConnectError::Timeout => Failure::ConnectTimeout,
        ConnectError::Failed(_) => Failure::ConnectFailed,
    }
}

/// What the client gets of a response.
fn relay(
    mut response: Response<Incoming>,
    mut connection: Box<Connection>,
    wish: Option<Wish>,
    request_id: &HeaderValue,
) -> Result<Response<Body>, Failure> {
    let found = headers::strip_response(response.headers_mut());
    let received = response.version();
    additions::append_via(response.headers_mut(), received);
    response.headers_mut().insert(REQUEST_ID, request_id.clone());
    // What the client speaks is the server's business: it steps down where it must.
    *response.version_mut() = Version::HTTP_11;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let wish = wish.ok_or(Failure::UpstreamInvalid)?;
        let granted = found.upgrade.unwrap_or_else(|| wish.protocol().clone());
        additions::keep_upgrade(response.headers_mut(), granted);
        wish.grant(&mut response, connection);
        return Ok(response.map(|_| Body::empty()));
    }
    if found.close {
        connection.mark_last();
    }
    // "5, 5" and twice "5" are read as 5 (RFC 9110 §8.6): not everyone behind us may agree.
    if !response.body().is_end_stream()
        && let Some(length) = response.body().size_hint().exact()
        && !is_length(response.headers(), length)
    {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    Ok(response.map(|incoming| connection.carry(incoming)))
}

impl Outbound {
    /// The request, to be sent over `connection`.
    fn address_to(&mut self, connection: &Connection) -> Request<Upload> {
        if self.host_of_endpoint
            && let Some(host) = connection.host()
        {
            self.request.headers_mut().insert(HOST, host);
        }
        std::mem::replace(&mut self.request, Request::new(Upload::empty()))
    }

    fn prepare(
        mut request: Request<Body>,
        rule: &Forward,
        upstream: &Upstream,
        origin: &Origin,
        request_id: &HeaderValue,
    ) -> Result<Self, Failure> {
        if request.method() == Method::CONNECT {
            return Err(Failure::NotImplemented("this gateway opens no tunnels"));
        }
        let received = request.version();
        let (asked, in_field) = host_asked_for(&request)?;
        let mut found = headers::strip_request(request.headers_mut(), origin.peer_trusted);
        let wish = Wish::of(&mut request, found.upgrade.take().filter(|_| received == Version::HTTP_11));
        target::rewrite(request.uri_mut(), &rule.rewrite)?;

        let fields = request.headers_mut();
        if found.cookie {
            additions::join_cookies(fields);
        }
        additions::add_origin(fields, origin, asked.as_ref(), request_id);
        additions::append_via(fields, received);
        match &wish {
            Some(wish) => additions::keep_upgrade(fields, wish.protocol().clone()),
            None if found.te_trailers => additions::keep_te_trailers(fields),
            None => {}
        }
        let host_of_endpoint = set_host(fields, &rule.host, asked, in_field);
        let request = with_upload(request, received, &found, upstream);
        Ok(Self { request, wish, host_of_endpoint })
    }
}

/// The authority of the target wins over `Host` (RFC 9112 §3.2.2). The answer is also whether it stands in the field.
fn host_asked_for(request: &Request<Body>) -> Result<(Option<HeaderValue>, bool), Failure> {
    if let Some(authority) = request.uri().authority() {
        let text = authority.as_str();
        let host = text.rsplit_once('@').map_or(text, |(_, host)| host);
        let host = HeaderValue::from_str(host).map_err(|_| Failure::BadRequest("the authority is malformed"))?;
        return Ok((Some(host), false));
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (host, None) => Ok((host.cloned(), true)),
        _ => Err(Failure::BadRequest("more than one Host")),
    }
}

/// Whether it remains for the endpoint to say.
fn set_host(fields: &mut HeaderMap, policy: &HostPolicy, asked: Option<HeaderValue>, in_field: bool) -> bool {
    match (policy, asked) {
        (HostPolicy::Fixed(host), _) => drop(fields.insert(HOST, host.clone())),
        (HostPolicy::Preserve, Some(_)) if in_field => {}
        (HostPolicy::Preserve, Some(host)) => drop(fields.insert(HOST, host)),
        // HTTP/1.0 may go without; HTTP/1.1 may not.
        (HostPolicy::Preserve, None) | (HostPolicy::Endpoint, _) => return true,
    }
    false
}

/// Gives the body its framing, and holds it back where the client waits to be asked for it.
fn with_upload(request: Request<Body>, received: Version, found: &Found, upstream: &Upstream) -> Request<Upload> {
    let (mut parts, body) = request.into_parts();
    parts.extensions.clear();
    parts.version = Version::HTTP_11;
    if found.content_length || !body.is_end_stream() {
        frame(&mut parts.headers, &body);
    }
    let expects = found.expect && headers::expects_continue(&parts.headers);
    let held = expects && received != Version::HTTP_10 && !body.is_end_stream();
    if expects && !held {
        parts.headers.remove(EXPECT);
    }
    Request::from_parts(parts, Upload::new(body, upstream.spec().idle_timeout, held))
}

/// The body alone decides how it is framed: a length that is not its own would let one message run into the next.
fn frame(fields: &mut HeaderMap, body: &Body) {
    let length = if body.is_end_stream() { None } else { body.size_hint().exact() };
    match length {
        Some(length) if is_length(fields, length) => {}
        Some(length) => drop(fields.insert(CONTENT_LENGTH, length.into())),
        None if body.is_end_stream() && is_length(fields, 0) => {}
        None => drop(fields.remove(CONTENT_LENGTH)),
    }
    if length.is_none() && !body.is_end_stream() {
        fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

fn is_length(fields: &HeaderMap, length: u64) -> bool {
    let mut values = fields.get_all(CONTENT_LENGTH).iter();
    let only = values.next().filter(|_| values.next().is_none());
    only.is_some_and(|value| value.as_bytes() == itoa::Buffer::new().format(length).as_bytes())
}
