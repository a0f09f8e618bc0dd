//! Authenticators as data: what an operator writes under `authenticators`.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderName;
use tollgate_limiter::limit::key::CertificatePart;

use super::credential::CredentialPlace;
use super::forward::spec::ForwardSpec;
use super::jwt::spec::{JwtSpec, KeySetSource};
use super::password;
use super::password::spec::BasicSpec;
use super::stored_key::spec::StoredKeySpec;

/// The challenge to a client that should send a token (RFC 6750 §3).
pub const BEARER: &str = "Bearer realm=\"tollgate\"";

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
    /// By a token that somebody else has signed.
    Jwt(Box<JwtSpec>),
    /// By a part of its certificate.
    ClientCertificate(CertificatePart),
}

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
    /// In policies: those of the application that a route is of.
    Policies,
}

impl AuthenticatorSpec {
    /// Where its credential stands.
    pub fn place(&self) -> CredentialPlace {
        match &self.method {
            AuthenticationMethod::ApiKey(spec) => spec.place.clone(),
            AuthenticationMethod::Basic(_) => CredentialPlace::Scheme("Basic"),
            AuthenticationMethod::Jwt(spec) => spec.place.clone(),
            AuthenticationMethod::Forward(_) | AuthenticationMethod::ClientCertificate(_) => {
                CredentialPlace::Nowhere
            }
        }
    }

    /// The file that its credentials are checked by.
    pub fn file(&self) -> Option<&PathBuf> {
        match &self.method {
            AuthenticationMethod::ApiKey(spec) => match &spec.keys {
                ApiKeySource::File(file) => Some(file),
                ApiKeySource::Redis(_) | ApiKeySource::Policies => None,
            },
            AuthenticationMethod::Basic(spec) => Some(&spec.users),
            AuthenticationMethod::Jwt(spec) => match &spec.keys {
                KeySetSource::File(file) => Some(file),
                KeySetSource::Url(_) => None,
            },
            AuthenticationMethod::Forward(_) | AuthenticationMethod::ClientCertificate(_) => None,
        }
    }

    /// The fields of requests that it alone sets.
    pub fn own_fields(&self) -> Vec<HeaderName> {
        match &self.method {
            AuthenticationMethod::Forward(spec) => spec.own_fields().cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// The beginning of its challenge to a client that has to authenticate itself (RFC 9110
    /// §11.6.1). `None`: no scheme is known for it.
    pub fn challenge(&self) -> Option<Cow<'static, str>> {
        match &self.method {
            AuthenticationMethod::ApiKey(_) => Some("ApiKey realm=\"tollgate\"".into()),
            AuthenticationMethod::Basic(spec) => Some(password::challenge(&spec.realm).into()),
            AuthenticationMethod::Jwt(_) => Some(BEARER.into()),
            AuthenticationMethod::Forward(_) | AuthenticationMethod::ClientCertificate(_) => None,
        }
    }
}
