//! The authenticators of one route, and the answers to requests that none of them lets pass.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue, Request};

use super::api_key::ApiKeyTable;
use super::authenticator::{Authenticator, Awaited, Finding};
use super::credential::CredentialPlace;
use super::refusal::{AuthenticationRefusal, VerifiedClient};
use super::source::CredentialSource;
use super::spec::{ApiKeySource, ApiKeySpec, AuthenticationMethod, BEARER};
use crate::body::Body;
use crate::error::Failure;

const STILL_UNKNOWN: &str = "the credential could not be checked in time";

const OTHER_ISSUER: AuthenticationRefusal =
    AuthenticationRefusal::Invalid("the token is of another issuer");

/// The authenticators of a route, in the order in which they are asked.
#[derive(Clone)]
pub struct RouteAuthenticators {
    authenticators: Vec<Arc<Authenticator>>,
    /// The API keys of policies that the route takes. `None`: no policies are known.
    policy_keys: Option<Arc<ApiKeyTable>>,
    /// The answer to a request without any credential.
    missing: Failure,
    /// Taken out of requests before they go on.
    removed: Arc<[CredentialPlace]>,
    /// Fields of requests that only these authenticators set, whichever of them has decided.
    own_fields: Vec<HeaderName>,
}

/// The verdict of a route's authenticators on a request.
pub enum RouteFinding {
    Decided(Result<VerifiedClient, Failure>),
    Waits(PendingAuthentication),
}

/// A request that waits for an authenticator.
pub struct PendingAuthentication {
    pub wait: BoxFuture<'static, Awaited>,
    pub progress: AuthenticationProgress,
}

/// How far the authenticators of a route are with a request.
#[derive(Clone, Copy, Default)]
pub struct AuthenticationProgress {
    /// The place of the one that is asked.
    place: usize,
    /// The first that found a credential of somebody else's.
    foreign: Option<usize>,
}

impl RouteAuthenticators {
    pub fn new(
        authenticators: Vec<Arc<Authenticator>>,
        policy_keys: Option<Arc<ApiKeyTable>>,
    ) -> Self {
        let own_fields: Vec<HeaderName> = authenticators
            .iter()
            .flat_map(|one| one.spec.own_fields())
            .collect();
        let removed = authenticators
            .iter()
            .filter(|one| !one.spec.forward_credential)
            .map(|one| one.spec.place());
        // A field that only an authenticator sets has lost what the client sent: this would be what
        // a service says.
        let is_own = |place: &CredentialPlace| {
            place
                .field()
                .is_some_and(|field| own_fields.contains(field))
        };
        let removed = removed
            .filter(|place| *place != CredentialPlace::Nowhere && !is_own(place))
            .collect();
        let missing = missing(&authenticators);
        Self {
            authenticators,
            policy_keys,
            missing,
            removed,
            own_fields,
        }
    }

    /// These, on a route that takes `policy_keys`.
    pub fn on_route(self: &Arc<Self>, policy_keys: Option<&Arc<ApiKeyTable>>) -> Arc<Self> {
        let of_policies = |method: &AuthenticationMethod| {
            matches!(
                method,
                AuthenticationMethod::ApiKey(ApiKeySpec {
                    keys: ApiKeySource::Policies,
                    ..
                })
            )
        };
        if !self.all().any(|one| of_policies(&one.spec.method)) {
            return self.clone();
        }
        Arc::new(Self {
            policy_keys: policy_keys.cloned(),
            ..Self::clone(self)
        })
    }

    /// The credentials that upstreams do not get, whichever of them has decided.
    pub fn removed(&self) -> Arc<[CredentialPlace]> {
        self.removed.clone()
    }

    /// The credentials that upstreams of a route do not get which asks `own`, or nobody, behind a
    /// listener which asks `of_listener` elsewhere: its clients send those to every path.
    pub fn removed_behind(
        own: Option<&Self>,
        of_listener: Option<&Self>,
    ) -> Arc<[CredentialPlace]> {
        let removed = own.map_or_else(|| [].into(), Self::removed);
        let is_read = |place: &CredentialPlace| {
            own.is_some_and(|own| own.all().any(|one| one.spec.place().is_in_place_of(place)))
        };
        let others = of_listener.map_or(&[][..], |of_listener| &of_listener.removed);
        let others: Vec<_> = others
            .iter()
            .filter(|place| !is_read(place))
            .cloned()
            .collect();
        if others.is_empty() {
            removed
        } else {
            removed.iter().cloned().chain(others).collect()
        }
    }

    /// The fields that have credentials, whether or not they go on.
    pub fn credential_fields(&self) -> Vec<HeaderName> {
        let field = |place| {
            if let CredentialPlace::Header(name) = place {
                Some(name)
            } else {
                None
            }
        };
        self.all()
            .filter_map(|one| field(one.spec.place()))
            .collect()
    }

    /// The fields of requests that clients cannot set.
    pub fn own_fields(&self) -> &[HeaderName] {
        &self.own_fields
    }

    /// The client behind a request. The first authenticator that finds its credential decides: a
    /// wrong one is not made good by another.
    pub fn check(&self, source: CredentialSource<'_>) -> RouteFinding {
        self.ask(AuthenticationProgress::default(), source)
    }

    /// Goes on with a request after a wait. Each authenticator waits once at most.
    pub fn resume(
        &self,
        mut progress: AuthenticationProgress,
        awaited: Awaited,
        source: CredentialSource<'_>,
    ) -> RouteFinding {
        if let Some(authenticator) = self.authenticators.get(progress.place) {
            let finding = match awaited {
                Awaited::Decided(result) => Finding::Decided(result),
                Awaited::AskAgain => {
                    match authenticator.check(source, self.policy_keys.as_deref(), false) {
                        Finding::Waits(_) => {
                            Finding::Decided(Err(AuthenticationRefusal::Unavailable(STILL_UNKNOWN)))
                        }
                        finding => finding,
                    }
                }
            };
            if let Some(concluded) = self.conclude(authenticator, finding, &mut progress) {
                return concluded;
            }
        }
        progress.place += 1;
        self.ask(progress, source)
    }

    fn ask(
        &self,
        mut progress: AuthenticationProgress,
        source: CredentialSource<'_>,
    ) -> RouteFinding {
        while let Some(authenticator) = self.authenticators.get(progress.place) {
            let finding = authenticator.check(source, self.policy_keys.as_deref(), true);
            if let Some(concluded) = self.conclude(authenticator, finding, &mut progress) {
                return concluded;
            }
            progress.place += 1;
        }
        let foreign = progress
            .foreign
            .and_then(|place| self.authenticators.get(place));
        let refused = foreign.map(|authenticator| self.refused(authenticator, &OTHER_ISSUER));
        RouteFinding::Decided(Err(refused.unwrap_or_else(|| self.missing.clone())))
    }

    /// `None`: another authenticator may know.
    fn conclude(
        &self,
        by: &Authenticator,
        finding: Finding,
        progress: &mut AuthenticationProgress,
    ) -> Option<RouteFinding> {
        match finding {
            Finding::Absent => {
                by.metrics.absent();
                None
            }
            Finding::Foreign => {
                by.metrics.absent();
                progress.foreign = progress.foreign.or(Some(progress.place));
                None
            }
            Finding::Waits(wait) => Some(RouteFinding::Waits(PendingAuthentication {
                wait,
                progress: *progress,
            })),
            Finding::Decided(result) => {
                by.metrics.decided(&result);
                Some(RouteFinding::Decided(
                    result.map_err(|refusal| self.refused(by, &refusal)),
                ))
            }
        }
    }

    /// The answer to a request without any credential.
    pub fn missing(&self) -> &Failure {
        &self.missing
    }

    fn all(&self) -> impl Iterator<Item = &Authenticator> {
        self.authenticators.iter().map(|one| &**one)
    }

    fn refused(&self, by: &Authenticator, refusal: &AuthenticationRefusal) -> Failure {
        match *refusal {
            AuthenticationRefusal::Answered(ref answer) => Failure::Relayed(answer.clone()),
            AuthenticationRefusal::Invalid(reason) => {
                let error = bearer_error(by, "invalid_token", reason);
                Failure::Unauthenticated {
                    challenges: challenges(self.all(), error.as_ref()),
                    reason,
                }
            }
            AuthenticationRefusal::Forbidden(reason) => {
                let error = bearer_error(by, "insufficient_scope", reason);
                Failure::IdentityRefused {
                    challenges: challenges([by], error.as_ref()),
                    reason,
                }
            }
            AuthenticationRefusal::TooManyAttempts(seconds) => Failure::AttemptsLimited(seconds),
            AuthenticationRefusal::Faulty(ref failure) => failure.clone(),
            AuthenticationRefusal::Undecided(reason) => Failure::AuthenticationUnavailable {
                reason,
                has_cost: true,
            },
            AuthenticationRefusal::Unavailable(reason) => Failure::AuthenticationUnavailable {
                reason,
                has_cost: false,
            },
        }
    }
}

fn missing(authenticators: &[Arc<Authenticator>]) -> Failure {
    let challenges = challenges(authenticators.iter().map(|one| &**one), None);
    let by_certificate = |one: &Arc<Authenticator>| {
        matches!(one.spec.method, AuthenticationMethod::ClientCertificate(_))
    };
    if challenges.is_empty() && authenticators.iter().any(by_certificate) {
        // 401 needs a challenge (RFC 9110 §15.5.2), and there is none for certificates.
        return Failure::IdentityRefused {
            challenges,
            reason: "a client certificate is needed",
        };
    }
    Failure::Unauthenticated {
        challenges,
        reason: "a credential is needed: see WWW-Authenticate",
    }
}

/// The fault of a token (RFC 6750 §3.1), if `by` takes tokens.
fn bearer_error(by: &Authenticator, error: &str, reason: &str) -> Option<HeaderValue> {
    let is_bearer = by.spec.challenge().as_deref() == Some(BEARER);
    let text = is_bearer
        .then(|| format!("{BEARER}, error=\"{error}\", error_description=\"{reason}\""))?;
    HeaderValue::try_from(text).ok()
}

/// A challenge for each scheme. `error` stands in place of the plain one for tokens.
fn challenges<'a>(
    authenticators: impl IntoIterator<Item = &'a Authenticator>,
    error: Option<&HeaderValue>,
) -> Arc<[HeaderValue]> {
    let mut challenges: Vec<HeaderValue> = Vec::new();
    for challenge in authenticators
        .into_iter()
        .filter_map(|one| one.spec.challenge())
    {
        let error = error.filter(|_| challenge == BEARER).cloned();
        let Some(challenge) = error.or_else(|| HeaderValue::try_from(challenge.as_ref()).ok())
        else {
            continue;
        };
        if !challenges.contains(&challenge) {
            challenges.push(challenge);
        }
    }
    challenges.into()
}

/// Takes credentials out of a request.
pub fn remove_credentials(places: &[CredentialPlace], request: &mut Request<Body>) {
    for place in places {
        place.remove(request);
    }
}
