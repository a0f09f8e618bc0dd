//! A request in the form in which it is sent to an upstream. The Host of the endpoint alone is
//! added later.
//!
//! Guarantees that every upstream gets HTTP/1.1 that can be read in one way only.

use bytes::BytesMut;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;

use super::upgrade::UpgradeRequest;
use super::upload::Upload;
use crate::message::additions::{self, Additions, HopFields};
use crate::message::headers::{self, FieldSummary};
use crate::message::target;
use crate::replay::ReplayBody;
use crate::request_source::{InterimRelay, RequestSource};
use tollgate_spec::route::{Forward, HostPolicy};
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;
use tollgate_wire::header_map_pool;
use tollgate_wire::http::h1::encode;
use tollgate_wire::http::h2::HeadBound;

/// The expectation of a client that waits for a 100 before it sends its body.
const CONTINUE: &str = "100-continue";

/// A request that is ready to be sent.
pub struct UpstreamRequest<'a> {
    /// The head is borrowed: moving a request costs. The body is in `upload`.
    head: &'a mut Request<Body>,
    additions: Additions<'a>,
    /// The request gets the endpoint's Host.
    host_of_endpoint: bool,
    /// `None` while an exchange has it.
    pub upload: Option<Upload>,
    /// The upstream is asked for a 100 before it gets the body.
    expects_continue: bool,
    /// Set if the client asks to leave HTTP.
    pub upgrade: Option<UpgradeRequest>,
    pub interim: InterimRelay<'a>,
}

impl<'a> UpstreamRequest<'a> {
    /// Strips, rewrites and frames `request`.
    ///
    /// # Errors When the request cannot be forwarded: CONNECT, two Hosts, a rewritten path that is
    /// not a path.
    pub fn prepare(
        request: &'a mut Request<Body>,
        rule: &Forward,
        source: RequestSource<'a>,
    ) -> Result<Self, Failure> {
        let RequestSource {
            origin,
            request_id,
            interim,
            has_own_fields,
            ..
        } = source;
        if request.method() == Method::CONNECT {
            return Err(Failure::NotImplemented("this gateway opens no tunnels"));
        }
        let received = request.version();
        let (host, in_field) = requested_host(request)?;
        let mut summary =
            headers::strip_request(request.headers_mut(), origin.peer_trusted, has_own_fields);
        let mut upgrade = None;
        if let Some(protocol) = summary.upgrade.take()
            && received != Version::HTTP_10
        {
            upgrade = UpgradeRequest::take(request, protocol);
        }
        target::rewrite(request.uri_mut(), &rule.rewrite)?;

        let fields = request.headers_mut();
        if summary.cookie {
            additions::join_cookies(fields);
        }
        let hop = match &upgrade {
            Some(upgrade) => HopFields::Upgrade(upgrade.protocol().clone()),
            None if summary.te_trailers => HopFields::TeTrailers,
            None => HopFields::Nothing,
        };
        let host_of_endpoint = set_host(fields, &rule.host, host.as_ref(), in_field);
        let upload = take_upload(request, received, &summary);
        let additions = Additions {
            origin,
            host,
            request_id,
            received,
            hop,
        };
        let interim = InterimRelay::to_client(interim, received);
        Ok(Self {
            head: request,
            additions,
            host_of_endpoint,
            upload: Some(upload),
            expects_continue: false,
            upgrade,
            interim,
        })
    }

    pub fn method(&self) -> &Method {
        self.head.method()
    }

    /// Checks that the upstream takes so large a head.
    ///
    /// # Errors
    /// When the head is too large.
    #[cold]
    pub fn check_size(&self, bound: &HeadBound) -> Result<(), Failure> {
        if bound.admits(self.head.uri(), self.head.headers()) {
            Ok(())
        } else {
            Err(Failure::HeadersTooLarge)
        }
    }

    /// The path and query.
    fn target(&self) -> &str {
        match self.head.uri().path_and_query() {
            Some(target) => target.as_str(),
            None => "/",
        }
    }

    /// Whether a body is still to be sent.
    pub fn has_body(&self) -> bool {
        self.upload.as_ref().is_some_and(Upload::has_body)
    }

    /// Hands the upload over to an exchange, whose head is written next. The upstream is asked for
    /// a 100 only if nothing of the body is here: it could take a body that comes at once after the
    /// question for another request.
    pub fn hand_over_upload(&mut self) -> Option<Upload> {
        let mut upload = self.upload.take()?;
        self.expects_continue = upload.must_await_continue();
        Some(upload)
    }

    /// Whether the upstream is asked for a 100 before it gets the body.
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// Keeps `most` bytes of the body as they are sent, if there is memory. `None`: there is no
    /// body.
    pub fn keep_body(&mut self, most: usize) -> Option<ReplayBody> {
        let upload = self.upload.as_mut().filter(|upload| upload.has_body())?;
        let kept =
            ReplayBody::for_client(upload.take_body(), most, self.additions.origin.client_ip);
        upload.restore(kept.read()?);
        Some(kept)
    }

    /// Whether the request can be sent anew from its beginning, with the body that was kept.
    pub fn is_renewable(&self, kept: Option<&ReplayBody>) -> bool {
        self.upload.is_some() || kept.is_none_or(ReplayBody::is_whole)
    }

    /// Prepares the request to be sent anew from its beginning, with the body that was kept.
    /// Returns whether that is possible.
    pub fn renew(&mut self, kept: Option<&ReplayBody>) -> bool {
        // Nothing of the body was sent.
        if self.upload.is_some() {
            return true;
        }
        let body = match kept {
            Some(kept) => kept.read(),
            None => Some(Body::empty()),
        };
        let Some(body) = body else {
            return false;
        };
        // An upstream has asked for the body already: no wait for a 100.
        self.upload = Some(Upload::new(body, self.head.headers(), false));
        true
    }

    /// Whether the request asks for a WebSocket, and for nothing else (RFC 6455 §4.1).
    pub fn asks_for_websocket(&self) -> bool {
        let Some(upgrade) = &self.upgrade else {
            return false;
        };
        let protocol = upgrade.protocol().as_bytes();
        protocol.eq_ignore_ascii_case(b"websocket") && *self.method() == Method::GET
    }

    /// Writes the header section for the endpoint whose Host is `host` (RFC 9112 §3). `is_last`: no
    /// request follows on the connection, and `Connection: close` says so (§9.3) unless the request
    /// may change the protocol.
    pub fn write(&self, out: &mut BytesMut, host: Option<&HeaderValue>, is_last: bool) {
        let target = self.target();
        for part in [self.head.method().as_str(), " ", target, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        if self.host_of_endpoint
            && let Some(host) = host
        {
            encode::field(out, HOST.as_str(), host.as_bytes());
        }
        self.additions.write(out, self.head.headers());
        if self.expects_continue {
            encode::field(out, EXPECT.as_str(), CONTINUE.as_bytes());
        }
        if is_last && self.upgrade.is_none() {
            encode::field(out, CONNECTION.as_str(), b"close");
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The request in HTTP/2.
impl UpstreamRequest<'_> {
    /// The header section for an endpoint with this Host, over TLS or not (RFC 9113 §8.3.1).
    ///
    /// # Errors
    /// When the client's Host cannot be an authority.
    pub fn to_http2(
        &self,
        endpoint_host: &HeaderValue,
        secure: bool,
    ) -> Result<Request<()>, http::Error> {
        let mut request = Request::new(());
        *request.headers_mut() = header_map_pool::take();
        self.additions
            .append(request.headers_mut(), self.head.headers());
        let fields = request.headers_mut();
        if self.expects_continue {
            fields.insert(EXPECT, HeaderValue::from_static(CONTINUE));
        }
        fields.remove(TRANSFER_ENCODING);
        let requested = fields
            .remove(HOST)
            .filter(|host| !self.host_of_endpoint && !host.is_empty());
        let target = self.target();
        *request.uri_mut() = Uri::builder()
            .scheme(if secure { Scheme::HTTPS } else { Scheme::HTTP })
            .authority(requested.as_ref().unwrap_or(endpoint_host).as_bytes())
            .path_and_query(target)
            .build()?;
        *request.method_mut() = self.head.method().clone();
        *request.version_mut() = Version::HTTP_2;
        Ok(request)
    }
}

/// The requested host, and whether it is the value of the `Host` field: an authority in the target
/// takes precedence (RFC 9112 §3.2.2).
fn requested_host(request: &Request<Body>) -> Result<(Option<HeaderValue>, bool), Failure> {
    if let Some(authority) = request.uri().authority() {
        let text = authority.as_str();
        let host = text.rsplit_once('@').map_or(text, |(_, host)| host);
        let host = HeaderValue::from_str(host)
            .map_err(|_| Failure::BadRequest("the authority is malformed"))?;
        return Ok((Some(host), false));
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (host, None) => Ok((host.cloned(), true)),
        _ => Err(Failure::BadRequest("more than one Host")),
    }
}

/// Sets the `Host` field as `policy` says. Returns whether the endpoint's Host is needed instead.
fn set_host(
    fields: &mut HeaderMap,
    policy: &HostPolicy,
    requested: Option<&HeaderValue>,
    in_field: bool,
) -> bool {
    let host = match (policy, requested) {
        (HostPolicy::Fixed(host), _) => host,
        (HostPolicy::Preserve, Some(_)) if in_field => return false,
        (HostPolicy::Preserve, Some(host)) => host,
        // A client of HTTP/1.0 may send none; an HTTP/1.1 request needs one.
        (HostPolicy::Preserve, None) | (HostPolicy::Endpoint, _) => {
            fields.remove(HOST);
            return true;
        }
    };
    fields.insert(HOST, host.clone());
    false
}

/// Takes the body and frames it. The upload waits for a 100 where the client does. The field for
/// that is written anew each time that the request is sent, as far as it still waits.
fn take_upload(request: &mut Request<Body>, received: Version, summary: &FieldSummary) -> Upload {
    let body = std::mem::replace(request.body_mut(), Body::empty());
    let fields = request.headers_mut();
    if summary.content_length || !body.is_end_stream() {
        frame(fields, &body);
    }
    let expects = summary.expect && headers::expects_continue(fields);
    let awaits_continue = expects && received != Version::HTTP_10 && !body.is_end_stream();
    if expects {
        fields.remove(EXPECT);
    }
    Upload::new(body, fields, awaits_continue)
}

/// Writes the framing fields. The body alone decides: with a length that is not its own, one
/// message would run into the next.
fn frame(fields: &mut HeaderMap, body: &Body) {
    if body.is_end_stream() {
        if !is_length(fields, 0) {
            fields.remove(CONTENT_LENGTH);
        }
        return;
    }
    match body.size_hint().exact() {
        Some(length) if is_length(fields, length) => {}
        Some(length) => {
            fields.insert(CONTENT_LENGTH, length.into());
        }
        None => {
            fields.remove(CONTENT_LENGTH);
            fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
    }
}

/// Whether the only Content-Length in `fields` is `length`.
fn is_length(fields: &HeaderMap, length: u64) -> bool {
    let mut values = fields.get_all(CONTENT_LENGTH).iter();
    let only = values.next().filter(|_| values.next().is_none());
    only.is_some_and(|value| value.as_bytes() == itoa::Buffer::new().format(length).as_bytes())
}
