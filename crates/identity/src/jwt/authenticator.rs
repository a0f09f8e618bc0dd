//! Checks tokens of one issuer, and lets a request wait for keys that are on their way.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use tollgate_limiter::limit::key::CallerIdentity;

use super::key_set::KeySet;
use super::remote_keys::RemoteKeys;
use super::spec::{JwtSpec, KeySetSource};
use super::{TokenFault, TokenVerifier};
use crate::authenticator::{self, Authenticator, BuildContext, CredentialSet, Finding};
use crate::key_table::ApiKeyTable;
use crate::method::CredentialPlace;
use crate::refusal::{AuthenticationRefusal, VerifiedClient};
use crate::source::CredentialSource;

const NO_KEYS: &str = "the issuer's keys are not known yet";
const OLD_KEYS: &str = "the issuer's keys could not be fetched for too long";
const OTHER_ISSUER: AuthenticationRefusal =
    AuthenticationRefusal::Invalid("the token is of another issuer");
const UNKNOWN_KEY: AuthenticationRefusal =
    AuthenticationRefusal::Invalid("the token is signed by a key that the issuer does not have");
const TOO_MANY_WAIT: AuthenticationRefusal = AuthenticationRefusal::Undecided(
    "too many tokens with keys that are not known wait for the issuer",
);

/// Authenticates clients by tokens.
pub struct JwtAuthenticator(Arc<IssuerTokens>);

/// The tokens of one issuer.
struct IssuerTokens {
    authenticator: Arc<str>,
    spec: JwtSpec,
    verifier: TokenVerifier,
    keys: IssuerKeys,
}

enum IssuerKeys {
    /// The keys of a file, once it was read.
    File(ArcSwapOption<KeySet>),
    Remote(Arc<RemoteKeys>),
}

/// Why a token is not accepted by the keys that are known.
enum TokenDoubt {
    Fault(TokenFault),
    /// Why no keys can be used.
    NoKeys(&'static str),
}

impl JwtAuthenticator {
    pub fn new(spec: &JwtSpec, context: BuildContext<'_>) -> Self {
        let keys = match &spec.keys {
            KeySetSource::File(_) => IssuerKeys::File(ArcSwapOption::empty()),
            KeySetSource::Url(url) => {
                let before = context.predecessor_as::<Self>().and_then(Self::remote);
                IssuerKeys::Remote(Arc::new(RemoteKeys::new(url, context, before)))
            }
        };
        Self(Arc::new(IssuerTokens {
            authenticator: context.name.clone(),
            spec: spec.clone(),
            verifier: TokenVerifier::new(spec),
            keys,
        }))
    }

    fn remote(&self) -> Option<&RemoteKeys> {
        match &self.0.keys {
            IssuerKeys::File(_) => None,
            IssuerKeys::Remote(keys) => Some(keys),
        }
    }
}

impl Authenticator for JwtAuthenticator {
    fn check(&self, source: CredentialSource<'_>, _: Option<&ApiKeyTable>) -> Finding {
        let place = &self.0.spec.place;
        let found = match authenticator::read(place, source) {
            Ok(found) => found,
            Err(finding) => return finding,
        };
        let token = match place {
            CredentialPlace::Header(_) => without_scheme(&found),
            _ => &found,
        };
        match self.0.verify(token) {
            Ok(identity) => Finding::checked(Ok(identity)),
            Err(TokenDoubt::Fault(TokenFault::Foreign)) => Finding::Foreign,
            Err(doubt) => match self.0.wait_after(&doubt, source.client_ip) {
                Ok(wait) => self.0.verify_after(wait, token),
                Err(refusal) => Finding::refused(refusal),
            },
        }
    }

    fn install(&self, credentials: Box<dyn CredentialSet>) {
        if let IssuerKeys::File(set) = &self.0.keys
            && let Some(read) = credentials.downcast::<KeySet>()
        {
            set.store(Some(Arc::from(read)));
        }
    }

    fn upkeep(&self) -> Option<BoxFuture<'static, ()>> {
        match &self.0.keys {
            IssuerKeys::File(_) => None,
            IssuerKeys::Remote(keys) => keys.follow(),
        }
    }
}

impl CredentialSet for KeySet {
    fn count(&self) -> usize {
        self.len()
    }
}

impl IssuerTokens {
    /// The client of `token`, by the keys that are known.
    fn verify(&self, token: &[u8]) -> Result<Arc<CallerIdentity>, TokenDoubt> {
        let set = self.keys.set().load();
        let Some(set) = set.as_deref() else {
            return Err(self.doubt_without_keys(token, NO_KEYS));
        };
        if !self.keys.are_fresh() {
            return Err(self.doubt_without_keys(token, OLD_KEYS));
        }
        self.verifier
            .check(&self.authenticator, &self.spec, set, token)
            .map_err(TokenDoubt::Fault)
    }

    /// Tokens that no keys could make good do not wait for an issuer that is away.
    fn doubt_without_keys(&self, token: &[u8], reason: &'static str) -> TokenDoubt {
        match self.verifier.check_without_keys(&self.spec, token) {
            Ok(()) | Err(TokenFault::UnknownKey) => TokenDoubt::NoKeys(reason),
            Err(fault) => TokenDoubt::Fault(fault),
        }
    }

    /// The wait for keys that may make a token good.
    ///
    /// # Errors
    /// The refusal where none are on their way.
    fn wait_after(
        &self,
        doubt: &TokenDoubt,
        ip: IpAddr,
    ) -> Result<BoxFuture<'static, ()>, AuthenticationRefusal> {
        let IssuerKeys::Remote(keys) = &self.keys else {
            return Err(doubt.refusal());
        };
        match doubt {
            TokenDoubt::NoKeys(_) => keys.current_fetch(ip).ok_or_else(|| doubt.refusal()),
            // The key may be newer than the last fetch.
            TokenDoubt::Fault(TokenFault::UnknownKey) => keys.next_fetch(ip).ok_or(TOO_MANY_WAIT),
            TokenDoubt::Fault(TokenFault::Foreign | TokenFault::Refused(_)) => Err(doubt.refusal()),
        }
    }

    /// Verifies a token once more after `wait`, for good.
    fn verify_after(self: &Arc<Self>, wait: BoxFuture<'static, ()>, token: &[u8]) -> Finding {
        let tokens = self.clone();
        let token = token.to_vec();
        Finding::Waits(Box::pin(async move {
            wait.await;
            match tokens.verify(&token) {
                Ok(identity) => Ok(VerifiedClient::from(identity)),
                Err(doubt) => Err(doubt.refusal()),
            }
        }))
    }
}

impl IssuerKeys {
    fn set(&self) -> &ArcSwapOption<KeySet> {
        match self {
            Self::File(set) => set,
            Self::Remote(keys) => keys.set(),
        }
    }

    fn are_fresh(&self) -> bool {
        match self {
            Self::File(_) => true,
            Self::Remote(keys) => keys.are_fresh(),
        }
    }
}

impl TokenDoubt {
    /// The refusal of a token that waits for nothing.
    fn refusal(&self) -> AuthenticationRefusal {
        match self {
            Self::NoKeys(reason) => AuthenticationRefusal::Unavailable(reason),
            Self::Fault(TokenFault::UnknownKey) => UNKNOWN_KEY,
            Self::Fault(TokenFault::Foreign) => OTHER_ISSUER,
            Self::Fault(TokenFault::Refused(refusal)) => refusal.clone(),
        }
    }
}

/// The token of a field of its own, which may have the scheme before it all the same.
fn without_scheme(value: &[u8]) -> &[u8] {
    match value.split_at_checked(7) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"Bearer ") => {
            token.trim_ascii_start()
        }
        _ => value,
    }
}
