//! The certificate authorities that a TLS connection to Redis trusts, and the certificate that it shows.
//!
//! Guarantees that the server's certificate is verified, name included; there is no way to switch that off. It takes
//! texts, not files.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// PEM texts, checked. The default trusts the system's certificate authorities and shows nothing.
///
/// ```no_run
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
}

impl TlsSpec {
    /// # Errors
    /// [`TlsError::Certificate`] or [`TlsError::Authority`].
    pub fn trusting(mut self, ca: Vec<u8>) -> Result<Self, TlsError> {
        roots(&ca)?;
        self.ca = Some(ca.into());
        Ok(self)
    }

    /// # Errors
    /// [`TlsError::Certificate`], [`TlsError::Key`] or [`TlsError::Pair`].
    pub fn showing(mut self, cert: Vec<u8>, key: Vec<u8>) -> Result<Self, TlsError> {
        self.identity = Some((cert.into(), key.into()));
        self.build(RootCertStore::empty())?;
        Ok(self)
    }

    /// # Errors
    /// [`TlsError::System`], when it is to be trusted and has nothing.
    pub(crate) fn client(&self) -> Result<ClientConfig, TlsError> {
        self.build(match &self.ca {
            Some(ca) => roots(ca)?,
            None => system_roots()?,
        })
    }

    fn build(&self, roots: RootCertStore) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|_| TlsError::System)?.with_root_certificates(roots);
        let Some((cert, key)) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::Key)?;
        builder.with_client_auth_cert(certificates(cert)?, key).map_err(|_| TlsError::Pair)
    }
}

impl fmt::Debug for TlsSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ca, identity } = self;
        f.debug_struct("TlsSpec").field("ca", &ca.is_some()).field("identity", &identity.is_some()).finish()
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|_| TlsError::Certificate)?;
    if found.is_empty() { Err(TlsError::Certificate) } else { Ok(found) }
}

fn roots(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|_| TlsError::Authority)?;
    }
    Ok(roots)
}

/// The system's certificate authorities. Those that cannot be read or used are left out: the others still verify.
fn system_roots() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::System) } else { Ok(roots) }
}
