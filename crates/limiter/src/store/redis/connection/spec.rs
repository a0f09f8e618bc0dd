//! The shared store as an operator configures it. Guarantees that no credentials are printed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::store::redis::connection::tls::TlsSpec;

/// The `autonomy` of a store that is not configured otherwise.
pub const AUTONOMY: Duration = Duration::from_secs(15);

/// How to reach the shared store.
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate_limiter::SharedLimiter;
/// use tollgate_limiter::store::redis::spec::RedisSpec;
///
/// # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = RedisSpec::new("redis://127.0.0.1:6379");
/// let spec = RedisSpec { timeout: Duration::from_millis(5), key_prefix: "shop:".into(), ..redis };
/// let limiter = SharedLimiter::connect_with(&spec).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSpec {
    /// A URL that [`Address::parse`](crate::store::redis::address::Address::parse) takes,
    /// credentials included: print [`RedisSpec::redacted_url`] instead.
    pub url: Arc<str>,
    /// For URLs that ask for TLS.
    pub tls: TlsSpec,
    /// The longest that a decision waits for the store.
    pub timeout: Duration,
    /// Prefix of every key written.
    pub key_prefix: Arc<str>,
    /// Nodes to assume until the store has said how many there are.
    pub expected_nodes: u32,
    /// The longest that the others hold back the share of a node that fell silent.
    pub autonomy: Duration,
}

impl RedisSpec {
    /// The Redis at `url`, with a time limit of 20 ms, keys that begin with `tollgate:`, and a
    /// fleet of one until it is known to be larger.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.into(),
            tls: TlsSpec::default(),
            timeout: Duration::from_millis(20),
            key_prefix: "tollgate:".into(),
            expected_nodes: 1,
            autonomy: AUTONOMY,
        }
    }

    /// The URL without credentials: nothing between the scheme and the last `@`, and no query,
    /// which may carry some too.
    pub fn redacted_url(&self) -> String {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        let host = host.split('?').next().unwrap_or_default();
        let credentials = if rest.contains('@') { "…@" } else { "" };
        format!("{scheme}://{credentials}{host}")
    }
}

impl fmt::Debug for RedisSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSpec")
            .field("url", &self.redacted_url())
            .field("tls", &self.tls)
            .field("timeout", &self.timeout)
            .field("key_prefix", &self.key_prefix)
            .field("expected_nodes", &self.expected_nodes)
            .field("autonomy", &self.autonomy)
            .finish()
    }
}
