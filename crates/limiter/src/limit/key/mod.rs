//! The key of a limit: the requests with one key share one bucket.
//!
//! `part` reads the parts of a key from the `facts` of a request, `custom` has those that a closure
//! reads and `client_certificate` and `client_identity` those of a certificate and of an identity,
//! `cookie` and `body` those of cookies and of a body. `bytes` writes them into the key, and
//! `spelling`, `host` and `address_text` give values, hosts and addresses their one spelling. Two
//! different combinations of parts never give one key.

pub mod address_text;
pub mod host;

mod body;
mod bytes;
mod client_certificate;
mod client_identity;
mod cookie;
mod custom;
mod facts;
mod part;
mod spelling;

pub use body::{BodyFormat, BodyMember, BodyValues, parameters};
pub use bytes::Key;
pub use client_certificate::{CertificatePart, ClientCertificate};
pub use client_identity::{CallerIdentity, IdentityPart};
pub use cookie::{CookieLikeness, compare_cookie, cookies, values as cookie_values};
pub use custom::CustomKey;
pub use facts::Facts;
pub use part::KeyPart;
pub use spelling::{REGISTERED_METHODS, field_values, holds_scheme, is_same_variable, unquoted};

/// How a request is turned into the key of a bucket: the parts of the key, in order.
///
/// ```
/// use http::Request;
/// use tollgate_limiter::limit::key::{ExtractedKey, Facts, Key, KeySpec, OnMissing};
/// use tollgate_limiter::{host, route};
///
/// let spec = KeySpec { on_missing: OnMissing::Refuse, ..[host(), route()].into() };
/// let request = Request::get("http://a.example/").body(())?;
/// let facts = Facts { route: "orders", ..Facts::from_request(&request) };
/// assert_eq!(spec.extract("limit", &facts), ExtractedKey::Key(Key::from("limit:a.example|orders")));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    pub parts: Vec<KeyPart>,
    pub on_missing: OnMissing,
}

/// How a request that lacks a part of the key is treated.
///
/// ```
/// use http::header::AUTHORIZATION;
/// use tollgate_limiter::limit::key::OnMissing;
/// use tollgate_limiter::{Limit, header};
///
/// let limit = Limit::per_hour("per-login", 100).key(header(AUTHORIZATION)).on_missing(OnMissing::Refuse);
/// # limit.build().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnMissing {
    /// All requests without it share one bucket.
    #[default]
    Share,
    /// The limit does not apply.
    Skip,
    /// The request is refused with 400.
    Refuse,
}

/// The outcome of extracting a key.
#[derive(Debug, PartialEq, Eq)]
pub enum ExtractedKey {
    Key(Key),
    /// A part is missing and the limit does not apply without it.
    Skip,
    /// A part is missing and the request is refused.
    Refuse,
}

impl KeySpec {
    /// The key of a request's bucket under the limit called `limit`.
    pub fn extract(&self, limit: &str, facts: &Facts<'_>) -> ExtractedKey {
        let mut key = Key::from(limit);
        key.0.push(b':');
        for (at, part) in self.parts.iter().enumerate() {
            if at > 0 {
                key.push_separator();
            }
            if part.push(&mut key, facts).is_none() {
                match self.on_missing {
                    OnMissing::Share => key.push_missing(),
                    OnMissing::Skip => return ExtractedKey::Skip,
                    OnMissing::Refuse => return ExtractedKey::Refuse,
                }
            }
        }
        ExtractedKey::Key(key)
    }
}

#[cfg(test)]
mod tests;
