//! Authenticators as data: what an operator writes under `authenticators`. The kinds are
//! registered here with their settings.

use std::sync::Arc;

use tollgate_limiter::limit::key::CertificatePart;

use super::api_key::spec::ApiKeySpec;
use super::forward::spec::ForwardSpec;
use super::jwt::spec::JwtSpec;
use super::method::{CredentialPlace, MethodSpec};
use super::password::spec::BasicSpec;

/// An authenticator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticatorSpec {
    pub name: Arc<str>,
    pub method: AuthenticationMethod,
    /// Whether the upstream gets the credential too.
    pub forward_credential: bool,
}

/// How a client says who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthenticationMethod {
    ApiKey(ApiKeySpec),
    /// By a user name and a password.
    Basic(BasicSpec),
    /// By a service that is asked.
    Forward(Arc<ForwardSpec>),
    /// By a token that an issuer has signed.
    Jwt(Box<JwtSpec>),
    /// By a part of its certificate.
    ClientCertificate(CertificatePart),
}

impl AuthenticationMethod {
    /// The settings that every kind has.
    pub fn settings(&self) -> &dyn MethodSpec {
        match self {
            Self::ApiKey(spec) => spec,
            Self::Basic(spec) => spec,
            Self::Forward(spec) => &**spec,
            Self::Jwt(spec) => &**spec,
            Self::ClientCertificate(part) => part,
        }
    }
}

impl AuthenticatorSpec {
    /// The settings that every kind has.
    pub fn settings(&self) -> &dyn MethodSpec {
        self.method.settings()
    }

    /// Where the credential stands.
    pub fn place(&self) -> CredentialPlace {
        self.settings().place()
    }

    /// Whether this authenticator takes what stands where the `other` one has its credential.
    pub fn takes_credential_of(&self, other: &Self) -> bool {
        self.settings().takes_any_place() || self.place().is_in_place_of(&other.place())
    }
}
