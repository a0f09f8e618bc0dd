//! Which trailer fields a message may have.
//!
//! Guarantees that a trailer field passes only if it would mean nothing in a header section (RFC
//! 9110 §6.5.1): a peer that merges trailers into headers is not misled. Over HTTP/1 it also passes
//! only if the message announced it (§6.6.2).

use std::collections::HashSet;

use http::header::TRAILER;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::syntax;
use crate::body::BodyFailure;
use crate::fields;

/// The trailer fields that a header section announces and that may pass.
#[derive(Debug, Default)]
pub struct AnnouncedTrailers(HashSet<HeaderName>);

impl AnnouncedTrailers {
    /// Reads the `Trailer` fields of `headers`. Allocates nothing where there are none.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let mut announced = HashSet::new();
        for list in headers.get_all(TRAILER) {
            for name in list.as_bytes().split(|byte| *byte == b',') {
                if let Ok(name) = HeaderName::from_bytes(name.trim_ascii())
                    && !belongs_before_content(name.as_str())
                {
                    announced.insert(name);
                }
            }
        }
        Self(announced)
    }

    /// The fields of `trailers` that may pass.
    pub fn filter<'a>(
        &'a self,
        trailers: &'a HeaderMap,
    ) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
        trailers.iter().filter(|(name, _)| self.0.contains(*name))
    }
}

/// Removes the fields of a trailer section that belong into a header section, or into none. Each
/// codec calls it with what it has read, and with the most fields that a section of its peer has.
///
/// # Errors
/// The section has more fields.
pub fn admit(trailers: &mut HeaderMap, most: usize) -> Result<(), BodyFailure> {
    if trailers.len() > most {
        return Err(BodyFailure::Malformed);
    }
    fields::remove(trailers, |name| {
        belongs_before_content(name.as_str()) || !syntax::is_field_name(name.as_str())
    });
    Ok(())
}

/// Whether a field is for framing, routing, request modifiers, authentication, response control or
/// content format (RFC 9110 §6.5.1), or for gateways to say where a request comes from. Some
/// servers read a name alike if it has `_`, `.` and the like for `-`.
fn belongs_before_content(name: &str) -> bool {
    if let Some(name) = syntax::undisguised(name) {
        return belongs_before_content(&name);
    }
    const PREFIXES: [&str; 8] = [
        "access-control-",
        "client-cert",
        "content-",
        "if-",
        "proxy-",
        "sec-",
        "x-forwarded-",
        "x-real-",
    ];
    const NAMES: [&str; 30] = [
        "age",
        "allow",
        "alt-svc",
        "authorization",
        "cache-control",
        "connection",
        "cookie",
        "date",
        "early-data",
        "expect",
        "expires",
        "forwarded",
        "host",
        "keep-alive",
        "location",
        "max-forwards",
        "pragma",
        "range",
        "retry-after",
        "set-cookie",
        "strict-transport-security",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "vary",
        "via",
        "warning",
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
        for name in [
            "x-sum",
            "content-length",
            "x-forwarded-for",
            "host",
            "x-other",
        ] {
            trailers.append(name, "1".parse().unwrap());
        }
        trailers.append("x-sum", "2".parse().unwrap());
        let announced = AnnouncedTrailers::from_headers(&headers);
        let passed: Vec<_> = announced
            .filter(&trailers)
            .map(|(name, value)| (name.as_str(), value))
            .collect();
        assert_eq!(
            passed,
            [
                ("x-sum", &"1".parse().unwrap()),
                ("x-sum", &"2".parse().unwrap())
            ]
        );
    }

    #[test]
    fn fields_that_belong_before_the_content_are_stripped() {
        let mut trailers = HeaderMap::new();
        for name in [
            "content-length",
            "set-cookie",
            "x-request-id",
            "client-cert",
            "x_forwarded_for",
            "X_Real_IP",
            "grpc-status",
        ] {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            trailers.append(name.clone(), "1".parse().unwrap());
            trailers.append(name, "2".parse().unwrap());
        }
        assert!(admit(&mut trailers, 14).is_ok());
        assert_eq!(trailers.keys().collect::<Vec<_>>(), ["grpc-status"]);
        assert_eq!(trailers.len(), 2);
    }

    /// The names that fit a header section: a search through all of them for each trailer would
    /// take as long as their product.
    #[test]
    fn announced_trailers_are_found_without_a_search_through_all() {
        let names = (0..30_000).map(|n| format!("x-{n},")).collect::<String>();
        let headers = HeaderMap::from_iter([(TRAILER, names.parse().unwrap())]);
        let announced = AnnouncedTrailers::from_headers(&headers);
        let mut trailers = HeaderMap::new();
        for n in 25_000..35_000 {
            trailers.append(
                format!("x-{n}").parse::<HeaderName>().unwrap(),
                "1".parse().unwrap(),
            );
        }
        assert_eq!(announced.filter(&trailers).count(), 5000);
    }
}
