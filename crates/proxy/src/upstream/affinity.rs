//! Requests that belong together go to one endpoint: by a hash of what they have in common, or by a
//! cookie.
//!
//! Guarantees that all gateways and all versions of this program find one endpoint for a key, and
//! that an endpoint which comes or goes moves no keys but its own share.

use std::fmt::Write as _;

use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};
use tollgate_limiter::limit::key::{Facts, KeyPart, cookie_values};

pub use super::spec::balance::StickyCookie;

/// A part that requests have in common: a hash, or the value of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affinity {
    // In halves: a whole would align the future of each exchange by 16 bytes, and the allocator is
    // slower with such.
    high: u64,
    low: u64,
}

impl Affinity {
    /// The affinity of the request that `facts` describes. `None`: it lacks a part.
    pub fn from_key(parts: &[KeyPart], facts: &Facts<'_>) -> Option<Self> {
        let mut hash = Fnv1a::default();
        for part in parts {
            part.with_value(facts, |value| hash.write(value))?;
        }
        Some(Self::from_value(hash.0.into()))
    }

    /// The affinity of a request that carries the cookie: the first that could be ours, since
    /// another server of the host may set one too. `None`: none is ours.
    pub fn from_cookie(cookie: &StickyCookie, headers: &HeaderMap) -> Option<Self> {
        cookie_values(headers, &cookie.name)
            .flatten()
            .find_map(|value| read(&value))
            .map(Self::from_value)
    }

    pub fn from_value(value: u128) -> Self {
        Self {
            high: (value >> 64) as u64,
            low: value as u64,
        }
    }

    fn value(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    /// The affinity of requests to an endpoint, as all gateways with the cookie's secret know it.
    pub fn for_endpoint(cookie: &StickyCookie, upstream: &str, url: &str) -> Self {
        let message = format!("{upstream}\n{url}");
        let mac = hmac_sha256(cookie.secret.as_bytes(), message.as_bytes());
        let mut value = 0;
        for byte in &mac[..16] {
            value = value << 8 | u128::from(*byte);
        }
        Self::from_value(value)
    }

    /// The place among `count`, which is spread evenly over all keys.
    pub fn place(self, count: u16) -> u16 {
        // Another constant than any endpoint's seed is likely to be: the keys of one part have all
        // endpoints.
        let mixed = mix(self.low ^ 0x5851_f42d_4c95_7f2d);
        ((u128::from(mixed) * u128::from(count)) >> 64) as u16
    }

    /// How well it suits an endpoint with this `seed` and `weight`: it goes where that is most
    /// (weighted rendezvous hashing).
    pub fn score(self, seed: u64, weight: u64) -> f64 {
        let mixed = mix(self.low ^ seed);
        // In (0, 1): the 52 bits that a double is exact for, and a half.
        let draw = ((mixed >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
        -(weight as f64) / draw.ln()
    }
}

/// The `Set-Cookie` that sends a client back to the endpoint of `affinity`.
pub fn set_cookie(cookie: &StickyCookie, affinity: Affinity) -> Option<HeaderValue> {
    let mut text = format!(
        "{}={:032x}; Path=/; HttpOnly; SameSite=Lax",
        cookie.name,
        affinity.value()
    );
    if let Some(ttl) = cookie.ttl {
        // Writing to a String cannot fail.
        let _ = write!(text, "; Max-Age={}", ttl.as_secs());
    }
    if cookie.secure {
        text.push_str("; Secure");
    }
    HeaderValue::try_from(text).ok()
}

/// The value of a cookie of ours: 32 hexadecimal digits.
fn read(value: &[u8]) -> Option<u128> {
    let digits = std::str::from_utf8(value)
        .ok()
        .filter(|text| text.len() == 32 && !text.starts_with('+'))?;
    u128::from_str_radix(digits, 16).ok()
}

/// The seed of the endpoint with this URL.
pub fn seed(url: &str) -> u64 {
    let mut hash = Fnv1a::default();
    hash.write(url.as_bytes());
    mix(hash.0)
}

/// FNV-1a, of 64 bits. Each value ends with a byte of its own, so that no two lists of values run
/// together.
struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1a {
    fn write(&mut self, value: &[u8]) {
        for byte in value.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// The end of SplitMix64: each bit depends on all.
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// RFC 2104.
fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x36))
        .chain_update(message)
        .finalize();
    Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x5c))
        .chain_update(inner)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The endpoint of each of ten thousand keys, by its place.
    fn homes(endpoints: &[(&str, u64)]) -> Vec<usize> {
        let mut homes = Vec::new();
        for key in 0..10_000 {
            let affinity = Affinity::from_value(mix(key).into());
            let scores = endpoints
                .iter()
                .map(|(url, weight)| affinity.score(seed(url), *weight));
            let best = scores
                .enumerate()
                .max_by(|(_, one), (_, other)| one.total_cmp(other));
            homes.push(best.unwrap().0);
        }
        homes
    }

    #[test]
    fn keys_are_spread_by_weight() {
        let homes = homes(&[("http://a", 1), ("http://b", 1), ("http://c", 2)]);
        for (place, range) in [2350..=2650, 2350..=2650, 4800..=5200].iter().enumerate() {
            let count = homes.iter().filter(|home| **home == place).count();
            assert!(range.contains(&count), "{place}: {count}");
        }
    }

    #[test]
    fn an_endpoint_that_leaves_moves_its_own_keys_only_and_to_all_others() {
        let all = [
            ("http://a", 1),
            ("http://b", 1),
            ("http://c", 1),
            ("http://d", 1),
        ];
        let before = homes(&all);
        let after = homes(&all[..3]);
        let mut taken = [0; 3];
        for (before, after) in before.iter().zip(&after) {
            if *before == 3 {
                taken[*after] += 1;
            } else {
                assert_eq!(before, after);
            }
        }
        assert!(
            taken.iter().all(|keys| (700..=970).contains(keys)),
            "{taken:?}"
        );
    }

    #[test]
    fn the_signature_is_that_of_rfc_4231() {
        fn hex(mac: [u8; 32]) -> String {
            mac.iter().map(|byte| format!("{byte:02x}")).collect()
        }
        let mac = hmac_sha256(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(
            hex(mac),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let long = hmac_sha256(
            &[0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
        );
        assert_eq!(
            hex(long),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn a_cookie_of_ours_is_found_beside_others_of_its_name() {
        let cookie = StickyCookie {
            name: "stick".into(),
            ttl: None,
            secure: false,
            secret: "secret".into(),
        };
        let ours = "stick=000000000000000000000000000000aF";
        for other in ["bad", "", "1", "+00000000000000000000000000000af", "zz"] {
            let other = format!("stick={other}");
            for (lines, found) in [
                (vec![format!("{ours}; {other}")], Some(0xaf)),
                (vec![other.clone(), format!("a=b; {ours}")], Some(0xaf)),
                (vec![other.clone()], None),
            ] {
                let mut headers = HeaderMap::new();
                for line in &lines {
                    headers.append(http::header::COOKIE, HeaderValue::from_str(line).unwrap());
                }
                let affinity = Affinity::from_cookie(&cookie, &headers);
                assert_eq!(affinity.map(Affinity::value), found, "{lines:?}");
            }
        }
    }

    #[test]
    fn a_cookie_says_nothing_of_its_endpoint_without_the_secret() {
        let one = StickyCookie {
            name: "stick".into(),
            ttl: Some(std::time::Duration::from_secs(60)),
            secure: true,
            secret: "one".into(),
        };
        let other = StickyCookie {
            secret: "other".into(),
            ..one.clone()
        };
        let value = Affinity::for_endpoint(&one, "up", "http://a");
        assert_ne!(value, Affinity::for_endpoint(&other, "up", "http://a"));
        assert_ne!(value, Affinity::for_endpoint(&one, "down", "http://a"));
        let field = set_cookie(&one, value).unwrap();
        let attributes = "; Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure";
        assert_eq!(
            field.to_str().unwrap(),
            format!("stick={:032x}{attributes}", value.value())
        );
        assert!(!format!("{one:?}").contains("secret"));
    }
}
