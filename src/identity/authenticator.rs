//! An authenticator at work: looks for its credential in a request and says who sent it.
//!
//! Guarantees that it accepts nobody before it has what credentials are checked by.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tollgate_limiter::limit::key::{CallerIdentity, CertificatePart};

use super::api_key::ApiKeyTable;
use super::credential::{CredentialPlace, FoundCredential};
use super::forward;
use super::forward::cache::AnswerCache;
use super::jwt::issuer::IssuerFetches;
use super::jwt::key_set::KeySet;
use super::jwt::spec::{JwtSpec, KeySetUrl};
use super::jwt::{TokenFault, TokenVerifier};
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
    passwords: Option<Arc<PasswordChecks>>,
    /// Of API keys in the store.
    stored_keys: Option<Arc<StoredKeys>>,
    /// Of a service that is asked, if its answers are kept.
    answers: Option<Arc<AnswerCache>>,
    /// Of one that checks tokens.
    verifier: Option<TokenVerifier>,
    fetches: Arc<IssuerFetches>,
}

/// The means by which credentials are checked. They change while the authenticator is at work.
#[derive(Debug)]
pub enum Material {
    ApiKeys(ApiKeyTable),
    Users(Arc<UserTable>),
    KeySet(KeySet),
}

/// The verdict of an authenticator on a request.
pub enum Finding {
    /// It has no credential for this authenticator: another one may be asked.
    Absent,
    /// It has one that is another authenticator's, by its own words.
    Foreign,
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

const NO_KEYS: &str = "the issuer's keys are not known yet";
const OLD_KEYS: &str = "the issuer's keys could not be fetched for too long";
const UNKNOWN_KEY: AuthenticationRefusal =
    AuthenticationRefusal::Invalid("the token is signed by a key that the issuer does not have");
const TOO_MANY_WAIT: AuthenticationRefusal = AuthenticationRefusal::Undecided(
    "too many tokens with keys that are not known wait for the issuer",
);
const SENT_TWICE: AuthenticationRefusal =
    AuthenticationRefusal::Invalid("the credential is sent more than once");

impl Authenticator {
    /// In place of the one `before` by its name, whose keys it goes on with if their issuer is the
    /// same.
    pub fn new(spec: Arc<AuthenticatorSpec>, before: Option<&Self>) -> Self {
        let metrics = AuthenticatorMetrics::new(&spec.name);
        let passwords = match &spec.method {
            AuthenticationMethod::Basic(basic) => Some(Arc::new(PasswordChecks::new(
                &spec.name,
                basic.failed_attempts,
            ))),
            _ => None,
        };
        let stored_keys = match &spec.method {
            AuthenticationMethod::ApiKey(ApiKeySpec {
                keys: ApiKeySource::Redis(stored),
                ..
            }) => Some(Arc::new(StoredKeys::new(stored, &spec.name))),
            _ => None,
        };
        let answers = match &spec.method {
            AuthenticationMethod::Forward(forward) => forward.cache.as_ref(),
            _ => None,
        };
        let answers = answers.map(|cache| Arc::new(AnswerCache::new(cache, &spec.name)));
        let verifier = match &spec.method {
            AuthenticationMethod::Jwt(jwt) => Some(TokenVerifier::new(jwt)),
            _ => None,
        };
        let (material, fetches) = (ArcSwapOption::empty(), Arc::default());
        let mut this = Self {
            spec,
            metrics,
            material,
            passwords,
            stored_keys,
            answers,
            verifier,
            fetches,
        };
        let running = before.and_then(|before| Some((before, before.issuer()?)));
        if let Some((before, (url, fetches))) = running
            && this.issuer().is_some_and(|(own, _)| own == url)
        {
            this.material.store(before.material.load_full());
            this.fetches = Arc::new(fetches.successor());
        }
        this
    }

    /// Checks credentials by `material` from now on.
    pub fn install(&self, material: Material) {
        self.metrics.reloaded(Some(material.len()));
        if let (Some(Material::Users(before)), Material::Users(users)) =
            (self.material.load().as_deref(), &material)
            && before.is_same(users)
        {
            // It remembers passwords: not all clients are to be hashed again.
            return;
        }
        self.material.store(Some(Arc::new(material)));
    }

    /// Where the keys of its issuer are fetched, if they are.
    pub fn issuer(&self) -> Option<(&KeySetUrl, &Arc<IssuerFetches>)> {
        match &self.spec.method {
            AuthenticationMethod::Jwt(spec) => spec.url().map(|url| (url, &self.fetches)),
            _ => None,
        }
    }

    /// Looks for a credential, and checks it, an API key of policies by those of the route. An
    /// authenticator that `may_wait` no more decides by what it knows.
    pub fn check(
        &self,
        source: CredentialSource<'_>,
        keys: Option<&ApiKeyTable>,
        may_wait: bool,
    ) -> Finding {
        match &self.spec.method {
            AuthenticationMethod::ApiKey(spec) => self.check_key(spec, source, keys),
            AuthenticationMethod::Basic(spec) => self.check_password(spec, source),
            AuthenticationMethod::Forward(spec) => {
                match forward::ask(spec, &self.spec.name, self.answers.as_ref(), source) {
                    ControlFlow::Break(client) => Finding::Decided(Ok(client)),
                    ControlFlow::Continue(answer) => {
                        Finding::Waits(Box::pin(answer.map(Awaited::Decided)))
                    }
                }
            }
            AuthenticationMethod::Jwt(spec) => self.check_token(spec, source, may_wait),
            AuthenticationMethod::ClientCertificate(part) => self.check_certificate(*part, source),
        }
    }

    fn check_key(
        &self,
        spec: &ApiKeySpec,
        source: CredentialSource<'_>,
        keys: Option<&ApiKeyTable>,
    ) -> Finding {
        let key = match spec.place.find(source.uri, source.headers) {
            FoundCredential::Absent => return Finding::Absent,
            FoundCredential::Several => return Finding::Decided(Err(SENT_TWICE)),
            FoundCredential::One(key) => key,
        };
        if let Some(stored) = &self.stored_keys {
            return match stored.check(&key, source.client_ip, source.exchange.limiter) {
                KeyLookup::Decided(result) => Finding::Decided(result.map(VerifiedClient::from)),
                KeyLookup::Waits(result) => Finding::Waits(Box::pin(
                    result.map(|result| Awaited::Decided(result.map(VerifiedClient::from))),
                )),
            };
        }
        let material = self.material.load();
        let table = match (&spec.keys, material.as_deref()) {
            (ApiKeySource::Policies, _) => keys,
            (_, Some(Material::ApiKeys(table))) => Some(table),
            _ => None,
        };
        let Some(table) = table else {
            return Finding::Decided(Err(AuthenticationRefusal::Unavailable(
                "the keys are not known yet",
            )));
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
        let (Some(Material::Users(users)), Some(checks)) = (material.as_deref(), &self.passwords)
        else {
            return Finding::Decided(Err(AuthenticationRefusal::Unavailable(
                "the users are not known yet",
            )));
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
        let check = PasswordCheck {
            users: users.clone(),
            name,
            password,
            remember: spec.remember,
        };
        match checks.start(check, digest, source.client_ip) {
            Ok(result) => Finding::Waits(Box::pin(
                result.map(|result| Awaited::Decided(result.map(VerifiedClient::from))),
            )),
            Err(refusal) => Finding::Decided(Err(refusal)),
        }
    }

    fn check_token(&self, spec: &JwtSpec, source: CredentialSource<'_>, may_wait: bool) -> Finding {
        let found = match spec.place.find(source.uri, source.headers) {
            FoundCredential::Absent => return Finding::Absent,
            FoundCredential::Several => return Finding::Decided(Err(SENT_TWICE)),
            FoundCredential::One(found) => found,
        };
        let token = match spec.place {
            CredentialPlace::Header(_) => without_scheme(&found),
            _ => &found,
        };
        let Some(verifier) = &self.verifier else {
            return self.await_keys(may_wait, source.client_ip, NO_KEYS);
        };
        // An issuer that is away does not keep tokens of others waiting.
        let without_keys = |reason| match verifier.check_without_keys(spec, token) {
            Err(TokenFault::Foreign) => Finding::Foreign,
            Err(TokenFault::Refused(refusal)) => Finding::Decided(Err(refusal)),
            Ok(()) | Err(TokenFault::UnknownKey) => {
                self.await_keys(may_wait, source.client_ip, reason)
            }
        };
        let material = self.material.load();
        let Some(Material::KeySet(keys)) = material.as_deref() else {
            return without_keys(NO_KEYS);
        };
        if spec
            .url()
            .is_some_and(|url| !self.fetches.is_fresh(url.stale))
        {
            return without_keys(OLD_KEYS);
        }
        match verifier.check(&self.spec.name, spec, keys, token) {
            Ok(identity) => Finding::Decided(Ok(identity.into())),
            Err(TokenFault::Foreign) => Finding::Foreign,
            Err(TokenFault::Refused(refusal)) => Finding::Decided(Err(refusal)),
            Err(TokenFault::UnknownKey) => {
                let Some((url, fetches)) = self.issuer().filter(|_| may_wait) else {
                    return Finding::Decided(Err(UNKNOWN_KEY));
                };
                // Nobody has looked for its key: it may be a good one.
                let wait = fetches.next(url.timeout, source.client_ip);
                wait.map_or(Finding::Decided(Err(TOO_MANY_WAIT)), ask_again_after)
            }
        }
    }

    /// Waits for the keys, if they are on their way.
    fn await_keys(&self, may_wait: bool, ip: IpAddr, reason: &'static str) -> Finding {
        let issuer = self.issuer().filter(|_| may_wait);
        let wait = issuer.and_then(|(url, fetches)| fetches.current(url.timeout, ip));
        wait.map_or(
            Finding::Decided(Err(AuthenticationRefusal::Unavailable(reason))),
            ask_again_after,
        )
    }

    fn check_certificate(&self, part: CertificatePart, source: CredentialSource<'_>) -> Finding {
        let Some(certificate) = source.client_certificate else {
            return Finding::Absent;
        };
        let id = part
            .value(certificate)
            .ok_or(AuthenticationRefusal::Forbidden(
                "the certificate has no such name",
            ));
        Finding::Decided(id.map(|id| Arc::new(CallerIdentity::new(&self.spec.name, id)).into()))
    }
}

fn ask_again_after(wait: BoxFuture<'static, ()>) -> Finding {
    Finding::Waits(Box::pin(async move {
        wait.await;
        Awaited::AskAgain
    }))
}

/// A token of a field of its own, which may have the scheme before it all the same.
fn without_scheme(value: &[u8]) -> &[u8] {
    match value.split_at_checked(7) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"Bearer ") => {
            token.trim_ascii_start()
        }
        _ => value,
    }
}

impl Material {
    /// How many credentials, or keys for them.
    pub fn len(&self) -> usize {
        match self {
            Self::ApiKeys(table) => table.len(),
            Self::Users(table) => table.len(),
            Self::KeySet(set) => set.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
