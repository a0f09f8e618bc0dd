//! The TLS settings of a listener.

use std::path::PathBuf;

/// How a listener speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsServerSpec {
    /// The certificates, at least one. The first is for clients that ask for no name, or for a name
    /// that no certificate has.
    pub certificates: Vec<CertificateFiles>,
    /// The authentication of clients. `None`: clients are not asked for certificates.
    pub client_auth: Option<ClientAuthSpec>,
    pub min_version: MinTlsVersion,
    /// Handshakes that compute at once, of all workers together; further ones wait for their turn.
    pub max_handshakes: usize,
}

/// The files of a certificate: the chain, the server's own first, and its private key. Both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// How clients authenticate themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthSpec {
    /// A file of certificates in PEM: the authorities that may have signed a client's certificate.
    pub ca: PathBuf,
    pub requirement: ClientAuthRequirement,
}

/// Whether a client may have no certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ClientAuthRequirement {
    #[default]
    Required,
    /// A client may have none. A certificate that it has must be valid.
    Optional,
}

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MinTlsVersion {
    #[default]
    Tls12,
    Tls13,
}

impl TlsServerSpec {
    /// All files that the settings name.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let mut files = Vec::new();
        for certificate in &self.certificates {
            files.push(&certificate.cert);
            files.push(&certificate.key);
        }
        if let Some(auth) = &self.client_auth {
            files.push(&auth.ca);
        }
        files.into_iter()
    }
}
