//! Which pages of other origins may read a route's answers (CORS), as an operator writes it.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method};

/// The pages of other origins that may read a route's answers, and what they may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsSpec {
    /// Not empty.
    pub origins: Vec<OriginPattern>,
    /// `None`: whatever the route takes.
    pub methods: Option<Vec<Method>>,
    /// `None`: whatever a page asks for.
    pub headers: Option<Vec<HeaderName>>,
    /// Fields of answers that pages may read, besides those of limits and the request's id.
    pub expose: Vec<HeaderName>,
    /// Whether pages may send cookies and credentials.
    pub credentials: bool,
    /// How long a browser remembers the answer to a preflight.
    pub max_age: Duration,
}

/// An origin (RFC 6454): scheme, host and port in lower case, the port only if it is not the
/// scheme's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginPattern {
    Any,
    Exact(Arc<str>),
    /// `https://*.example.com:8443`: any host below the domain.
    Below {
        /// `https://`.
        scheme: Arc<str>,
        /// `.example.com:8443`.
        domain: Arc<str>,
    },
}

impl CorsSpec {
    /// Whether a page of `origin` may read answers. Browsers write origins in lower case.
    pub fn allows(&self, origin: &[u8]) -> bool {
        self.origins.iter().any(|pattern| pattern.takes(origin))
    }

    /// Whether every page may.
    pub fn is_open(&self) -> bool {
        self.origins.contains(&OriginPattern::Any)
    }
}

impl OriginPattern {
    fn takes(&self, origin: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact.as_bytes() == origin,
            Self::Below { scheme, domain } => {
                let host = origin
                    .strip_prefix(scheme.as_bytes())
                    .and_then(|rest| rest.strip_suffix(domain.as_bytes()));
                host.is_some_and(|host| {
                    !host.is_empty() && host.iter().all(|byte| is_of_a_name(*byte))
                })
            }
        }
    }
}

fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_below_a_domain_has_its_scheme_its_port_and_a_name_of_its_own() {
        let below = OriginPattern::Below {
            scheme: "https://".into(),
            domain: ".example.com".into(),
        };
        let origins = [
            "https://a.example.com",
            "https://a.b.example.com",
            "https://.example.com",
            "https://example.com",
            "http://a.example.com",
            "https://a.example.com:8443",
            "https://evil.com/.example.com",
            "https://evil.com:1@a.example.com",
            "https://aexample.com",
            "null",
        ];
        let taken: Vec<_> = origins
            .into_iter()
            .filter(|origin| below.takes(origin.as_bytes()))
            .collect();
        assert_eq!(taken, ["https://a.example.com", "https://a.b.example.com"]);
    }
}
