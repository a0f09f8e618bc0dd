//! The certificate authorities that a TLS connection to Redis trusts, and the certificate that it
//! shows.
//!
//! Guarantees that the server's certificate is verified, name included; there is no way to switch
//! that off. It takes texts, not files. With `redis-core` alone, a connection that needs TLS is an
//! error.

#[cfg(feature = "redis")]
mod client;
#[cfg(not(feature = "redis"))]
#[path = "tls/no_client.rs"]
mod client;

use std::fmt;
use std::sync::Arc;

pub(crate) use client::{is_tls_failure, verify_as};

/// PEM texts, checked. The default trusts the system's certificate authorities and shows nothing.
///
#[cfg_attr(feature = "redis", doc = "```no_run")]
#[cfg_attr(not(feature = "redis"), doc = "```ignore")]
/// use tollgate_limiter::store::redis::spec::RedisSpec;
/// use tollgate_limiter::store::redis::tls::TlsSpec;
///
/// # fn doc() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = TlsSpec::default().trusting(std::fs::read("ca.pem")?)?;
/// let spec = RedisSpec { tls, ..RedisSpec::new("rediss://redis.example.com") };
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct TlsSpec {
    ca: Option<Arc<[u8]>>,
    identity: Option<Identity>,
}

/// A certificate chain and its key.
type Identity = (Arc<[u8]>, Arc<[u8]>);

/// The fault of a PEM text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    #[error("there is no certificate in it")]
    Certificate,
    #[error("a certificate in it cannot serve as an authority")]
    Authority,
    #[error("there is no private key in it")]
    Key,
    #[error("the key is not the certificate's")]
    Pair,
    #[error("the system has no certificate authorities")]
    System,
    #[error("it needs the feature \"redis\" of tollgate-limiter")]
    NotBuilt,
}

impl fmt::Debug for TlsSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ca, identity } = self;
        f.debug_struct("TlsSpec")
            .field("ca", &ca.is_some())
            .field("identity", &identity.is_some())
            .finish()
    }
}
