//! Secrets of sessions and tokens: 256 random bits, of which only the SHA-256 is stored. `password`
//! has the secrets that people choose.

pub mod password;

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

use super::error::PeopleError;

/// 256 bits in Base64 without padding.
const ENCODED_BYTES: usize = 43;

/// A secret that is shown once, to its owner.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The beginning of a secret names its kind, for people who find one in the wrong place.
    pub(super) fn new(beginning: &str) -> Result<Self, PeopleError> {
        let bits: [u8; 32] = random()?;
        Ok(Self(format!("{beginning}{}", URL_SAFE_NO_PAD.encode(bits))))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    pub(super) fn hash(&self) -> String {
        sha256(self.0.as_bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Whether `text` looks like one, so that nobody asks the database for what it cannot have.
pub fn is_secret(beginning: &str, text: &str) -> bool {
    match text.strip_prefix(beginning) {
        Some(rest) => rest.len() == ENCODED_BYTES && rest.bytes().all(is_of_base64),
        None => false,
    }
}

fn is_of_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// In hex. All that is stored: bits that were drawn at random need no slow hash.
pub fn sha256(bytes: &[u8]) -> String {
    in_hex(&Sha256::digest(bytes))
}

pub fn in_hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// The bytes that [`in_hex`] has written.
pub fn from_hex(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if hex.len() != 2 * bytes.len() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

pub fn random<const N: usize>() -> Result<[u8; N], PeopleError> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| PeopleError::NoRandomness)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_are_not_shown() {
        let one = Secret::new("tgt_").unwrap();
        let other = Secret::new("tgt_").unwrap();
        assert_ne!(one.expose(), other.expose());
        assert!(is_secret("tgt_", one.expose()) && !is_secret("tgs_", one.expose()));
        for other in [
            &format!("{}A", one.expose()),
            &one.expose()[..46],
            &one.expose().replace(&one.expose()[9..10], "é"),
            "",
        ] {
            assert!(!is_secret("tgt_", other), "{other}");
        }
        assert_eq!(format!("{one:?}"), "Secret(…)");
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
