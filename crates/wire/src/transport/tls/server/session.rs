//! The outcome of a handshake, as far as requests on the connection are concerned.

use std::sync::Arc;

use super::certificate::ServerCertificates;
use super::client_certificate::ClientIdentity;

/// The session of a client's TLS connection.
#[derive(Debug)]
pub struct TlsSession {
    /// The name that the client asked for (SNI), in lower case.
    pub server_name: Option<Box<str>>,
    /// The identity by which the client has authenticated itself.
    pub client: Option<Arc<ClientIdentity>>,
    /// The client and this server agreed on HTTP/2.
    pub is_http2: bool,
    /// Clients are asked for certificates.
    pub(super) authenticates: bool,
    pub(super) certificates: Arc<ServerCertificates>,
}

impl TlsSession {
    /// Whether a request for `host`, in lower case and without a port, belongs on another
    /// connection (RFC 9110 §15.5.20).
    ///
    /// Where clients are asked for certificates, a connection is for the name that it was opened
    /// for. Elsewhere a client may share a connection among hosts, as HTTP/2 lets it. Such a client
    /// is sent away only if the certificate for this host is not the one that it was shown.
    pub fn is_misdirected(&self, host: &str, shared: bool) -> bool {
        let name = self.server_name.as_deref();
        let host = host.strip_suffix('.').unwrap_or(host);
        match name {
            Some(name) if self.authenticates => name != host,
            None if self.authenticates => !self.certificates.shown_covers(None, host),
            Some(_) => {
                shared
                    && !self.certificates.shown_covers(name, host)
                    && self.certificates.any_covers(host)
            }
            None => false,
        }
    }
}
