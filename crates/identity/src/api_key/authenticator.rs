//! Checks API keys: those of a file, of the store, or of policies.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::spec::{ApiKeySource, ApiKeySpec};
use super::stored::{KeyLookup, StoredKeys};
use crate::authenticator::{self, Authenticator, BuildContext, CredentialSet, Finding};
use crate::key_table::ApiKeyTable;
use crate::method::CredentialPlace;
use crate::refusal::AuthenticationRefusal;
use crate::source::CredentialSource;

const UNKNOWN: AuthenticationRefusal = AuthenticationRefusal::Invalid("the API key is not known");
const NO_KEYS: AuthenticationRefusal =
    AuthenticationRefusal::Unavailable("the keys are not known yet");

/// Authenticates clients by API keys.
pub struct ApiKeyAuthenticator {
    place: CredentialPlace,
    keys: KnownKeys,
}

enum KnownKeys {
    /// The keys of a file, once it was read.
    File(ArcSwapOption<ApiKeyTable>),
    Store(Arc<StoredKeys>),
    /// The keys that a route has from policies.
    Policies,
}

impl ApiKeyAuthenticator {
    pub fn new(spec: &ApiKeySpec, context: BuildContext<'_>) -> Self {
        let keys = match &spec.keys {
            ApiKeySource::File(_) => KnownKeys::File(ArcSwapOption::empty()),
            ApiKeySource::Redis(stored) => {
                KnownKeys::Store(Arc::new(StoredKeys::new(stored, context.name)))
            }
            ApiKeySource::Policies => KnownKeys::Policies,
        };
        Self {
            place: spec.place.clone(),
            keys,
        }
    }
}

impl Authenticator for ApiKeyAuthenticator {
    fn check(&self, source: CredentialSource<'_>, policy_keys: Option<&ApiKeyTable>) -> Finding {
        let key = match authenticator::read(&self.place, source) {
            Ok(key) => key,
            Err(finding) => return finding,
        };
        match &self.keys {
            KnownKeys::File(table) => find(table.load().as_deref(), &key),
            KnownKeys::Policies => find(policy_keys, &key),
            KnownKeys::Store(keys) => {
                match keys.check(&key, source.client_ip, source.exchange.limiter) {
                    KeyLookup::Decided(result) => Finding::checked(result),
                    KeyLookup::Waits(result) => Finding::checking(result),
                }
            }
        }
    }

    fn install(&self, credentials: Box<dyn CredentialSet>) {
        if let KnownKeys::File(table) = &self.keys
            && let Some(read) = credentials.downcast::<ApiKeyTable>()
        {
            table.store(Some(Arc::from(read)));
        }
    }
}

impl CredentialSet for ApiKeyTable {
    fn count(&self) -> usize {
        self.len()
    }
}

fn find(table: Option<&ApiKeyTable>, key: &[u8]) -> Finding {
    let Some(table) = table else {
        return Finding::refused(NO_KEYS);
    };
    match table.find(key) {
        Some(identity) => Finding::Decided(Ok(identity.into())),
        None => Finding::refused(UNKNOWN),
    }
}
