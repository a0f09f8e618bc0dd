//! An authenticator at work: looks for its credential in a request and says who sent it.
//!
//! Guarantees that it accepts nobody before it has what credentials are checked by.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tollgate_limiter::limit::key::{CallerIdentity, CertificatePart};

use super::api_key::ApiKeyTable;
use super::attempts::FailedAttempts;
use super::credential::FoundCredential;
use super::forward;
use super::metrics::AuthenticatorMetrics;
use super::password;
use super::password::checks::{PasswordCheck, PasswordChecks};
use super::password::spec::BasicSpec;
use super::password::user_table::UserTable;
use super::refusal::{AuthenticationRefusal, AuthenticationResult, VerifiedClient};
use super::source::CredentialSource;
use super::spec::{ApiKeySource, ApiKeySpec, AuthenticationMethod, AuthenticatorSpec};
use super::stored_key::{KeyLookup, StoredKeys};

/// An authenticator at work. Survives a reload that does not change it.
pub struct Authenticator {
    pub spec: Arc<AuthenticatorSpec>,
    pub metrics: AuthenticatorMetrics,
    material: ArcSwapOption<Material>,
    /// Of passwords.
    passwords: Option<PasswordState>,
    /// Of API keys in the store.
    stored_keys: Option<Arc<StoredKeys>>,
}

/// The means by which credentials are checked. They change while the authenticator is at work.
#[derive(Debug)]
pub enum Material {
    ApiKeys(ApiKeyTable),
    Users(Arc<UserTable>),
}

/// The attempts to authenticate by a password: those that failed, and those under way.
struct PasswordState {
    attempts: Arc<FailedAttempts>,
    checks: Arc<PasswordChecks>,
}

/// The verdict of an authenticator on a request.
pub enum Finding {
    /// It has no credential for this authenticator: another one may be asked.
    Absent,
    Decided(AuthenticationResult),
    /// It cannot say now. The future must end by itself, soon: nothing else bounds it.
    Waits(BoxFuture<'static, Awaited>),
}

/// The outcome of a wait.
pub enum Awaited {
    /// The authenticator has learnt something: it is to be asked again, and does not wait any more.
    AskAgain,
    Decided(AuthenticationResult),
}

const SENT_TWICE: AuthenticationRefusal = AuthenticationRefusal::Invalid("the credential is sent more than once");

impl Authenticator {
    pub fn new(spec: Arc<AuthenticatorSpec>) -> Self {
        let metrics = AuthenticatorMetrics::new(&spec.name);
        let passwords = match &spec.method {
            AuthenticationMethod::Basic(basic) => Some(PasswordState::new(&spec.name, basic)),
            _ => None,
        };
        let stored_keys = match &spec.method {
            AuthenticationMethod::ApiKey(ApiKeySpec { keys: ApiKeySource::Redis(stored), .. }) => {
                Some(Arc::new(StoredKeys::new(stored, &spec.name)))
            }
            _ => None,
        };
        Self { spec, metrics, material: ArcSwapOption::empty(), passwords, stored_keys }
    }

    /// Checks credentials by `material` from now on.
    pub fn install(&self, material: Material) {
        self.metrics.reloaded(Some(material.len()));
        if let (Some(Material::Users(before)), Material::Users(users)) = (self.material.load().as_deref(), &material)
            && before.is_same(users)
        {
            // It remembers passwords: not all clients are to be hashed again.
            return;
        }
        self.material.store(Some(Arc::new(material)));
    }

    /// Whether it has what credentials are checked by, or needs nothing.
    pub fn is_ready(&self) -> bool {
        self.spec.file().is_none() || self.material.load().is_some()
    }

    /// Looks for a credential, and checks it. An authenticator that `may_wait` no more decides by what it knows.
    pub fn check(&self, source: CredentialSource<'_>, _may_wait: bool) -> Finding {
        match &self.spec.method {
            AuthenticationMethod::ApiKey(spec) => self.check_key(spec, source),
            AuthenticationMethod::Basic(spec) => self.check_password(spec, source),
            AuthenticationMethod::Forward(spec) => {
                Finding::Waits(Box::pin(forward::ask(spec, &self.spec.name, source).map(Awaited::Decided)))
            }
            AuthenticationMethod::ClientCertificate(part) => self.check_certificate(*part, source),
        }
    }

    fn check_key(&self, spec: &ApiKeySpec, source: CredentialSource<'_>) -> Finding {
        let key = match spec.place.find(source.uri, source.headers) {
            FoundCredential::Absent => return Finding::Absent,
            FoundCredential::Several => return Finding::Decided(Err(SENT_TWICE)),
            FoundCredential::One(key) => key,
        };
        if let Some(stored) = &self.stored_keys {
            return match stored.check(&key, source.client_ip, source.exchange.limiter) {
                KeyLookup::Decided(result) => Finding::Decided(result.map(VerifiedClient::from)),
                KeyLookup::Waits(result) => {
                    Finding::Waits(Box::pin(result.map(|result| Awaited::Decided(result.map(VerifiedClient::from)))))
                }
            };
        }
        let material = self.material.load();
        let Some(Material::ApiKeys(table)) = material.as_deref() else {
            return Finding::Decided(Err(AuthenticationRefusal::Unavailable("the keys are not known yet")));
        };
        Finding::Decided(
            table
                .find(&key)
                .map(VerifiedClient::from)
                .ok_or(AuthenticationRefusal::Invalid("the API key is not known")),
        )
    }

    fn check_password(&self, spec: &BasicSpec, source: CredentialSource<'_>) -> Finding {
        let credential = match self.spec.place().find(source.uri, source.headers) {
            FoundCredential::Absent => return Finding::Absent,
            FoundCredential::Several => return Finding::Decided(Err(SENT_TWICE)),
            FoundCredential::One(credential) => credential,
        };
        let material = self.material.load();
        let (Some(Material::Users(users)), Some(state)) = (material.as_deref(), &self.passwords) else {
            return Finding::Decided(Err(AuthenticationRefusal::Unavailable("the users are not known yet")));
        };
        let Some((name, password)) = password::read(&credential) else {
            return Finding::Decided(Err(AuthenticationRefusal::Invalid(
                "the credential is no user name and password",
            )));
        };
        let digest = users.digest(&name, &password);
        if let Some(identity) = users.remembered(&digest) {
            return Finding::Decided(Ok(identity.into()));
        }
        let check = PasswordCheck { users: users.clone(), name, password, remember: spec.remember };
        match state.checks.start(check, digest, &state.attempts, source.client_ip) {
            Ok(result) => {
                Finding::Waits(Box::pin(result.map(|result| Awaited::Decided(result.map(VerifiedClient::from)))))
            }
            Err(refusal) => Finding::Decided(Err(refusal)),
        }
    }

    fn check_certificate(&self, part: CertificatePart, source: CredentialSource<'_>) -> Finding {
        let Some(certificate) = source.client_certificate else { return Finding::Absent };
        let id = part.of(certificate).ok_or(AuthenticationRefusal::Forbidden("the certificate has no such name"));
        Finding::Decided(id.map(|id| Arc::new(CallerIdentity::new(&self.spec.name, id)).into()))
    }
}

impl Material {
    /// How many credentials, or keys for them.
    pub fn len(&self) -> usize {
        match self {
            Self::ApiKeys(table) => table.len(),
            Self::Users(table) => table.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl PasswordState {
    fn new(name: &str, spec: &BasicSpec) -> Self {
        let attempts = Arc::new(FailedAttempts::new(spec.failed_attempts));
        Self { attempts, checks: Arc::new(PasswordChecks::new(name)) }
    }
}
