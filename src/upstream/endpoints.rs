//! One server: its address, its load, and whether it lately refused connections.
//!
//! Guarantees that a guard is counted exactly once. Names are resolved whenever a connection is opened, never kept.

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

/// How long an endpoint that refused a connection is passed over, while others are left.
/// Long enough that a dead one costs a connect attempt a second at most, short enough to notice a restart.
const REST: Duration = Duration::from_secs(1);

/// One server of an upstream.
pub struct Endpoint {
    /// Host and port in lower case, as connections are kept by.
    key: Arc<str>,
    host: HeaderValue,
    target: Target,
    in_flight: AtomicUsize,
    /// In microseconds of the monotonic clock; 0: it never failed.
    resting_until: AtomicU64,
}

enum Target {
    Address(SocketAddr),
    Name(Box<str>, u16),
}

/// A request under way at an endpoint, from being chosen until its response body ended or was dropped.
pub struct InFlight(Arc<Endpoint>);

/// Why no connection came to be.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
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
        let target = match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(ip) => Target::Address(SocketAddr::new(ip, port)),
            Err(_) => Target::Name(host.into(), port),
        };
        Self {
            key: format!("{}:{port}", host.to_ascii_lowercase()).into(),
            // What an authority may hold, a header value may hold; an empty Host is the one without an authority.
            host: HeaderValue::from_str(text).unwrap_or(const { HeaderValue::from_static("") }),
            target,
            in_flight: AtomicUsize::new(0),
            resting_until: AtomicU64::new(0),
        }
    }

    /// `host:port`, the same for every endpoint that is the same server.
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// Its `Host` (RFC 9110 §7.2).
    pub fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Requests under way here, from all workers.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether it refused a connection a moment ago.
    pub fn is_resting(&self) -> bool {
        let until = self.resting_until.load(Ordering::Relaxed);
        until != 0 && clock::monotonic_micros() < until
    }

    /// A connection was opened. The answer is whether the last attempt had failed.
    pub fn note_connected(&self) -> bool {
        self.resting_until.load(Ordering::Relaxed) != 0 && self.resting_until.swap(0, Ordering::Relaxed) != 0
    }

    /// No connection could be opened: the endpoint rests. The answer is whether the last attempt had succeeded.
    pub fn note_refused(&self) -> bool {
        let rest = u64::try_from(REST.as_micros()).unwrap_or(u64::MAX);
        self.resting_until.swap(clock::monotonic_micros().saturating_add(rest), Ordering::Relaxed) == 0
    }

    /// Opens a connection: each address the name stands for is tried, none of them for more than its share of the time.
    pub async fn connect(&self, patience: Duration) -> Result<TcpStream, ConnectError> {
        let deadline = clock::now() + patience;
        let addresses = timeout_at(deadline, self.resolve()).await.map_err(|_| ConnectError::Timeout)??;
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address").into();
        for (tried, address) in addresses.iter().enumerate() {
            let left = deadline.saturating_duration_since(clock::now());
            let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            match timeout_at(clock::now() + share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Ok(Err(error)) => failure = ConnectError::Failed(error),
                Err(_) => failure = ConnectError::Timeout,
            }
        }
        Err(failure)
    }

    async fn resolve(&self) -> io::Result<SmallVec<[SocketAddr; 4]>> {
        match &self.target {
            Target::Address(address) => Ok(SmallVec::from_slice(&[*address])),
            Target::Name(name, port) => Ok(lookup_host((&**name, *port)).await?.collect()),
        }
    }
}

impl InFlight {
    pub(super) fn new(endpoint: &Arc<Endpoint>) -> Self {
        endpoint.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(endpoint))
    }
}

impl Deref for InFlight {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
