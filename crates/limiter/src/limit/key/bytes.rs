//! The bytes of a key, and how values are written into it.
//!
//! Guarantees that two different combinations of parts never give one key, whatever values a client
//! sends, and that long or secret values stand in it only as a hash.

use std::net::{IpAddr, Ipv6Addr};

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::limit::key::address_text::push_address;

/// The key of one bucket: the limit's name and whom it counts. Short keys live on the stack.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Key(pub SmallVec<[u8; 64]>);

impl Clone for Key {
    fn clone(&self) -> Self {
        // All at once: a SmallVec's own clone goes byte by byte.
        Self(SmallVec::from_slice(&self.0))
    }
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
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// An address as it stands in keys: by its prefix, and an IPv4 address always as such.
    pub fn from_ip(ip: IpAddr, ipv4_prefix: u8, ipv6_prefix: u8) -> Self {
        let mut key = Self(SmallVec::new());
        key.push_ip(ip, ipv4_prefix, ipv6_prefix);
        key
    }

    /// The bucket's name in logs: its limit, and a hash of the key that tells buckets apart without
    /// saying whose they are.
    pub fn redacted(&self, limit: &str) -> String {
        let mut text = format!("{limit}:#");
        for byte in &Sha256::digest(&self.0)[..8] {
            text.extend([byte >> 4, byte & 15].map(|nibble| char::from(hex(nibble))));
        }
        text
    }

    fn push_escaped(&mut self, value: &[u8]) {
        let mut rest = value;
        while let Some(at) = rest.iter().position(|byte| is_escaped(*byte)) {
            let byte = rest[at];
            self.0.extend_from_slice(&rest[..at]);
            self.0
                .extend_from_slice(&[b'%', hex(byte >> 4), hex(byte & 15)]);
            rest = &rest[at + 1..];
        }
        self.0.extend_from_slice(rest);
    }

    /// 128 bits of SHA-256: enough that no two values with one hash can be found.
    fn push_hash(&mut self, value: &[u8]) {
        self.0.push(HASHED);
        for byte in &Sha256::digest(value)[..16] {
            self.0.extend_from_slice(&[hex(byte >> 4), hex(byte & 15)]);
        }
    }

    /// A value as operators write it: as it is, or hashed as in keys. A value that looks like a
    /// hash is hashed, so that a client cannot pass for a value of which only the hash is known.
    pub(super) fn from_field(value: &[u8], secret: bool) -> Self {
        if secret || value.len() > LONGEST_IN_CLEAR || value.first() == Some(&HASHED) {
            let mut key = Self(SmallVec::new());
            key.push_hash(value);
            return key;
        }
        Self::from(value)
    }

    pub(super) fn push_value(&mut self, value: &[u8], secret: bool) {
        if secret || value.len() > LONGEST_IN_CLEAR {
            self.push_hash(value);
        } else {
            self.push_escaped(value);
        }
    }

    /// Stands for a part with several values.
    pub(super) fn push_different(&mut self) {
        self.0.extend_from_slice(DIFFERENT);
    }

    /// Stands for a part that the request lacks.
    pub(super) fn push_missing(&mut self) {
        self.0.push(MISSING);
    }

    /// Stands between two parts.
    pub(super) fn push_separator(&mut self) {
        self.0.push(SEPARATOR);
    }

    pub(super) fn push_ip(&mut self, ip: IpAddr, ipv4_prefix: u8, ipv6_prefix: u8) {
        let (masked, prefix, whole): (IpAddr, u8, u8) = match ip.to_canonical() {
            IpAddr::V4(v4) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(ipv4_prefix.min(32)))
                    .unwrap_or(0);
                ((u32::from(v4) & mask).to_be_bytes().into(), ipv4_prefix, 32)
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(ipv6_prefix.min(128)))
                    .unwrap_or(0);
                (
                    Ipv6Addr::from(u128::from(v6) & mask).into(),
                    ipv6_prefix,
                    128,
                )
            }
        };
        push_address(&mut self.0, masked);
        if prefix < whole {
            self.0.push(b'/');
            self.0
                .extend_from_slice(itoa::Buffer::new().format(prefix).as_bytes());
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

fn is_escaped(byte: u8) -> bool {
    matches!(byte, b'%' | SEPARATOR | HASHED | b'{' | b'}' | 0..=b' ' | 0x7f..)
}

fn hex(nibble: u8) -> u8 {
    b"0123456789abcdef"[usize::from(nibble & 15)]
}
