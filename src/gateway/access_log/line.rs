//! A request as its line in the access log has it: taken at its head, completed while it is served.
//!
//! Guarantees that nothing is formatted before the answer has ended: until then, parts of the
//! request are shared.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use http::header::{HOST, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;
use tollgate_limiter::limit::key::{CallerIdentity, ExtractedKey, Facts, host};
use tollgate_limiter::request::catalog::{Catalog, CatalogEntry};

use crate::body::{Body, BodyObserver};
use crate::clock::Instant;
use crate::proxy::report::ForwardReport;

/// A request, kept until its answer has ended.
pub struct LoggedRequest {
    pub client: IpAddr,
    pub request_id: HeaderValue,
    /// `None`: it could not be read.
    pub head: Option<LoggedHead>,
    /// Bytes of its content that were read. `None`: it has none.
    received: Option<Arc<AtomicU64>>,
    /// The client, where a route asks who it is.
    pub identity: Option<Arc<CallerIdentity>>,
    pub denied: Option<DeniedBucket>,
    /// Its way through an upstream.
    pub report: ForwardReport,
}

/// The header section of a request, before anything has changed it.
pub struct LoggedHead {
    pub method: Method,
    /// The target, as it was sent.
    uri: Uri,
    pub version: Version,
    host: Option<HeaderValue>,
    pub user_agent: Option<HeaderValue>,
    pub referer: Option<HeaderValue>,
}

/// The bucket that a request found empty.
pub struct DeniedBucket {
    pub limit: Arc<str>,
    /// The bucket without its key. `None`: the request lacks the key.
    pub bucket: Option<String>,
}

/// The answer to a request.
pub struct LoggedAnswer<'a> {
    pub route: &'a str,
    pub status: u16,
    /// Bytes of content.
    pub bytes: u64,
    /// Of a tunnel: bytes from the client.
    pub received: Option<u64>,
    /// Whether the whole answer was sent.
    pub complete: bool,
    pub started: Instant,
    pub ended: Instant,
    /// The name of the failure that the gateway answered with.
    pub problem: Option<&'static str>,
    /// Of a call of gRPC.
    pub grpc_status: Option<u8>,
}

/// A line, whatever its format.
pub struct LoggedLine<'a> {
    pub time: SystemTime,
    pub request: &'a LoggedRequest,
    pub answer: &'a LoggedAnswer<'a>,
}

/// Counts the bytes of a request's content.
struct ContentCounter(Arc<AtomicU64>);

impl LoggedRequest {
    /// Takes note of `request`, which was sent with the target `uri`.
    pub fn new(
        client: IpAddr,
        request_id: &HeaderValue,
        uri: Uri,
        request: &mut Request<Body>,
    ) -> Self {
        let received = (!request.body().is_end_stream()).then(|| {
            let received = Arc::<AtomicU64>::default();
            request
                .body_mut()
                .observe(Box::new(ContentCounter(received.clone())));
            received
        });
        let field = |name| request.headers().get(name).cloned();
        let (host, user_agent, referer) = (field(HOST), field(USER_AGENT), field(REFERER));
        let (method, version) = (request.method().clone(), request.version());
        let head = LoggedHead {
            method,
            uri,
            version,
            host,
            user_agent,
            referer,
        };
        Self {
            head: Some(head),
            received,
            ..Self::unread(client, request_id)
        }
    }

    /// A request that could not be read.
    pub fn unread(client: IpAddr, request_id: &HeaderValue) -> Self {
        Self {
            client,
            request_id: request_id.clone(),
            head: None,
            received: None,
            identity: None,
            denied: None,
            report: ForwardReport::default(),
        }
    }

    /// The limit called `name`, one of `limits`, has denied the request, which has these `facts`.
    pub fn deny(&mut self, limits: &Catalog, name: &Arc<str>, facts: &Facts<'_>) {
        let limit = limits.find(name).map(CatalogEntry::limit);
        let bucket = limit.and_then(|limit| match limit.key.extract(&limit.name, facts) {
            ExtractedKey::Key(key) => Some(key.redacted(&limit.name)),
            ExtractedKey::Skip | ExtractedKey::Refuse => None,
        });
        self.denied = Some(DeniedBucket {
            limit: name.clone(),
            bucket,
        });
    }

    /// Without the query: queries carry secrets.
    pub fn path(&self) -> &str {
        self.head.as_ref().map_or("", |head| head.uri.path())
    }

    pub fn host(&self) -> Cow<'_, str> {
        let Some(head) = &self.head else {
            return Cow::Borrowed("");
        };
        let authority = head.uri.authority().map(http::uri::Authority::as_str);
        host::normal(
            authority
                .or_else(|| head.host.as_ref()?.to_str().ok())
                .unwrap_or_default(),
        )
    }

    pub fn version(&self) -> Option<Version> {
        self.head.as_ref().map(|head| head.version)
    }

    pub fn user_agent(&self) -> Option<&[u8]> {
        self.head
            .as_ref()?
            .user_agent
            .as_ref()
            .map(HeaderValue::as_bytes)
    }

    /// Without the query: the page may be one of this host. `None` also where it names a user, with
    /// a password perhaps, which clients must not send (RFC 9110 §10.1.3).
    pub fn referer(&self) -> Option<&[u8]> {
        let value = self.head.as_ref()?.referer.as_ref()?.as_bytes();
        let end = value
            .iter()
            .position(|byte| matches!(byte, b'?' | b'#'))
            .unwrap_or(value.len());
        let page = &value[..end];
        let authority = memchr::memmem::find(page, b"//").map_or(page, |at| &page[at + 2..]);
        let mut until_path = authority
            .iter()
            .take_while(|byte| !matches!(byte, b'/' | b'\\'));
        (!until_path.any(|byte| *byte == b'@')).then_some(page)
    }
}

impl LoggedAnswer<'_> {
    /// Whether there is nothing to tell of it: no error, no denial, no answer that broke off.
    pub fn has_succeeded(&self) -> bool {
        self.status < 400
            && self.complete
            && self.problem.is_none()
            && self.grpc_status.is_none_or(|status| status == 0)
    }
}

impl LoggedLine<'_> {
    /// Bytes from the client.
    pub fn received(&self) -> u64 {
        let of_content = || {
            self.request
                .received
                .as_ref()
                .map_or(0, |received| received.load(Relaxed))
        };
        self.answer.received.unwrap_or_else(of_content)
    }
}

impl BodyObserver for ContentCounter {
    fn on_data(&mut self, data: &[u8]) {
        self.0.fetch_add(data.len() as u64, Relaxed);
    }

    fn on_trailers(&mut self, _: &HeaderMap) {}

    fn on_end(self: Box<Self>, _: u64, _: bool, _: Option<Instant>) {}
}
