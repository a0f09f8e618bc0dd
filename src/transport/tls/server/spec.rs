//! The TLS settings of a listener.

use std::path::PathBuf;

/// How a listener speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsServerSpec {
    /// At least one. Clients that ask for no name, or for one that no certificate has, get the
    /// first.
    pub certificates: Vec<CertificateFiles>,
    /// `None`: clients are not asked for certificates.
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
    /// A file of certificates in PEM: those that may have signed a client's.
    pub ca: PathBuf,
    pub requirement: ClientAuthRequirement,
}

/// Whether a client may have no certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ClientAuthRequirement {
    #[default]
    Required,
    /// It may. A certificate that it has must be valid.
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
    /// All files that it names.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let certificates = self
            .certificates
            .iter()
            .flat_map(|files| [&files.cert, &files.key]);
        certificates.chain(self.client_auth.iter().map(|auth| &auth.ca))
    }
}
