//! The address of a listener: TCP or Unix, as an operator writes it.

use std::fmt;
use std::net::{AddrParseError, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The text before the path of a Unix socket.
pub const UNIX_PREFIX: &str = "unix:";

/// The address of a listener. As text, an address and port, or `unix:` and a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ListenAddress {
    Tcp(SocketAddr),
    Unix(Arc<Path>),
}

impl ListenAddress {
    /// The address and port. `None`: a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX_PREFIX}{}", path.display()),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix(UNIX_PREFIX) {
            Some(path) => Ok(Self::Unix(Path::new(path).into())),
            None => text.parse().map(Self::Tcp),
        }
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = AddrParseError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ListenAddress> for String {
    fn from(address: ListenAddress) -> Self {
        address.to_string()
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for text in ["127.0.0.1:80", "[::1]:80", "unix:/run/http.sock"] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(
                serde_json::to_string(&address).unwrap(),
                format!("{text:?}")
            );
        }
        assert!("run/http.sock".parse::<ListenAddress>().is_err());
    }
}
