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
use smallvec::SmallVec;
use tollgate_limiter::limit::key::address_text::push_address;
use tollgate_limiter::limit::key::{CallerIdentity, ExtractedKey, Facts, host};
use tollgate_limiter::request::catalog::{Catalog, CatalogEntry};

use tollgate_limiter::clock::Instant;
use tollgate_proxy::report::ForwardReport;
use tollgate_wire::body::{Body, BodyObserver};

/// A request, kept until its answer has ended.
pub struct LoggedRequest {
    pub client: IpAddr,
    pub request_id: HeaderValue,
    /// The header section. `None`: the request could not be read.
    pub head: Option<LoggedHead>,
    /// Bytes of content that were read. `None`: the request has none.
    received: Option<Arc<AtomicU64>>,
    /// The client, where a route asks who it is.
    pub identity: Option<Arc<CallerIdentity>>,
    pub denied: Option<DeniedBucket>,
    /// The request's way through an upstream.
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
    /// Bytes from the client of a tunnel.
    pub received: Option<u64>,
    /// Whether the whole answer was sent.
    pub complete: bool,
    pub started: Instant,
    pub ended: Instant,
    /// The name of the failure that the gateway answered with.
    pub problem: Option<&'static str>,
    /// The status of a call of gRPC.
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
        let received = if request.body().is_end_stream() {
            None
        } else {
            let received = Arc::<AtomicU64>::default();
            let counter = ContentCounter(received.clone());
            request.body_mut().observe(Box::new(counter));
            Some(received)
        };
        let fields = request.headers();
        let head = LoggedHead {
            method: request.method().clone(),
            uri,
            version: request.version(),
            host: fields.get(HOST).cloned(),
            user_agent: fields.get(USER_AGENT).cloned(),
            referer: fields.get(REFERER).cloned(),
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

    /// Notes that the limit called `name`, one of `limits`, has denied the request, which has these
    /// `facts`.
    pub fn deny(&mut self, limits: &Catalog, name: &Arc<str>, facts: &Facts<'_>) {
        let mut bucket = None;
        if let Some(limit) = limits.find(name).map(CatalogEntry::limit)
            && let ExtractedKey::Key(key) = limit.key.extract(&limit.name, facts)
        {
            bucket = Some(key.redacted(&limit.name));
        }
        self.denied = Some(DeniedBucket {
            limit: name.clone(),
            bucket,
        });
    }

    pub fn client_text(&self) -> SmallVec<[u8; 48]> {
        let mut client = SmallVec::new();
        push_address(&mut client, self.client);
        client
    }

    /// The path without the query: queries carry secrets.
    pub fn path(&self) -> &str {
        self.head.as_ref().map_or("", |head| head.uri.path())
    }

    pub fn host(&self) -> Cow<'_, str> {
        let Some(head) = &self.head else {
            return Cow::Borrowed("");
        };
        let host = match (head.uri.authority(), &head.host) {
            (Some(authority), _) => authority.as_str(),
            (None, Some(host)) => host.to_str().unwrap_or_default(),
            (None, None) => "",
        };
        host::normal(host)
    }

    pub fn version(&self) -> Option<Version> {
        self.head.as_ref().map(|head| head.version)
    }

    pub fn user_agent(&self) -> Option<&[u8]> {
        let user_agent = self.head.as_ref()?.user_agent.as_ref()?;
        Some(user_agent.as_bytes())
    }

    /// The referring page without its query: the page may be one of this host. `None` also where it
    /// names a user, with a password perhaps, which clients must not send (RFC 9110 §10.1.3).
    pub fn referer(&self) -> Option<&[u8]> {
        let value = self.head.as_ref()?.referer.as_ref()?.as_bytes();
        let end = value
            .iter()
            .position(|byte| matches!(byte, b'?' | b'#'))
            .unwrap_or(value.len());
        let page = &value[..end];
        let authority = memchr::memmem::find(page, b"//").map_or(page, |at| &page[at + 2..]);
        for byte in authority {
            match byte {
                b'/' | b'\\' => break,
                b'@' => return None,
                _ => {}
            }
        }
        Some(page)
    }
}

impl LoggedAnswer<'_> {
    /// Whether the answer was neither an error nor a denial, and did not break off.
    pub fn has_succeeded(&self) -> bool {
        self.status < 400
            && self.complete
            && self.problem.is_none()
            && self.grpc_status.is_none_or(|status| status == 0)
    }
}

impl LoggedLine<'_> {
    /// Bytes from the client: through a tunnel, or of the request's content.
    pub fn received(&self) -> u64 {
        match (self.answer.received, &self.request.received) {
            (Some(tunneled), _) => tunneled,
            (None, Some(content)) => content.load(Relaxed),
            (None, None) => 0,
        }
    }
}

impl BodyObserver for ContentCounter {
    fn on_data(&mut self, data: &[u8]) {
        self.0.fetch_add(data.len() as u64, Relaxed);
    }

    fn on_trailers(&mut self, _: &HeaderMap) {}

    fn on_end(self: Box<Self>, _: u64, _: bool, _: Option<Instant>) {}
}
