//! Which trailer fields a message may have.
//!
//! Guarantees that a trailer field passes only if the message announced it (RFC 9110 §6.6.2), and only if it would mean
//! nothing in a header section (§6.5.1): a peer that merges trailers into headers is not misled.

use http::header::TRAILER;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The trailer fields that a header section announces and that may pass.
#[derive(Debug, Default)]
pub struct AnnouncedTrailers(Vec<HeaderName>);

impl AnnouncedTrailers {
    /// Reads the `Trailer` fields of `headers`. Allocates nothing where there are none.
    pub fn by(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(TRAILER).iter();
        let names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        Self(
            names
                .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
                .filter(|name| !belongs_before_content(name.as_str()))
                .collect(),
        )
    }

    /// The fields of `trailers` that may pass.
    pub fn filter<'a>(&'a self, trailers: &'a HeaderMap) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
        trailers.iter().filter(|(name, _)| self.0.contains(name))
    }
}

/// Fields for framing, routing, request modifiers, authentication and content format (RFC 9110 §6.5.1), and the fields
/// in which gateways say where a request comes from.
fn belongs_before_content(name: &str) -> bool {
    const PREFIXES: [&str; 5] = ["content-", "if-", "proxy-", "x-forwarded-", "x-real-"];
    const NAMES: [&str; 20] = [
        "age",
        "authorization",
        "cache-control",
        "connection",
        "cookie",
        "date",
        "expect",
        "expires",
        "forwarded",
        "host",
        "keep-alive",
        "max-forwards",
        "range",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "www-authenticate",
        "x-request-id",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_announced_and_harmless_trailers_pass() {
        let mut headers = HeaderMap::new();
        headers.append(TRAILER, "X-Sum, content-length".parse().unwrap());
        headers.append(TRAILER, "x-forwarded-for,,host".parse().unwrap());
        let mut trailers = HeaderMap::new();
        for name in ["x-sum", "content-length", "x-forwarded-for", "host", "x-other"] {
            trailers.append(name, "1".parse().unwrap());
        }
        trailers.append("x-sum", "2".parse().unwrap());
        let announced = AnnouncedTrailers::by(&headers);
        let passed: Vec<_> = announced.filter(&trailers).map(|(name, value)| (name.as_str(), value)).collect();
        assert_eq!(passed, [("x-sum", &"1".parse().unwrap()), ("x-sum", &"2".parse().unwrap())]);
    }
}
