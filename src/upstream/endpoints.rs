//! An endpoint, a single server of an upstream: its address, its load, and whether it lately refused connections.
//!
//! Guarantees that a picked endpoint counts its request exactly once. Names are resolved for each new connection and
//! never cached.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderValue;
use http::uri::Authority;
use smallvec::SmallVec;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout_at;

use crate::clock;

/// How long an endpoint that refused a connection is passed over, while others are left. Long enough that a dead
/// endpoint costs at most one connect attempt a second, short enough to notice a restart.
const BACK_OFF: Duration = Duration::from_secs(1);

/// A server of an upstream.
pub struct Endpoint {
    /// Host and port in lower case: the key of connections in the pool.
    key: Arc<str>,
    host: HeaderValue,
    address: EndpointAddress,
    in_flight: AtomicUsize,
    /// In microseconds of the monotonic clock. 0: the last attempt to connect succeeded, or there was none.
    backing_off_until: AtomicU64,
}

/// Where an endpoint is.
enum EndpointAddress {
    Address(SocketAddr),
    Name(Box<str>, u16),
}

/// An endpoint picked for a request. It counts the request until the response body has ended or was dropped.
pub struct PickedEndpoint(Arc<Endpoint>);

/// Why no connection could be opened.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamConnectError {
    #[error("connecting timed out")]
    Timeout,
    #[error("connecting failed: {0}")]
    Failed(#[from] io::Error),
}

impl Endpoint {
    /// Without a port, 80 (RFC 9110 §4.2.1). Credentials before an `@` are ignored.
    pub fn new(authority: &Authority) -> Self {
        let text = authority.as_str();
        let text = text.rsplit_once('@').map_or(text, |(_, address)| address);
        let host = authority.host();
        let port = authority.port_u16().unwrap_or(80);
        let address = match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(ip) => EndpointAddress::Address(SocketAddr::new(ip, port)),
            Err(_) => EndpointAddress::Name(host.into(), port),
        };
        Self {
            key: format!("{}:{port}", host.to_ascii_lowercase()).into(),
            // A header value may hold everything that an authority may. Without an authority, Host is empty.
            host: HeaderValue::from_str(text).unwrap_or(const { HeaderValue::from_static("") }),
            address,
            in_flight: AtomicUsize::new(0),
            backing_off_until: AtomicU64::new(0),
        }
    }

    /// `host:port`, equal for all endpoints that are the same server.
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The value of `Host` for requests to it (RFC 9110 §7.2).
    pub fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Requests in flight at this endpoint, from all workers.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether it lately refused a connection.
    pub fn is_backing_off(&self) -> bool {
        let until = self.backing_off_until.load(Ordering::Relaxed);
        until != 0 && clock::monotonic_micros() < until
    }

    /// Records that a connection was opened. Returns whether the last attempt had failed.
    pub fn record_connected(&self) -> bool {
        self.backing_off_until.load(Ordering::Relaxed) != 0 && self.backing_off_until.swap(0, Ordering::Relaxed) != 0
    }

    /// Records that no connection could be opened. Returns whether the last attempt had succeeded.
    pub fn record_refused(&self) -> bool {
        let back_off = u64::try_from(BACK_OFF.as_micros()).unwrap_or(u64::MAX);
        self.backing_off_until.swap(clock::monotonic_micros().saturating_add(back_off), Ordering::Relaxed) == 0
    }

    /// Opens a connection within `patience`. Each address of a name is tried for at most its share of the time.
    pub async fn connect(&self, patience: Duration) -> Result<TcpStream, UpstreamConnectError> {
        let deadline = clock::now() + patience;
        let addresses = timeout_at(deadline, self.resolve()).await.map_err(|_| UpstreamConnectError::Timeout)??;
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address").into();
        for (tried, address) in addresses.iter().enumerate() {
            let left = deadline.saturating_duration_since(clock::now());
            let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            match timeout_at(clock::now() + share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Ok(Err(error)) => failure = UpstreamConnectError::Failed(error),
                Err(_) => failure = UpstreamConnectError::Timeout,
            }
        }
        Err(failure)
    }

    async fn resolve(&self) -> io::Result<SmallVec<[SocketAddr; 4]>> {
        match &self.address {
            EndpointAddress::Address(address) => Ok(SmallVec::from_slice(&[*address])),
            EndpointAddress::Name(name, port) => Ok(lookup_host((&**name, *port)).await?.collect()),
        }
    }
}

impl PickedEndpoint {
    pub(super) fn new(endpoint: &Arc<Endpoint>) -> Self {
        endpoint.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(endpoint))
    }
}

impl Deref for PickedEndpoint {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.0
    }
}

impl Drop for PickedEndpoint {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
