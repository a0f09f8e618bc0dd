//! The parts that tests of authenticators share: entries of files of keys, and how requests fared.

use sha2::{Digest, Sha256};

use crate::process::Gateway;

/// The entry of a file of keys for the client that has `key`. `rest`: its other members.
pub fn key_entry(key: &str, rest: &str) -> String {
    format!("- {{key_sha256: {}, {rest}}}\n", key_hash(key))
}

/// The SHA-256 of a key in hexadecimal digits.
pub fn key_hash(key: &str) -> String {
    Sha256::digest(key)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// How many requests had this outcome with the authenticator.
pub fn outcome(gateway: &Gateway, authenticator: &str, outcome: &str) -> f64 {
    let labels = format!("authenticator=\"{authenticator}\",outcome=\"{outcome}\"");
    gateway.metric(&format!("tollgate_authentications_total{{{labels}}}"))
}
