//! The TLS settings of a client: verification of an upstream, and the certificate of the gateway.

use std::fmt;
use std::sync::Arc;

/// The text of a PEM file.
pub type Pem = Arc<[u8]>;

/// How to verify an upstream, and the certificate to present.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientTlsSpec {
    /// The trusted authorities. `None`: the authorities that the system trusts.
    pub ca: Option<Pem>,
    /// A certificate chain and its key.
    pub identity: Option<(Pem, Pem)>,
    /// Whether to verify the upstream's certificate.
    pub verify: bool,
}

impl Default for ClientTlsSpec {
    fn default() -> Self {
        Self {
            ca: None,
            identity: None,
            verify: true,
        }
    }
}

/// Shows no certificate and no key.
impl fmt::Debug for ClientTlsSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTlsSpec")
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .field("verify", &self.verify)
            .finish()
    }
}
