//! An endpoint, a single server of an upstream: its address, and how connections to it are opened.
//!
//! Guarantees that a picked endpoint counts its request exactly once, and that its failures do not
//! flood the log.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderValue;
use rustix::io::Errno;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout_at;

use super::affinity::Affinity;
use super::health::after;
use super::health::condition::EndpointCondition;
use super::lookup::{ResolvedName, Resolver};
pub use super::spec::endpoint::EndpointSpec;
use super::tls::{Http2Policy, UpstreamTls};
use super::url::{EndpointLocation, EndpointScheme, EndpointUrl};
use tollgate_limiter::clock::{self, Instant};
use tollgate_wire::transport::peer::SocketPair;
use tollgate_wire::transport::tls::client::{ClientTls, HttpOffer, PeerName, is_offer_refused};
use tollgate_wire::transport::{ClearStream, Stream, proxy_protocol};

/// How long an endpoint that did not take HTTP/1.1 alone is not offered that again. Long enough
/// that the handshakes in vain do not count, short enough to notice that it was set up anew.
const HTTP1_DECLINED: Duration = Duration::from_secs(60);

/// A server of an upstream.
pub struct Endpoint {
    url: Arc<str>,
    /// Equal for endpoints whose connections may carry each other's requests.
    key: Arc<str>,
    host: HeaderValue,
    address: EndpointAddress,
    security: EndpointSecurity,
    http2: Http2Use,
    /// Whether connections begin with a header of the PROXY protocol.
    proxy_protocol: bool,
    /// Whether HTTP/2 was offered and not taken.
    declined_http2: AtomicBool,
    /// Until when HTTP/1.1 alone is not offered, since it was not taken. In microseconds of the
    /// monotonic clock.
    declined_http1_until: AtomicU64,
    role: EndpointRole,
    /// Outlives this endpoint where a reload has another in its place.
    condition: Arc<EndpointCondition>,
}

/// The part of an endpoint among the others of its upstream.
#[derive(Clone, Debug)]
pub struct EndpointRole {
    pub weight: u64,
    pub priority: u16,
    /// Tells it from others where keys are hashed.
    pub seed: u64,
    /// Where cookies name endpoints: what names this one, and the field that says so to a client.
    pub sticky: Option<(Affinity, HeaderValue)>,
}

/// Where an endpoint is.
enum EndpointAddress {
    Address(SocketAddr),
    Name(Arc<ResolvedName>),
    Unix(Arc<Path>),
}

/// Whether an endpoint is spoken to in HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http2Use {
    Never,
    /// If it takes it when TLS begins (RFC 9113 §3.2).
    Offered,
    Always,
}

/// How its connections are secured.
enum EndpointSecurity {
    Clear,
    Tls(Arc<ClientTls>, PeerName),
    /// TLS is needed, and the upstream has no settings for it or no name to verify.
    Unusable,
}

/// An endpoint picked for a request. It counts the request until the response body has ended or was
/// dropped.
pub struct PickedEndpoint(Arc<Endpoint>);

/// How a connection is opened.
#[derive(Clone, Copy)]
pub struct ConnectTerms<'a> {
    pub deadline: Instant,
    /// The versions of HTTP that are offered where it uses TLS.
    pub offer: HttpOffer,
    /// The client's connection, for endpoints that get the PROXY protocol.
    pub client: Option<&'a SocketPair>,
}

/// Why no connection could be opened.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamConnectError {
    #[error("connecting timed out")]
    Timeout,
    #[error("connecting failed: {0}")]
    Failed(io::Error),
    #[error("TLS failed: {0}")]
    Tls(io::Error),
    /// The endpoint speaks no version of HTTP that was offered.
    #[error("TLS failed: {0}")]
    OfferRefused(io::Error),
    /// Nothing was tried: this process has no descriptor, port or buffer left. The endpoint is not
    /// at fault.
    #[error("the gateway has nothing left for a connection: {0}")]
    Exhausted(io::Error),
    /// Nothing was tried: the upstream has as many connections or requests as it may.
    #[error("the upstream is at its bounds")]
    Overloaded,
}

impl Endpoint {
    /// `own_connections`: tells the endpoints of an upstream from those of others, which then do
    /// not share connections with it.
    pub fn new(
        url: &EndpointUrl,
        tls: Option<&UpstreamTls>,
        http2: Http2Policy,
        own_connections: Option<u64>,
    ) -> Self {
        let key = url.normalized();
        Self {
            key: own_connections
                .map_or_else(|| key.clone().into(), |own| format!("{key} {own}").into()),
            url: url.to_string().into(),
            // A header value may hold everything that an authority may.
            host: HeaderValue::from_str(url.host())
                .unwrap_or(const { HeaderValue::from_static("") }),
            address: EndpointAddress::from_url(url),
            security: EndpointSecurity::new(url, tls),
            http2: match (url.scheme, http2) {
                (EndpointScheme::H2c, _) => Http2Use::Always,
                (EndpointScheme::Https, Http2Policy::Auto) => Http2Use::Offered,
                (EndpointScheme::Http, _) | (EndpointScheme::Https, Http2Policy::Never) => {
                    Http2Use::Never
                }
            },
            proxy_protocol: false,
            declined_http2: AtomicBool::new(false),
            declined_http1_until: AtomicU64::new(0),
            role: EndpointRole::default(),
            condition: Arc::default(),
        }
    }

    /// Whether its connections begin with a header of the PROXY protocol.
    pub fn with_proxy_header(self, proxy_protocol: bool) -> Self {
        Self {
            proxy_protocol,
            ..self
        }
    }

    /// Goes on with the condition of the endpoint that it takes the place of.
    pub fn with_condition(self, condition: Arc<EndpointCondition>) -> Self {
        Self { condition, ..self }
    }

    /// Sends requests to this host, if one is given.
    pub fn with_host(self, host: Option<HeaderValue>) -> Self {
        Self {
            host: host.unwrap_or(self.host),
            ..self
        }
    }

    pub fn with_role(self, role: EndpointRole) -> Self {
        Self { role, ..self }
    }

    /// The part among the endpoints of the upstream.
    pub fn role(&self) -> &EndpointRole {
        &self.role
    }

    /// The requests in flight, failures and fitness.
    pub fn condition(&self) -> &Arc<EndpointCondition> {
        &self.condition
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The key of its connections in a pool.
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The value of `Host` for requests to it (RFC 9110 §7.2).
    pub fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Logs why a request to it failed, unless another failure was logged shortly before.
    pub fn log_failure(&self, upstream: &str, reason: &str) {
        if let Some(unlogged) = self.condition.failures.admit() {
            tracing::warn!(
                upstream,
                endpoint = self.url(),
                reason,
                unlogged,
                "requests to an endpoint fail"
            );
        }
    }

    pub fn http2(&self) -> Http2Use {
        self.http2
    }

    /// Whether its connections use TLS.
    pub fn is_secure(&self) -> bool {
        !matches!(self.security, EndpointSecurity::Clear)
    }

    /// Whether it did not take HTTP/2 when that was last offered.
    pub fn has_declined_http2(&self) -> bool {
        self.declined_http2.load(Ordering::Relaxed)
    }

    /// Records whether it took HTTP/2 when that was offered.
    pub fn record_http2(&self, taken: bool) {
        self.declined_http2.store(!taken, Ordering::Relaxed);
    }

    /// Whether it lately did not take HTTP/1.1 alone.
    pub fn has_declined_http1(&self) -> bool {
        clock::monotonic_micros() < self.declined_http1_until.load(Ordering::Relaxed)
    }

    /// Records that it did not take HTTP/1.1 alone.
    pub fn record_declined_http1(&self) {
        self.declined_http1_until
            .store(after(HTTP1_DECLINED), Ordering::Relaxed);
    }

    /// Requests in flight at this endpoint, from all workers.
    pub fn in_flight(&self) -> usize {
        self.condition.in_flight()
    }

    /// Whether it lately refused a connection.
    pub fn is_backing_off(&self) -> bool {
        self.condition.is_backing_off()
    }

    /// Records that a connection was opened. Returns whether the last attempt had failed.
    pub fn record_connected(&self) -> bool {
        self.condition.record_connected()
    }

    /// Records that no connection could be opened. Returns whether the last attempt had succeeded.
    pub fn record_refused(&self) -> bool {
        self.condition.record_refused()
    }

    /// Opens a connection on these terms.
    pub async fn connect(&self, terms: ConnectTerms<'_>) -> Result<Stream, UpstreamConnectError> {
        let ConnectTerms {
            deadline,
            offer,
            client,
        } = terms;
        let mut socket = self.connect_in_the_clear(deadline).await?;
        if self.proxy_protocol {
            let header = proxy_protocol::v2_header(client)?;
            timeout_at(deadline, socket.write_all(&header))
                .await
                .map_err(|_| UpstreamConnectError::Timeout)??;
        }
        match &self.security {
            EndpointSecurity::Clear => Ok(Stream::Clear(socket)),
            EndpointSecurity::Tls(tls, name) => {
                let secured = timeout_at(deadline, tls.connect(socket, name, offer)).await;
                secured
                    .map_err(|_| UpstreamConnectError::Timeout)?
                    .map(Stream::from)
                    .map_err(UpstreamConnectError::from_tls)
            }
            EndpointSecurity::Unusable => Err(UpstreamConnectError::Tls(
                io::ErrorKind::InvalidInput.into(),
            )),
        }
    }

    async fn connect_in_the_clear(
        &self,
        deadline: Instant,
    ) -> Result<ClearStream, UpstreamConnectError> {
        match &self.address {
            EndpointAddress::Address(address) => connect_to_one_of(&[*address], deadline).await,
            EndpointAddress::Name(name) => {
                let found = timeout_at(deadline, name.addresses()).await;
                let addresses = found.map_err(|_| UpstreamConnectError::Timeout)??;
                connect_to_one_of(&addresses, deadline).await
            }
            EndpointAddress::Unix(path) => {
                let connected = timeout_at(deadline, UnixStream::connect(path)).await;
                let socket = connected.map_err(|_| UpstreamConnectError::Timeout)??;
                Ok(ClearStream::Unix(socket))
            }
        }
    }
}

impl EndpointRole {
    /// Whether a cookie with this value names it.
    pub fn is_named(&self, affinity: Affinity) -> bool {
        self.sticky
            .as_ref()
            .is_some_and(|(own, _)| *own == affinity)
    }

    /// The `Set-Cookie` for a client whose cookie names another endpoint, or none.
    pub fn set_cookie(&self, affinity: Option<Affinity>) -> Option<&HeaderValue> {
        self.sticky
            .as_ref()
            .filter(|(own, _)| affinity != Some(*own))
            .map(|(_, field)| field)
    }
}

impl Default for EndpointRole {
    fn default() -> Self {
        Self {
            weight: 1,
            priority: 0,
            seed: 0,
            sticky: None,
        }
    }
}

impl UpstreamConnectError {
    fn from_tls(error: io::Error) -> Self {
        if is_offer_refused(&error) {
            Self::OfferRefused(error)
        } else {
            Self::Tls(error)
        }
    }
}

impl From<io::Error> for UpstreamConnectError {
    fn from(error: io::Error) -> Self {
        const OWN: [Errno; 4] = [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::ADDRNOTAVAIL,
        ];
        match Errno::from_io_error(&error) {
            Some(errno) if OWN.contains(&errno) => Self::Exhausted(error),
            _ => Self::Failed(error),
        }
    }
}

/// Each address is tried for at most its share of the time.
async fn connect_to_one_of(
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<ClearStream, UpstreamConnectError> {
    let mut failure = UpstreamConnectError::Timeout;
    for (tried, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(clock::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        match timeout_at(clock::now() + share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return Ok(ClearStream::Tcp(stream));
            }
            Ok(Err(error)) => failure = error.into(),
            Err(_) => failure = UpstreamConnectError::Timeout,
        }
    }
    Err(failure)
}

impl EndpointAddress {
    fn from_url(url: &EndpointUrl) -> Self {
        let authority = match &url.location {
            EndpointLocation::Host(authority) => authority,
            EndpointLocation::Unix(path) => return Self::Unix(Arc::clone(path)),
        };
        let host = authority.host();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        match address.parse::<IpAddr>() {
            Ok(ip) => Self::Address(SocketAddr::new(ip, url.port())),
            Err(_) => Self::Name(Resolver::shared().name(host, url.port())),
        }
    }
}

impl EndpointSecurity {
    fn new(url: &EndpointUrl, tls: Option<&UpstreamTls>) -> Self {
        if url.scheme != EndpointScheme::Https {
            return Self::Clear;
        }
        let secured =
            tls.and_then(|tls| Some(Self::Tls(Arc::clone(&tls.settings), tls.name_of(url)?)));
        secured.unwrap_or(Self::Unusable)
    }
}

impl PickedEndpoint {
    pub(super) fn new(endpoint: &Arc<Endpoint>) -> Self {
        endpoint.condition.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(endpoint))
    }
}

impl Deref for PickedEndpoint {
    type Target = Arc<Endpoint>;

    fn deref(&self) -> &Arc<Endpoint> {
        &self.0
    }
}

impl Drop for PickedEndpoint {
    fn drop(&mut self) {
        self.0.condition.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
