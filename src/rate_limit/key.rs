//! Whom a limit counts: the parts a bucket's key is made of.

use std::sync::Arc;

use http::HeaderName;
use smallvec::SmallVec;

/// The key of one bucket: the limit's name and whom it counts. Short keys live on the stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub SmallVec<[u8; 64]>);

impl Key {
    /// The bytes that identify the bucket, in this process and in the store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(SmallVec::from_slice(text.as_bytes()))
    }
}

/// How a request is turned into the key of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    pub parts: Vec<KeyPart>,
    pub on_missing: OnMissing,
}

/// One ingredient of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The client's address; IPv6 addresses count by their leading `ipv6_prefix` bits, IPv4 by `ipv4_prefix`.
    ClientIp {
        ipv4_prefix: u8,
        ipv6_prefix: u8,
    },
    Header(HeaderName),
    /// A cookie by name (RFC 6265 §4.2).
    Cookie(Arc<str>),
    /// A query parameter by name, percent-decoded.
    Query(Arc<str>),
    /// A `{name}` of the route's path.
    PathParam(Arc<str>),
    Method,
    Host,
    Route,
    /// The same for every request.
    Constant(Arc<str>),
}

/// What happens when a part of the key is not in the request.
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
