//! A request in the form in which it goes to an upstream, but for what depends on the endpoint.
//!
//! Guarantees that every upstream gets HTTP/1.1 it can read one way only. Knows no connections.

use bytes::BytesMut;
use http::header::{CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Version};
use http_body::Body as _;

use super::additions::{self, Additions, Hop};
use super::forwarded::Origin;
use super::headers::{self, Found};
use super::target;
use super::upgrade::Wish;
use super::upload::Upload;
use crate::body::Body;
use crate::error::Failure;
use crate::header_map_pool;
use crate::http::h1::encode;
use crate::route::{Forward, HostPolicy};

/// A request ready to be sent.
pub struct Outbound<'a> {
    head: Parts,
    additions: Additions<'a>,
    /// Its Host is the endpoint's.
    host_of_endpoint: bool,
    /// Taken while it is on its way.
    pub upload: Option<Upload>,
    /// It wants to leave HTTP.
    pub wish: Option<Wish>,
}

impl<'a> Outbound<'a> {
    pub fn prepare(
        mut request: Request<Body>,
        rule: &Forward,
        origin: &'a Origin,
        request_id: &'a HeaderValue,
    ) -> Result<Self, Failure> {
        if request.method() == Method::CONNECT {
            return Err(Failure::NotImplemented("this gateway opens no tunnels"));
        }
        let received = request.version();
        let (host, in_field) = host_asked_for(&request)?;
        let mut found = headers::strip_request(request.headers_mut(), origin.peer_trusted);
        let wish = Wish::of(&mut request, found.upgrade.take().filter(|_| received == Version::HTTP_11));
        target::rewrite(request.uri_mut(), &rule.rewrite)?;

        let fields = request.headers_mut();
        if found.cookie {
            additions::join_cookies(fields);
        }
        let hop = match &wish {
            Some(wish) => Hop::Upgrade(wish.protocol().clone()),
            None if found.te_trailers => Hop::TeTrailers,
            None => Hop::Nothing,
        };
        let host_of_endpoint = set_host(fields, &rule.host, host.as_ref(), in_field);
        let (head, upload) = with_upload(request, received, &found);
        let additions = Additions { origin, host, request_id, received, hop };
        Ok(Self { head, additions, host_of_endpoint, upload: Some(upload), wish })
    }

    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// Writes the header section for the endpoint whose Host is `host` (RFC 9112 §3).
    pub fn write(&self, out: &mut BytesMut, host: Option<&HeaderValue>) {
        let target = self.head.uri.path_and_query().map_or("/", |target| target.as_str());
        for part in [self.head.method.as_str(), " ", target, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        if let Some(host) = host.filter(|_| self.host_of_endpoint) {
            encode::field(out, HOST.as_str(), host.as_bytes());
        }
        self.additions.write(out, &self.head.headers);
        out.extend_from_slice(b"\r\n");
    }
}

impl Drop for Outbound<'_> {
    fn drop(&mut self) {
        header_map_pool::give_back(std::mem::take(&mut self.head.headers));
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
fn set_host(fields: &mut HeaderMap, policy: &HostPolicy, asked: Option<&HeaderValue>, in_field: bool) -> bool {
    match (policy, asked) {
        (HostPolicy::Fixed(host), _) => drop(fields.insert(HOST, host.clone())),
        (HostPolicy::Preserve, Some(_)) if in_field => {}
        (HostPolicy::Preserve, Some(host)) => drop(fields.insert(HOST, host.clone())),
        // HTTP/1.0 may go without; HTTP/1.1 may not.
        (HostPolicy::Preserve, None) | (HostPolicy::Endpoint, _) => {
            fields.remove(HOST);
            return true;
        }
    }
    false
}

/// Gives the body its framing, and holds it back where the client waits to be asked for it.
fn with_upload(request: Request<Body>, received: Version, found: &Found) -> (Parts, Upload) {
    let (mut parts, body) = request.into_parts();
    if found.content_length || !body.is_end_stream() {
        frame(&mut parts.headers, &body);
    }
    let expects = found.expect && headers::expects_continue(&parts.headers);
    let held = expects && received != Version::HTTP_10 && !body.is_end_stream();
    if expects && !held {
        parts.headers.remove(EXPECT);
    }
    let upload = Upload::new(body, &parts.headers, held);
    (parts, upload)
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

/// Whether `fields` say `length`, and say it once.
fn is_length(fields: &HeaderMap, length: u64) -> bool {
    let mut values = fields.get_all(CONTENT_LENGTH).iter();
    let only = values.next().filter(|_| values.next().is_none());
    only.is_some_and(|value| value.as_bytes() == itoa::Buffer::new().format(length).as_bytes())
}
