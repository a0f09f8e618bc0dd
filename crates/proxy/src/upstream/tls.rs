//! How an upstream's `https://` endpoints are verified, and what they are shown.

use std::path::PathBuf;
use std::sync::Arc;

use super::url::{EndpointLocation, EndpointUrl};
use tollgate_wire::transport::tls::client::{ClientTls, PeerName};

/// Whether endpoints are offered HTTP/2 when TLS begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Http2Policy {
    #[default]
    Auto,
    Never,
}

/// The TLS settings of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTls {
    pub settings: Arc<ClientTls>,
    /// The name that certificates must have and that is asked for. `None`: the endpoint's host.
    pub server_name: Option<PeerName>,
    /// The files that the settings were read from.
    pub files: Vec<PathBuf>,
}

impl UpstreamTls {
    /// The name that the certificate of this endpoint must have. `None`: it has none that could be
    /// verified.
    pub fn name_of(&self, url: &EndpointUrl) -> Option<PeerName> {
        match (&self.server_name, &url.location) {
            (Some(name), _) => Some(name.clone()),
            (None, EndpointLocation::Host(authority)) => PeerName::parse(authority.host()),
            (None, EndpointLocation::Unix(_)) => None,
        }
    }
}
