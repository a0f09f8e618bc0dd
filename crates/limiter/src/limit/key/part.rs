//! The parts that a key is made of. A new part is a variant of [`KeyPart`] and an arm in each of
//! its two `match`es.
//!
//! Guarantees that a part which a request has twice, with different values, is told from one that
//! it has once: which of the values an upstream takes is unknown, and any choice would let a second
//! value stand for a bucket of one's own. Nor is another spelling of a value: see [`spelling`].

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use http::{HeaderName, HeaderValue};

use crate::limit::key::body::{BodyMember, BodyValues, parameters};
use crate::limit::key::bytes::Key;
use crate::limit::key::client_certificate::CertificatePart;
use crate::limit::key::client_identity::IdentityPart;
use crate::limit::key::cookie;
use crate::limit::key::custom::CustomKey;
use crate::limit::key::facts::Facts;
use crate::limit::key::spelling;

/// A part of a key.
///
/// ```
/// use tollgate_limiter::limit::key::KeyPart;
/// use tollgate_limiter::{Limit, client_ip};
///
/// let limit = Limit::per_second("searches", 10).key([client_ip(), KeyPart::Query("q".into())]);
/// # limit.build().unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The client's address; IPv6 addresses count by their leading `ipv6_prefix` bits, IPv4 by
    /// `ipv4_prefix`.
    ClientIp { ipv4_prefix: u8, ipv6_prefix: u8 },
    /// A part of the certificate by which the client has authenticated itself.
    ClientCertificate(CertificatePart),
    /// A part of the identity that an authenticator found.
    Identity(IdentityPart),
    /// The value of a header field, also under a name that servers
    /// [take for it](spelling::is_same_variable); of `authorization` the credentials, whatever
    /// their spelling.
    Header(HeaderName),
    /// A cookie by name (RFC 6265 §4.2): see [`compare_cookie`](cookie::compare_cookie).
    Cookie(Arc<str>),
    /// A query parameter by name, percent-decoded: see [`parameters`].
    Query(Arc<str>),
    /// A `{name}` of the route's path, percent-decoded.
    PathParam(Arc<str>),
    /// A member of the body, where somebody has read it ahead: see [`BodyValues`].
    Body(BodyMember),
    /// Methods that are not registered count as one.
    Method,
    /// In lower case, without a port.
    Host,
    /// The route's name.
    Route,
    /// A text that every request shares.
    Constant(Arc<str>),
    /// A part whose value is a secret, whatever the part is called: it leaves the process only as a
    /// hash.
    Secret(Box<KeyPart>),
    /// A closure of a program that uses the limiter as a library. The configuration file has no
    /// such thing.
    Custom(CustomKey),
}

/// A part of one request.
enum PartValue<'a> {
    Address {
        ip: IpAddr,
        ipv4_prefix: u8,
        ipv6_prefix: u8,
    },
    Bytes(Cow<'a, [u8]>),
    /// Several values that differ.
    Different,
}

impl KeyPart {
    /// Reads this part of a request. `None`: the request lacks it.
    fn value<'a>(&'a self, facts: &'a Facts<'_>) -> Option<PartValue<'a>> {
        let value: &[u8] = match self {
            Self::ClientIp {
                ipv4_prefix,
                ipv6_prefix,
            } => {
                let ip = facts.client_ip?;
                return Some(PartValue::Address {
                    ip,
                    ipv4_prefix: *ipv4_prefix,
                    ipv6_prefix: *ipv6_prefix,
                });
            }
            Self::Header(name) => {
                let values = spelling::field_values(facts.headers, name).map(HeaderValue::as_bytes);
                return if *name == AUTHORIZATION || *name == PROXY_AUTHORIZATION {
                    only(values.map(spelling::credentials))
                } else {
                    only(values.map(|value| Some(Cow::Borrowed(spelling::field(value)))))
                };
            }
            Self::Cookie(name) => return only(cookie::values(facts.headers, name)),
            Self::Query(name) => {
                let values = parameters(facts.uri.query()?, name);
                return only(values.map(|value| value.map(spelling::without_space)));
            }
            Self::PathParam(name) => {
                return Some(PartValue::Bytes(spelling::decoded(
                    (facts.param)(name)?.as_bytes(),
                )));
            }
            Self::ClientCertificate(part) => part.value(facts.client_certificate?)?.as_bytes(),
            Self::Identity(part) => part.value(facts.client_identity?)?.as_bytes(),
            Self::Body(member) => {
                return Some(PartValue::Bytes(
                    member.value(facts.extensions?.get::<BodyValues>()?)?,
                ));
            }
            Self::Method => spelling::method(facts.method).as_bytes(),
            Self::Host => match facts.host.find() {
                Cow::Borrowed(host) => Some(host).filter(|host| !host.is_empty())?.as_bytes(),
                Cow::Owned(host) => return Some(PartValue::Bytes(Cow::Owned(host.into_bytes()))),
            },
            Self::Route => facts.route.as_bytes(),
            Self::Constant(text) => text.as_bytes(),
            Self::Secret(part) => return part.value(facts),
            Self::Custom(custom) => {
                return Some(PartValue::Bytes(Cow::Owned(
                    custom.read(facts)?.into_bytes(),
                )));
            }
        };
        Some(PartValue::Bytes(Cow::Borrowed(value)))
    }

    /// The name of this part where an operator describes a request: `client_ip`,
    /// `header.x-tenant`.
    pub fn name(&self) -> String {
        match self {
            Self::ClientIp { .. } => "client_ip".to_owned(),
            Self::ClientCertificate(part) => format!("client_certificate.{}", part.name()),
            Self::Identity(part) => part.name(),
            Self::Header(name) => format!("header.{name}"),
            Self::Cookie(name) => format!("cookie.{name}"),
            Self::Query(name) => format!("query.{name}"),
            Self::PathParam(name) => format!("path.{name}"),
            Self::Body(member) => format!("body.{}", member.name),
            Self::Method => "method".to_owned(),
            Self::Host => "host".to_owned(),
            Self::Route => "route".to_owned(),
            Self::Constant(_) => "constant".to_owned(),
            Self::Secret(part) => part.name(),
            Self::Custom(custom) => custom.name().to_owned(),
        }
    }

    /// Whether the value leaves the process only as a hash.
    pub fn is_secret(&self) -> bool {
        match self {
            Self::Header(name) => is_secret_header(name),
            Self::Cookie(_) | Self::Custom(_) | Self::Secret(_) => true,
            Self::Query(name) | Self::PathParam(name) => is_secret(name),
            Self::Identity(part) => part.given_name().is_some_and(is_secret),
            Self::Body(member) => is_secret(&member.name),
            Self::ClientIp { .. }
            | Self::ClientCertificate(_)
            | Self::Method
            | Self::Host
            | Self::Route
            | Self::Constant(_) => false,
        }
    }

    /// Calls `read` with the value in its one spelling, neither escaped nor hashed. `None`: the
    /// request lacks it, or has it twice with different values.
    pub fn with_value<T>(&self, facts: &Facts<'_>, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        match self.value(facts)? {
            PartValue::Address {
                ip,
                ipv4_prefix,
                ipv6_prefix,
            } => Some(read(Key::from_ip(ip, ipv4_prefix, ipv6_prefix).as_bytes())),
            PartValue::Bytes(value) => Some(read(&value)),
            PartValue::Different => None,
        }
    }

    /// The value as the field of a hash that operators write: as it is up to 64 bytes; otherwise,
    /// and if it is a secret or begins with `#`, a `#` and the first 32 hexadecimal digits of its
    /// SHA-256. Always on the stack.
    pub fn field(&self, facts: &Facts<'_>) -> Option<Key> {
        self.with_value(facts, |value| Key::from_field(value, self.is_secret()))
    }

    /// Appends this part of the request to the key. `None`: the request lacks it.
    pub(super) fn push(&self, key: &mut Key, facts: &Facts<'_>) -> Option<()> {
        match self.value(facts)? {
            PartValue::Address {
                ip,
                ipv4_prefix,
                ipv6_prefix,
            } => key.push_ip(ip, ipv4_prefix, ipv6_prefix),
            PartValue::Bytes(value) => key.push_value(&value, self.is_secret()),
            PartValue::Different => key.push_different(),
        }
        Some(())
    }
}

/// The value that all agree on. A value is `None` where servers read another one, or none.
fn only<'a>(mut values: impl Iterator<Item = Option<Cow<'a, [u8]>>>) -> Option<PartValue<'a>> {
    let first = values.next()?;
    let agree = values.all(|value| value == first);
    Some(match first {
        Some(value) if agree => PartValue::Bytes(value),
        _ => PartValue::Different,
    })
}

fn is_secret_header(name: &HeaderName) -> bool {
    *name == AUTHORIZATION
        || *name == PROXY_AUTHORIZATION
        || *name == COOKIE
        || is_secret(name.as_str())
}

/// Names that people give to things they would not want to read in a key listing.
fn is_secret(name: &str) -> bool {
    const WORDS: [&[u8]; 8] = [
        b"key",
        b"token",
        b"secret",
        b"auth",
        b"password",
        b"session",
        b"signature",
        b"jwt",
    ];
    // Without a copy in lower case, and by its first letter before the rest: this runs for each
    // request.
    let name = name.as_bytes();
    (0..name.len()).any(|at| {
        let rest = &name[at..];
        WORDS.iter().any(|word| {
            rest[0] | 0x20 == word[0]
                && rest
                    .get(..word.len())
                    .is_some_and(|part| part.eq_ignore_ascii_case(word))
        })
    })
}
