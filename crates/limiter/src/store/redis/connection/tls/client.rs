//! TLS connections to Redis, by rustls and ring. Guarantees that no other cryptography comes in.

use std::sync::Arc;

use fred::error::ErrorKind;
use fred::types::config::{Config, Server, TlsConnector};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::store::redis::connection::tls::{TlsError, TlsSpec};

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

    /// Makes connections by `config` use TLS.
    ///
    /// # Errors
    /// [`TlsError::System`], when it is to be trusted and has nothing.
    pub(crate) fn apply(&self, config: &mut Config) -> Result<(), TlsError> {
        let client = self.build(match &self.ca {
            Some(ca) => roots(ca)?,
            None => system_roots()?,
        })?;
        config.tls = Some(TlsConnector::from(client).into());
        Ok(())
    }

    fn build(&self, roots: RootCertStore) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder
            .map_err(|_| TlsError::System)?
            .with_root_certificates(roots);
        let Some((cert, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::Key)?;
        builder
            .with_client_auth_cert(certificates(cert)?, key)
            .map_err(|_| TlsError::Pair)
    }
}

/// Verifies the server's certificate by this name.
pub(crate) fn verify_as(server: &mut Server, name: &str) {
    server.tls_server_name = Some(name.into());
}

pub(crate) fn is_tls_failure(kind: &ErrorKind) -> bool {
    *kind == ErrorKind::Tls
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|_| TlsError::Certificate)?;
    if found.is_empty() {
        Err(TlsError::Certificate)
    } else {
        Ok(found)
    }
}

fn roots(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|_| TlsError::Authority)?;
    }
    Ok(roots)
}

/// The system's certificate authorities. Those that cannot be read or used are left out: the others
/// still verify.
fn system_roots() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        Err(TlsError::System)
    } else {
        Ok(roots)
    }
}
