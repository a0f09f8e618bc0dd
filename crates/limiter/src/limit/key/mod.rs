//! Whom a limit counts: the parts a bucket's key is made of, and how they are read from a request.
//!
//! Guarantees that two different combinations of parts never give one key, whatever a client puts into them, and that
//! long or secret values leave only as a hash. Knows nothing of limits or stores.

pub mod address_text;
pub mod host;

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use http::{Extensions, HeaderMap, HeaderName, Method, Uri};
use percent_encoding::percent_decode;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::limit::key::address_text as text;
use crate::limit::key::host::RequestHost;

/// The key of one bucket: the limit's name and whom it counts. Short keys live on the stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub SmallVec<[u8; 64]>);

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
    /// A closure of whoever uses the limiter as a library. The configuration file has no such thing.
    Custom(CustomKey),
}

/// What a closure reads from a request.
#[derive(Clone)]
pub struct CustomKey {
    name: Arc<str>,
    read: Arc<ReadKey>,
}

type ReadKey = dyn Fn(&Facts<'_>) -> Option<String> + Send + Sync;

impl CustomKey {
    /// `name` stands in messages.
    pub fn new(name: &str, read: impl Fn(&Facts<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { name: name.into(), read: Arc::new(read) }
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Debug for CustomKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CustomKey").field(&self.name).finish()
    }
}

/// The same closure, not one that does the same.
impl PartialEq for CustomKey {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.read, &other.read)
    }
}

impl Eq for CustomKey {}

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

/// What a key can be made of.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    pub method: &'a Method,
    pub uri: &'a Uri,
    pub headers: &'a HeaderMap,
    /// What layers outside put into the request.
    pub extensions: Option<&'a Extensions>,
    /// Bytes of the body. `None`: not known before it has been read.
    pub body_length: Option<u64>,
    /// `None` where the transport has no addresses.
    pub client_ip: Option<IpAddr>,
    pub host: RequestHost<'a>,
    pub route: &'a str,
    /// Looks a path parameter up.
    pub param: &'a dyn Fn(&str) -> Option<&'a str>,
}

/// What became of a key.
#[derive(Debug, PartialEq, Eq)]
pub enum ExtractedKey {
    Key(Key),
    /// A part is missing and the limit does not apply without it.
    Skip,
    /// A part is missing and the request is refused.
    Refuse,
}

/// Values up to this long stand in a key as they are, in bytes.
const LONGEST_IN_CLEAR: usize = 64;
/// Stands for a missing part. No value can look like it: `%` is escaped in values.
const MISSING: u8 = b'%';
/// Stands for values that differ, after the byte that no value has alone.
const DIFFERENT: &[u8] = b"%%";
/// Before a hash. Escaped at the start of values, for the same reason.
const HASHED: u8 = b'#';
const SEPARATOR: u8 = b'|';

impl Key {
    /// The bytes that identify the bucket, in this process and in the store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// An address as keys have it: by its prefix, and an IPv4 address always as such.
    pub fn of_ip(ip: IpAddr, ipv4_prefix: u8, ipv6_prefix: u8) -> Self {
        let mut key = Self(SmallVec::new());
        key.push_ip(ip, ipv4_prefix, ipv6_prefix);
        key
    }

    fn push_escaped(&mut self, value: &[u8]) {
        let mut rest = value;
        while let Some(at) = rest.iter().position(|byte| is_escaped(*byte)) {
            let byte = rest[at];
            self.0.extend_from_slice(&rest[..at]);
            self.0.extend_from_slice(&[b'%', hex(byte >> 4), hex(byte & 15)]);
            rest = &rest[at + 1..];
        }
        self.0.extend_from_slice(rest);
    }

    /// 128 bits of SHA-256: enough that nobody finds two values of one hash.
    fn push_hash(&mut self, value: &[u8]) {
        self.0.push(HASHED);
        for byte in &Sha256::digest(value)[..16] {
            self.0.extend_from_slice(&[hex(byte >> 4), hex(byte & 15)]);
        }
    }

    /// A value as operators write it: as it is, or hashed as in keys. A value that looks like a hash is hashed, so that
    /// nobody passes for a value of which only the hash is known.
    fn of_field(value: &[u8], secret: bool) -> Self {
        if secret || value.len() > LONGEST_IN_CLEAR || value.first() == Some(&HASHED) {
            let mut key = Self(SmallVec::new());
            key.push_hash(value);
            return key;
        }
        Self::from(value)
    }

    fn push_value(&mut self, value: &[u8], secret: bool) {
        if secret || value.len() > LONGEST_IN_CLEAR {
            self.push_hash(value);
        } else {
            self.push_escaped(value);
        }
    }

    /// What a client may repeat. Values that differ all count as one: which of them an upstream takes, nobody knows, and any
    /// other choice would let a second value stand for a bucket of one's own.
    fn push_only<V: AsRef<[u8]>>(&mut self, mut values: impl Iterator<Item = V>, secret: bool) -> Option<()> {
        let first = values.next()?;
        if values.all(|value| value.as_ref() == first.as_ref()) {
            self.push_value(first.as_ref(), secret);
        } else {
            self.0.extend_from_slice(DIFFERENT);
        }
        Some(())
    }

    fn push_ip(&mut self, ip: IpAddr, ipv4_prefix: u8, ipv6_prefix: u8) {
        let (masked, prefix, whole): (IpAddr, u8, u8) = match ip.to_canonical() {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(ipv4_prefix.min(32))).unwrap_or(0);
                ((u32::from(v4) & mask).to_be_bytes().into(), ipv4_prefix, 32)
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(ipv6_prefix.min(128))).unwrap_or(0);
                (Ipv6Addr::from(u128::from(v6) & mask).into(), ipv6_prefix, 128)
            }
        };
        text::push_address(&mut self.0, masked);
        if prefix < whole {
            self.0.push(b'/');
            self.0.extend_from_slice(itoa::Buffer::new().format(prefix).as_bytes());
        }
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(SmallVec::from_slice(text.as_bytes()))
    }
}

impl KeySpec {
    /// The key of a request's bucket under the limit called `limit`.
    pub fn extract(&self, limit: &str, facts: &Facts<'_>) -> ExtractedKey {
        let mut key = Key::from(limit);
        key.0.push(b':');
        for (at, part) in self.parts.iter().enumerate() {
            if at > 0 {
                key.0.push(SEPARATOR);
            }
            if part.push(&mut key, facts).is_none() {
                match self.on_missing {
                    OnMissing::Share => key.0.push(MISSING),
                    OnMissing::Skip => return ExtractedKey::Skip,
                    OnMissing::Refuse => return ExtractedKey::Refuse,
                }
            }
        }
        ExtractedKey::Key(key)
    }
}

impl KeyPart {
    /// Lends what this part of the request says, as it stands there: escaped and hashed by nobody. `None`: the request
    /// lacks it, or has it twice with different values.
    pub fn with_value<T>(&self, facts: &Facts<'_>, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let looked = match self {
            Self::ClientIp { ipv4_prefix, ipv6_prefix } => {
                look(Key::of_ip(facts.client_ip?, *ipv4_prefix, *ipv6_prefix).as_bytes())
            }
            Self::Header(name) => look(only(facts.headers.get_all(name).iter())?.as_bytes()),
            Self::Cookie(name) => look(only(cookies(facts.headers, name))?),
            Self::Query(name) => look(&only(parameters(facts.uri.query()?, name))?),
            Self::PathParam(name) => look((facts.param)(name)?.as_bytes()),
            Self::Method => look(facts.method.as_str().as_bytes()),
            Self::Host => look(Some(facts.host.find()).filter(|host| !host.is_empty())?.as_bytes()),
            Self::Route => look(facts.route.as_bytes()),
            Self::Constant(text) => look(text.as_bytes()),
            Self::Custom(custom) => look((custom.read)(facts)?.as_bytes()),
        };
        Some(looked)
    }

    /// What [`Self::with_value`] lends, as the field of a hash that operators write: as it is up to 64 bytes, and else, if it is a
    /// secret, or if it begins with `#`, that and the first 32 hexadecimal digits of its SHA-256. Always on the stack.
    pub fn field(&self, facts: &Facts<'_>) -> Option<Key> {
        self.with_value(facts, |value| Key::of_field(value, self.is_secret()))
    }

    /// Whether what it says leaves the process only as a hash.
    pub fn is_secret(&self) -> bool {
        match self {
            Self::Header(name) => is_secret_header(name),
            Self::Cookie(_) => true,
            Self::Query(name) | Self::PathParam(name) => is_secret(name),
            Self::Custom(_) => true,
            Self::ClientIp { .. } | Self::Method | Self::Host | Self::Route | Self::Constant(_) => false,
        }
    }

    /// Appends this part of the request to the key. `None`: the request lacks it.
    fn push(&self, key: &mut Key, facts: &Facts<'_>) -> Option<()> {
        let secret = self.is_secret();
        match self {
            Self::ClientIp { ipv4_prefix, ipv6_prefix } => key.push_ip(facts.client_ip?, *ipv4_prefix, *ipv6_prefix),
            Self::Header(name) => key.push_only(facts.headers.get_all(name).iter(), secret)?,
            Self::Cookie(name) => key.push_only(cookies(facts.headers, name), secret)?,
            Self::Query(name) => key.push_only(parameters(facts.uri.query()?, name), secret)?,
            Self::PathParam(name) => key.push_value((facts.param)(name)?.as_bytes(), secret),
            Self::Method => key.push_value(facts.method.as_str().as_bytes(), secret),
            Self::Host => key.push_value(Some(facts.host.find()).filter(|host| !host.is_empty())?.as_bytes(), secret),
            Self::Route => key.push_value(facts.route.as_bytes(), secret),
            Self::Constant(text) => key.push_value(text.as_bytes(), secret),
            Self::Custom(custom) => key.push_value((custom.read)(facts)?.as_bytes(), secret),
        }
        Some(())
    }
}

/// What all values agree on.
fn only<V: PartialEq>(mut values: impl Iterator<Item = V>) -> Option<V> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

/// The values of the cookies called `name`.
fn cookies<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a [u8]> {
    let pairs = headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b';'));
    pairs.filter_map(move |pair| {
        let (found, value) = pair.trim_ascii().split_at_checked(name.len())?;
        (found == name.as_bytes()).then(|| value.strip_prefix(b"="))?
    })
}

/// The values of the query parameters called `name`.
fn parameters<'a>(query: &'a str, name: &str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    query.split('&').filter_map(move |pair| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        (found == name || *form_decode(found) == *name.as_bytes()).then(|| form_decode(value))
    })
}

/// As forms are written: `+` is a space, then percent-encoding.
fn form_decode(text: &str) -> Cow<'_, [u8]> {
    if !text.bytes().any(|byte| byte == b'+' || byte == b'%') {
        return text.as_bytes().into();
    }
    let spaced: Vec<u8> = text.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    percent_decode(&spaced).collect::<Vec<_>>().into()
}

fn is_secret_header(name: &HeaderName) -> bool {
    *name == AUTHORIZATION || *name == PROXY_AUTHORIZATION || *name == COOKIE || is_secret(name.as_str())
}

/// Names that people give to things they would not want to read in a key listing.
fn is_secret(name: &str) -> bool {
    const WORDS: [&[u8]; 8] = [b"key", b"token", b"secret", b"auth", b"password", b"session", b"signature", b"jwt"];
    // Without a copy in lower case, and by its first letter before the rest: it is asked for each request.
    let begins = |rest: &[u8], word: &[u8]| {
        rest[0] | 0x20 == word[0] && rest.get(..word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word))
    };
    let name = name.as_bytes();
    (0..name.len()).any(|at| WORDS.iter().any(|word| begins(&name[at..], word)))
}

fn is_escaped(byte: u8) -> bool {
    matches!(byte, b'%' | SEPARATOR | HASHED | b'{' | b'}' | 0..=b' ' | 0x7f..)
}

fn hex(nibble: u8) -> u8 {
    b"0123456789abcdef"[usize::from(nibble & 15)]
}

#[cfg(test)]
mod tests;
