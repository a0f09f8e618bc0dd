//! The URL of an endpoint: which protocol it speaks, and where it is.
//!
//! Guarantees that a URL which was read can be connected to: it has a host or a path, a valid port,
//! and nothing else.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use http::uri::Authority;

/// The URL of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointUrl {
    pub scheme: EndpointScheme,
    pub location: EndpointLocation,
}

/// The protocol that an endpoint speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointScheme {
    /// HTTP/1.1 in the clear.
    Http,
    /// HTTP/2 in the clear, without asking first (RFC 9113 §3.3).
    H2c,
    /// HTTP/2 or HTTP/1.1 over TLS.
    Https,
}

/// Where an endpoint is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointLocation {
    /// A host, and a port unless it is the default one.
    Host(Authority),
    /// A socket of this machine.
    Unix(Arc<Path>),
}

/// Why a text is not the URL of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpointUrl {
    #[error("starts with none of http://, https://, h2c:// and unix:")]
    Scheme,
    #[error("has more than a host and a port")]
    Path,
    #[error("carries credentials")]
    Credentials,
    #[error("is not the address of a server")]
    Authority,
    #[error("has no absolute path of a socket")]
    SocketPath,
}

impl EndpointScheme {
    /// Each with how a URL of it begins: before a host, and before the path of a socket.
    const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::Http, "http://", "unix:"),
        (Self::H2c, "h2c://", "h2c+unix:"),
        (Self::Https, "https://", "https+unix:"),
    ];

    /// The port of a URL that names none (RFC 9110 §4.2).
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http | Self::H2c => 80,
            Self::Https => 443,
        }
    }

    /// How its URLs begin: before a host, and before the path of a socket.
    fn prefixes(self) -> (&'static str, &'static str) {
        Self::ALL
            .into_iter()
            .find(|row| row.0 == self)
            .map_or(("", ""), |(_, host, unix)| (host, unix))
    }
}

impl EndpointUrl {
    /// The port, or the scheme's. That of a socket's path means nothing.
    pub fn port(&self) -> u16 {
        let written = match &self.location {
            EndpointLocation::Host(authority) => authority.port_u16(),
            EndpointLocation::Unix(_) => None,
        };
        written.unwrap_or(self.scheme.default_port())
    }

    /// The host that its requests are for, with the port if one is written. Behind a socket's path,
    /// localhost as in nginx.
    pub fn host(&self) -> &str {
        match &self.location {
            EndpointLocation::Host(authority) => authority.as_str(),
            EndpointLocation::Unix(_) => "localhost",
        }
    }

    /// Equal for all URLs of one server: in lower case, and with its port.
    pub fn normalized(&self) -> String {
        let (prefix, _) = self.scheme.prefixes();
        match &self.location {
            EndpointLocation::Host(authority) => {
                format!(
                    "{prefix}{}:{}",
                    authority.host().to_ascii_lowercase(),
                    self.port()
                )
            }
            EndpointLocation::Unix(_) => self.to_string(),
        }
    }
}

impl FromStr for EndpointUrl {
    type Err = InvalidEndpointUrl;

    fn from_str(text: &str) -> Result<Self, InvalidEndpointUrl> {
        for (scheme, host, unix) in EndpointScheme::ALL {
            if let Some(rest) = text.strip_prefix(host) {
                return Ok(Self {
                    scheme,
                    location: EndpointLocation::Host(authority_alone(rest)?),
                });
            }
            if let Some(path) = text.strip_prefix(unix) {
                let is_path = path.starts_with('/') && !path.ends_with('/') && !path.contains('\0');
                let path = is_path
                    .then(|| Path::new(path).into())
                    .ok_or(InvalidEndpointUrl::SocketPath)?;
                return Ok(Self {
                    scheme,
                    location: EndpointLocation::Unix(path),
                });
            }
        }
        Err(InvalidEndpointUrl::Scheme)
    }
}

impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, unix) = self.scheme.prefixes();
        match &self.location {
            EndpointLocation::Host(authority) => write!(f, "{host}{authority}"),
            EndpointLocation::Unix(path) => write!(f, "{unix}{}", path.display()),
        }
    }
}

fn authority_alone(text: &str) -> Result<Authority, InvalidEndpointUrl> {
    let text = text.strip_suffix('/').unwrap_or(text);
    if text.contains(['/', '?', '#']) {
        return Err(InvalidEndpointUrl::Path);
    }
    if text.contains('@') {
        return Err(InvalidEndpointUrl::Credentials);
    }
    authority(text).ok_or(InvalidEndpointUrl::Authority)
}

/// `host` or `host:port`, with a valid port. An IPv4 address in the form of an IPv6 one is read as
/// IPv4: one server has one spelling.
pub fn authority(text: &str) -> Option<Authority> {
    let authority = text.parse::<Authority>().ok()?;
    if let Some(ip) = mapped_ip(authority.host()) {
        let port = text.strip_prefix(authority.host())?;
        return self::authority(&format!("{ip}{port}"));
    }
    let port = text.strip_prefix(authority.host())?;
    let port_fits = port.is_empty() || (authority.port_u16().is_some_and(|port| port > 0));
    (!authority.host().is_empty() && !text.contains('@') && port_fits).then_some(authority)
}

/// The IPv4 address that a host in brackets stands for.
fn mapped_ip(host: &str) -> Option<Ipv4Addr> {
    let inner = host.strip_prefix('[')?.strip_suffix(']')?;
    inner.parse::<Ipv6Addr>().ok()?.to_ipv4_mapped()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_and_shown_alike() {
        for url in [
            "http://10.0.0.1",
            "http://orders:8080",
            "https://[::1]:8443",
            "h2c://orders",
            "unix:/run/a.sock",
            "h2c+unix:/a",
            "https+unix:/a",
        ] {
            assert_eq!(url.parse::<EndpointUrl>().unwrap().to_string(), url);
        }
        assert_eq!(
            "http://orders/".parse::<EndpointUrl>().unwrap().to_string(),
            "http://orders"
        );
    }

    #[test]
    fn an_ipv4_address_in_the_form_of_an_ipv6_one_is_read_as_ipv4() {
        for (url, canonical) in [
            ("http://[::ffff:10.0.0.1]:8080", "http://10.0.0.1:8080"),
            ("https://[::FFFF:a00:1]", "https://10.0.0.1"),
        ] {
            assert_eq!(url.parse::<EndpointUrl>().unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn a_url_that_cannot_be_connected_to_is_refused() {
        for (url, why) in [
            ("10.0.0.1:80", InvalidEndpointUrl::Scheme),
            ("grpc://a", InvalidEndpointUrl::Scheme),
            ("http://", InvalidEndpointUrl::Authority),
            ("http://a:0", InvalidEndpointUrl::Authority),
            ("https://a:99999", InvalidEndpointUrl::Authority),
            ("h2c://a/b", InvalidEndpointUrl::Path),
            ("http://a@b", InvalidEndpointUrl::Credentials),
            ("unix:run/a.sock", InvalidEndpointUrl::SocketPath),
            ("unix:", InvalidEndpointUrl::SocketPath),
            ("unix:/run/", InvalidEndpointUrl::SocketPath),
        ] {
            assert_eq!(url.parse::<EndpointUrl>(), Err(why), "{url}");
        }
    }
}
