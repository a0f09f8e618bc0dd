//! API keys by their hash, with the clients that have them.
//!
//! Guarantees that no key is compared: the table is searched by SHA-256, so time tells nothing of a
//! key that nearly fits.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tollgate_limiter::limit::key::CallerIdentity;

/// The SHA-256 of a credential.
pub type CredentialHash = [u8; 32];

/// Clients by the hash of their key. A client may have several. The table hashes these hashes with
/// a seed: owners of applications write them, and could choose ones that meet in a table.
#[derive(Default, PartialEq, Eq)]
pub struct ApiKeyTable(HashMap<CredentialHash, Arc<CallerIdentity>>);

/// The API keys of policies: each route takes those of its application, and has no others to look
/// in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteKeys {
    by_route: HashMap<String, Arc<ApiKeyTable>>,
    none: Arc<ApiKeyTable>,
}

impl RouteKeys {
    /// The keys that the route called `name` takes.
    pub fn of(&self, name: &str) -> Arc<ApiKeyTable> {
        self.by_route.get(name).unwrap_or(&self.none).clone()
    }

    pub fn add(&mut self, route: String, keys: Arc<ApiKeyTable>) {
        self.by_route.insert(route, keys);
    }
}

/// The hash of `credential`.
pub fn hash(credential: &[u8]) -> CredentialHash {
    Sha256::digest(credential).into()
}

impl ApiKeyTable {
    /// The client that has `key`.
    pub fn find(&self, key: &[u8]) -> Option<Arc<CallerIdentity>> {
        self.0.get(&hash(key)).cloned()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(CredentialHash, Arc<CallerIdentity>)> for ApiKeyTable {
    fn from_iter<I: IntoIterator<Item = (CredentialHash, Arc<CallerIdentity>)>>(keys: I) -> Self {
        Self(keys.into_iter().collect())
    }
}

/// Only the count is shown: the hashes of weak keys can be guessed.
impl fmt::Debug for ApiKeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeyTable({} keys)", self.len())
    }
}
