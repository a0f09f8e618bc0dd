//! API keys as data: where requests carry them, and where their hashes are.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::algorithm::token_bucket::TokenBucket;

use crate::method::{CredentialFile, CredentialFormat, CredentialPlace, MethodSpec};

/// API keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKeySpec {
    pub place: CredentialPlace,
    pub keys: ApiKeySource,
}

/// Where the hashes of keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiKeySource {
    File(PathBuf),
    Redis(StoredKeySpec),
    /// In policies: a route takes the keys of its application.
    Policies,
}

/// API keys in a hash of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKeySpec {
    /// The name of the hash, behind the prefix of the store's keys.
    pub hash: Arc<str>,
    /// How long a key that was read is not read again.
    pub remember: Duration,
    /// How long a key is taken after that while the store is away.
    pub grace: Duration,
    /// The unknown keys of a client address that are looked up.
    pub failed_attempts: TokenBucket,
}

impl MethodSpec for ApiKeySpec {
    fn place(&self) -> CredentialPlace {
        self.place.clone()
    }

    fn file(&self) -> Option<CredentialFile<'_>> {
        match &self.keys {
            ApiKeySource::File(path) => Some(CredentialFile {
                path,
                format: CredentialFormat::ApiKeys,
            }),
            ApiKeySource::Redis(_) | ApiKeySource::Policies => None,
        }
    }

    fn challenge(&self) -> Option<Cow<'static, str>> {
        Some("ApiKey realm=\"tollgate\"".into())
    }

    fn takes_policy_keys(&self) -> bool {
        self.keys == ApiKeySource::Policies
    }
}
