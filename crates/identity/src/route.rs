//! The authenticators of one route, and the answers to requests that none of them lets pass.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue, Request};

use super::NamedAuthenticator;
use super::authenticator::Finding;
use super::credential;
use super::key_table::ApiKeyTable;
use super::method::CredentialPlace;
use super::refusal::{AuthenticationRefusal, AuthenticationResult, VerifiedClient};
use super::source::CredentialSource;
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;

const OTHER_ISSUER: AuthenticationRefusal =
    AuthenticationRefusal::Invalid("the token is of another issuer");

/// The authenticators of a route, in the order in which they are asked.
#[derive(Clone)]
pub struct RouteAuthenticators {
    authenticators: Vec<Arc<NamedAuthenticator>>,
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
    pub wait: BoxFuture<'static, AuthenticationResult>,
    /// The place of the authenticator, for [`RouteAuthenticators::conclude`].
    pub place: usize,
}

impl RouteAuthenticators {
    pub fn new(
        authenticators: Vec<Arc<NamedAuthenticator>>,
        policy_keys: Option<Arc<ApiKeyTable>>,
    ) -> Self {
        let mut own_fields = Vec::new();
        for one in &authenticators {
            own_fields.extend(one.spec.settings().own_fields());
        }
        let mut removed = Vec::new();
        for one in &authenticators {
            let place = one.spec.place();
            // A field that only an authenticator sets has lost the client's value already: the
            // service's would be removed.
            let is_own = place
                .field()
                .is_some_and(|field| own_fields.contains(field));
            let is_forwarded = one.spec.forward_credential || place == CredentialPlace::Nowhere;
            if !is_forwarded && !is_own {
                removed.push(place);
            }
        }
        Self {
            missing: missing(&authenticators),
            authenticators,
            policy_keys,
            removed: removed.into(),
            own_fields,
        }
    }

    /// The authenticators on a route that takes `policy_keys`.
    pub fn on_route(self: &Arc<Self>, policy_keys: Option<&Arc<ApiKeyTable>>) -> Arc<Self> {
        let takes_any = self
            .all()
            .any(|one| one.spec.settings().takes_policy_keys());
        if !takes_any {
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
        let Some(of_listener) = of_listener else {
            return removed;
        };
        let mut all = removed.to_vec();
        for place in &*of_listener.removed {
            if !own.is_some_and(|own| own.reads(place)) {
                all.push(place.clone());
            }
        }
        if all.len() == removed.len() {
            removed
        } else {
            all.into()
        }
    }

    /// Whether an authenticator reads its credential at this place.
    fn reads(&self, place: &CredentialPlace) -> bool {
        self.all().any(|one| one.spec.place().is_in_place_of(place))
    }

    /// The fields that have credentials, whether or not they go on.
    pub fn credential_fields(&self) -> Vec<HeaderName> {
        let mut fields = Vec::new();
        for one in self.all() {
            if let CredentialPlace::Header(name) = one.spec.place() {
                fields.push(name);
            }
        }
        fields
    }

    /// The fields of requests that clients cannot set.
    pub fn own_fields(&self) -> &[HeaderName] {
        &self.own_fields
    }

    /// The client behind a request. The first authenticator that finds its credential decides: a
    /// wrong one is not made good by another. Nor is a token of an issuer that nobody knows, so
    /// those alone are asked about it that take a credential at its place.
    pub fn check(&self, source: CredentialSource<'_>) -> RouteFinding {
        let mut foreign: Option<&Arc<NamedAuthenticator>> = None;
        for (place, one) in self.authenticators.iter().enumerate() {
            if let Some(first) = foreign
                && !one.spec.takes_credential_of(&first.spec)
            {
                continue;
            }
            match one.check(source, self.policy_keys.as_deref()) {
                Finding::Absent => one.metrics.absent(),
                Finding::Foreign => {
                    one.metrics.absent();
                    foreign = foreign.or(Some(one));
                }
                Finding::Waits(wait) => {
                    return RouteFinding::Waits(PendingAuthentication { wait, place });
                }
                Finding::Decided(result) => {
                    return RouteFinding::Decided(self.decided(one, result));
                }
            }
        }
        RouteFinding::Decided(Err(match foreign {
            Some(one) => self.refused(one, &OTHER_ISSUER),
            None => self.missing.clone(),
        }))
    }

    /// The verdict on a request that has waited for the authenticator at `place`.
    ///
    /// # Errors
    /// The answer to a client that is refused.
    pub fn conclude(
        &self,
        place: usize,
        result: AuthenticationResult,
    ) -> Result<VerifiedClient, Failure> {
        match self.authenticators.get(place) {
            Some(one) => self.decided(one, result),
            None => Err(self.missing.clone()),
        }
    }

    fn decided(
        &self,
        by: &NamedAuthenticator,
        result: AuthenticationResult,
    ) -> Result<VerifiedClient, Failure> {
        by.metrics.decided(&result);
        result.map_err(|refusal| self.refused(by, &refusal))
    }

    /// The answer to a request without any credential.
    pub fn missing(&self) -> &Failure {
        &self.missing
    }

    fn all(&self) -> impl Iterator<Item = &NamedAuthenticator> {
        self.authenticators.iter().map(|one| &**one)
    }

    fn refused(&self, by: &NamedAuthenticator, refusal: &AuthenticationRefusal) -> Failure {
        match *refusal {
            AuthenticationRefusal::Answered(ref answer) => Failure::Relayed(answer.clone()),
            AuthenticationRefusal::Invalid(reason) => {
                let fault = Fault {
                    by,
                    error: "invalid_token",
                    reason,
                };
                Failure::Unauthenticated {
                    challenges: challenges(self.all(), Some(fault)),
                    reason,
                }
            }
            AuthenticationRefusal::Forbidden(reason) => {
                let fault = Fault {
                    by,
                    error: "insufficient_scope",
                    reason,
                };
                Failure::IdentityRefused {
                    challenges: challenges([by], Some(fault)),
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

fn missing(authenticators: &[Arc<NamedAuthenticator>]) -> Failure {
    let challenges = challenges(authenticators.iter().map(|one| &**one), None);
    if challenges.is_empty() {
        let mut needs = authenticators
            .iter()
            .filter_map(|one| one.spec.settings().unchallenged_need());
        if let Some(reason) = needs.next() {
            // 401 needs a challenge (RFC 9110 §15.5.2).
            return Failure::IdentityRefused { challenges, reason };
        }
    }
    Failure::Unauthenticated {
        challenges,
        reason: "a credential is needed: see WWW-Authenticate",
    }
}

/// The fault that an authenticator has found with its credential.
#[derive(Clone, Copy)]
struct Fault<'a> {
    by: &'a NamedAuthenticator,
    /// A code of RFC 6750 §3.1.
    error: &'static str,
    reason: &'static str,
}

/// A challenge for each scheme. The scheme of a `fault` is challenged with that fault.
fn challenges<'a>(
    authenticators: impl IntoIterator<Item = &'a NamedAuthenticator>,
    fault: Option<Fault<'_>>,
) -> Arc<[HeaderValue]> {
    let faulty = fault.and_then(|fault| fault.by.spec.settings().challenge());
    let mut challenges: Vec<HeaderValue> = Vec::new();
    for one in authenticators {
        let mut challenge = one.spec.settings().challenge();
        if let Some(fault) = fault
            && challenge == faulty
        {
            let settings = fault.by.spec.settings();
            challenge = settings.challenge_after_fault(fault.error, fault.reason);
        }
        let Some(challenge) = challenge else {
            continue;
        };
        if let Ok(challenge) = HeaderValue::try_from(&*challenge)
            && !challenges.contains(&challenge)
        {
            challenges.push(challenge);
        }
    }
    challenges.into()
}

/// Takes credentials out of a request.
pub fn remove_credentials(places: &[CredentialPlace], request: &mut Request<Body>) {
    for place in places {
        credential::remove(place, request);
    }
}
