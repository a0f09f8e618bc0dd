//! The authenticators of one route, and the answers to requests that none of them lets pass.

use std::sync::Arc;

use http::{HeaderValue, Request};
use tollgate_limiter::limit::key::CallerIdentity;

use super::authenticator::{Authenticator, CredentialSource, Finding};
use super::credential::CredentialPlace;
use super::refusal::AuthenticationRefusal;
use super::spec::AuthenticationMethod;
use crate::body::Body;
use crate::error::Failure;

/// The authenticators of a route, in the order in which they are asked.
pub struct RouteAuthenticators {
    authenticators: Vec<Arc<Authenticator>>,
    /// The answer to a request without any credential.
    missing: Failure,
    /// Taken out of requests before they go on.
    removed: Arc<[CredentialPlace]>,
}

impl RouteAuthenticators {
    pub fn new(authenticators: Vec<Arc<Authenticator>>) -> Self {
        let removed = authenticators.iter().filter(|one| !one.spec.forward_credential).map(|one| one.spec.place());
        let removed = removed.filter(|place| *place != CredentialPlace::Nowhere).collect();
        let missing = missing(&authenticators);
        Self { authenticators, missing, removed }
    }

    /// The credentials that upstreams do not get, whichever of them has decided.
    pub fn removed(&self) -> Arc<[CredentialPlace]> {
        self.removed.clone()
    }

    /// The client behind a request. The first authenticator that finds its credential decides: a wrong one is not made good
    /// by another.
    ///
    /// # Errors
    /// When no credential is there, or the first one is not accepted.
    pub fn check(&self, source: CredentialSource<'_>) -> Result<Arc<CallerIdentity>, Failure> {
        for authenticator in &self.authenticators {
            match authenticator.check(source) {
                Finding::Absent => {}
                Finding::Decided(Ok(identity)) => return Ok(identity),
                Finding::Decided(Err(refusal)) => return Err(self.refused(authenticator, &refusal)),
            }
        }
        Err(self.missing.clone())
    }

    /// The answer to a request without any credential.
    pub fn missing(&self) -> &Failure {
        &self.missing
    }

    fn refused(&self, by: &Arc<Authenticator>, refusal: &AuthenticationRefusal) -> Failure {
        match *refusal {
            AuthenticationRefusal::Invalid(reason) => {
                Failure::Unauthenticated { challenges: challenges(&self.authenticators), reason }
            }
            AuthenticationRefusal::Forbidden(reason) => {
                Failure::IdentityRefused { challenges: challenges(std::slice::from_ref(by)), reason }
            }
            AuthenticationRefusal::Unavailable(reason) => Failure::AuthenticationUnavailable(reason),
        }
    }
}

fn missing(authenticators: &[Arc<Authenticator>]) -> Failure {
    let challenges = challenges(authenticators);
    let by_certificate =
        |one: &Arc<Authenticator>| matches!(one.spec.method, AuthenticationMethod::ClientCertificate(_));
    if challenges.is_empty() && authenticators.iter().any(by_certificate) {
        // 401 needs a challenge (RFC 9110 §15.5.2), and there is none for certificates.
        return Failure::IdentityRefused { challenges, reason: "a client certificate is needed" };
    }
    Failure::Unauthenticated { challenges, reason: "a credential is needed: see WWW-Authenticate" }
}

fn challenges(authenticators: &[Arc<Authenticator>]) -> Arc<[HeaderValue]> {
    let mut challenges: Vec<HeaderValue> = Vec::new();
    for challenge in authenticators.iter().filter_map(|one| one.spec.challenge()) {
        let challenge = HeaderValue::from_static(challenge);
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
