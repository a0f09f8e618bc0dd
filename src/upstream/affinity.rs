//! Requests that belong together go to one endpoint: by a hash of what they have in common, or by a
//! cookie.
//!
//! Guarantees that all gateways and all versions of this program find one endpoint for a key, and
//! that an endpoint which comes or goes moves no keys but its own share.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};
use tollgate_limiter::limit::key::{Facts, KeyPart, cookies};

/// The cookie by which clients stay with an endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct StickyCookie {
    pub name: Arc<str>,
    /// How long clients keep it. `None`: until they are closed.
    pub ttl: Option<Duration>,
    /// Clients send it over TLS only.
    pub secure: bool,
    /// Signs it: without this, nobody can tell which value stands for which endpoint.
    pub secret: Arc<str>,
}

/// A part that requests have in common: a hash, or the value of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affinity {
    // In halves: a whole would align the future of each exchange by 16 bytes, and the allocator is
    // slower with such.
    high: u64,
    low: u64,
}

impl Affinity {
    /// Of the request that `facts` describes. `None`: it lacks a part.
    pub fn of_key(parts: &[KeyPart], facts: &Facts<'_>) -> Option<Self> {
        let mut hash = Fnv1a::default();
        for part in parts {
            part.with_value(facts, |value| hash.write(value))?;
        }
        Some(Self::from_value(hash.0.into()))
    }

    /// Of the request that carries the cookie. Of several, one that could be ours: another server
    /// of the host may set it too. `None`: it has none of ours.
    pub fn of_cookie(cookie: &StickyCookie, headers: &HeaderMap) -> Option<Self> {
        cookies(headers, &cookie.name)
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

    /// Of an endpoint: what all gateways that have the cookie's secret know it by.
    pub fn of_endpoint(cookie: &StickyCookie, upstream: &str, url: &str) -> Self {
        let message = format!("{upstream}\n{url}");
        let mac = hmac_sha256(cookie.secret.as_bytes(), message.as_bytes());
        Self::from_value(
            mac.iter()
                .take(16)
                .fold(0, |value, byte| value << 8 | u128::from(*byte)),
        )
    }

    /// Its place among `count`, which is spread evenly over all keys.
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

impl StickyCookie {
    /// The `Set-Cookie` that sends a client back to the endpoint of `affinity`.
    pub fn set_cookie(&self, affinity: Affinity) -> Option<HeaderValue> {
        let mut text = format!(
            "{}={:032x}; Path=/; HttpOnly; SameSite=Lax",
            self.name,
            affinity.value()
        );
        if let Some(ttl) = self.ttl {
            // Writing to a String cannot fail.
            let _ = write!(text, "; Max-Age={}", ttl.as_secs());
        }
        if self.secure {
            text.push_str("; Secure");
        }
        HeaderValue::try_from(text).ok()
    }
}

impl std::fmt::Debug for StickyCookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StickyCookie")
            .field("name", &self.name)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
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
    let padded = |pad: u8| block.map(|byte| byte ^ pad);
    let inner = Sha256::new()
        .chain_update(padded(0x36))
        .chain_update(message)
        .finalize();
    Sha256::new()
        .chain_update(padded(0x5c))
        .chain_update(inner)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The endpoint of each of ten thousand keys, by its place.
    fn homes(endpoints: &[(&str, u64)]) -> Vec<usize> {
        let best = |key: u64| {
            let score = |place: &usize| {
                Affinity::from_value(mix(key).into())
                    .score(seed(endpoints[*place].0), endpoints[*place].1)
            };
            (0..endpoints.len())
                .max_by(|one, other| score(one).total_cmp(&score(other)))
                .unwrap()
        };
        (0..10_000).map(best).collect()
    }

    #[test]
    fn keys_are_spread_by_weight() {
        let homes = homes(&[("http://a", 1), ("http://b", 1), ("http://c", 2)]);
        let count = |place| homes.iter().filter(|home| **home == place).count();
        assert!(
            (2350..=2650).contains(&count(0)) && (2350..=2650).contains(&count(1)),
            "{} {}",
            count(0),
            count(1)
        );
        assert!((4800..=5200).contains(&count(2)), "{}", count(2));
    }

    #[test]
    fn an_endpoint_that_leaves_moves_its_own_keys_only_and_to_all_others() {
        let all = [
            ("http://a", 1),
            ("http://b", 1),
            ("http://c", 1),
            ("http://d", 1),
        ];
        let (before, after) = (homes(&all), homes(&all[..3]));
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
        let hex = |mac: [u8; 32]| {
            mac.iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
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
        let ours = "000000000000000000000000000000aF";
        let found = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(http::header::COOKIE, HeaderValue::from_str(line).unwrap());
            }
            Affinity::of_cookie(&cookie, &headers).map(Affinity::value)
        };
        let pair = |value: &str| format!("stick={value}");
        for others in ["bad", "", "1", "+00000000000000000000000000000af", "zz"] {
            let (ours, other) = (pair(ours), pair(others));
            assert_eq!(found(&[&format!("{ours}; {other}")]), Some(0xaf), "{other}");
            assert_eq!(
                found(&[&other, &format!("a=b; {ours}")]),
                Some(0xaf),
                "{other}"
            );
            assert_eq!(found(&[&other]), None, "{other}");
        }
    }

    #[test]
    fn a_cookie_says_nothing_of_its_endpoint_without_the_secret() {
        let cookie = |secret: &str| StickyCookie {
            name: "stick".into(),
            ttl: Some(Duration::from_secs(60)),
            secure: true,
            secret: secret.into(),
        };
        let (one, other) = (cookie("one"), cookie("other"));
        let value = Affinity::of_endpoint(&one, "up", "http://a");
        assert_ne!(value, Affinity::of_endpoint(&other, "up", "http://a"));
        assert_ne!(value, Affinity::of_endpoint(&one, "down", "http://a"));
        let field = one.set_cookie(value).unwrap();
        let attributes = "; Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure";
        assert_eq!(
            field.to_str().unwrap(),
            format!("stick={:032x}{attributes}", value.value())
        );
        assert!(!format!("{one:?}").contains("secret"));
    }
}
