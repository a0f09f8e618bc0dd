//! How an upstream's endpoints are found, as configured: the question to DNS, how long answers
//! hold, or the file.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::upstream::url::EndpointScheme;

/// Endpoints of a list at most.
pub const MOST_ENDPOINTS: usize = 1000;

/// How an upstream's endpoints are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoverySpec {
    Dns(DnsSpec),
    /// A list in a file, which is read by those who know its format.
    File(PathBuf),
}

/// How endpoints are found by DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsSpec {
    pub question: DnsQuestion,
    /// The protocol that they speak.
    pub scheme: EndpointScheme,
    /// An answer is used for its TTL, and for no less and no more than these.
    pub min_ttl: Duration,
    pub max_ttl: Duration,
    /// How long the last list is used while DNS says that there is nothing.
    pub keep_on_empty: Duration,
    /// How long the last list is used while nobody answers. `None`: for ever.
    pub keep_on_failure: Option<Duration>,
    /// The servers that are asked. Empty: those of the system, with its search domains.
    pub resolvers: Vec<SocketAddr>,
}

/// The question to DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsQuestion {
    /// Each address of this name is an endpoint with this port.
    Addresses { name: Arc<str>, port: u16 },
    /// Each address of each server of this service is an endpoint (RFC 2782).
    Services { name: Arc<str> },
}

impl DiscoverySpec {
    /// How it is found by DNS, if it is.
    pub fn dns(&self) -> Option<&DnsSpec> {
        match self {
            Self::Dns(spec) => Some(spec),
            Self::File(_) => None,
        }
    }

    /// The file that has it, if one does.
    pub fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::Dns(_) => None,
            Self::File(path) => Some(path),
        }
    }
}

impl fmt::Display for DiscoverySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(DnsSpec {
                question: DnsQuestion::Addresses { name, port },
                ..
            }) => {
                write!(f, "dns {name}:{port}")
            }
            Self::Dns(DnsSpec {
                question: DnsQuestion::Services { name },
                ..
            }) => write!(f, "srv {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
        }
    }
}
