//! Authentication by API keys: `spec` has the settings, `authenticator` the check of a request, and
//! `stored` the keys of a hash in the store. New keys are made here.

pub mod authenticator;
pub mod spec;
mod stored;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};

use super::key_table::hash;
pub use super::key_table::{ApiKeyTable, CredentialHash, RouteKeys};

/// A key that nobody has yet.
pub struct NewApiKey {
    pub key: String,
    /// The key's hash in hexadecimal digits.
    pub key_sha256: String,
}

impl NewApiKey {
    /// A key of 256 random bits. `None`: the system has none.
    pub fn generate() -> Option<Self> {
        let mut random = [0; 32];
        SystemRandom::new().fill(&mut random).ok()?;
        // The beginning tells those who search repositories for lost keys what it is.
        let key = format!("tg_{}", URL_SAFE_NO_PAD.encode(random));
        let key_sha256 = hash(key.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Some(Self { key, key_sha256 })
    }
}
