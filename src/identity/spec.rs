//! Authenticators as data: what an operator writes under `authenticators`.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use tollgate_limiter::limit::key::CertificatePart;

use super::credential::CredentialPlace;
use super::password;
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
    /// By a part of its certificate.
    ClientCertificate(CertificatePart),
}

/// API keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKeySpec {
    pub place: CredentialPlace,
    /// The file that has the hashes of the keys.
    pub keys: PathBuf,
}

impl AuthenticatorSpec {
    /// Where its credential stands.
    pub fn place(&self) -> CredentialPlace {
        match &self.method {
            AuthenticationMethod::ApiKey(spec) => spec.place.clone(),
            AuthenticationMethod::Basic(_) => CredentialPlace::Scheme("Basic"),
            AuthenticationMethod::ClientCertificate(_) => CredentialPlace::Nowhere,
        }
    }

    /// The file that its credentials are checked by.
    pub fn file(&self) -> Option<&PathBuf> {
        match &self.method {
            AuthenticationMethod::ApiKey(spec) => Some(&spec.keys),
            AuthenticationMethod::Basic(spec) => Some(&spec.users),
            AuthenticationMethod::ClientCertificate(_) => None,
        }
    }

    /// The beginning of its challenge to a client that has to authenticate itself (RFC 9110 §11.6.1). `None`: no scheme is
    /// known for it.
    pub fn challenge(&self) -> Option<Cow<'static, str>> {
        match &self.method {
            AuthenticationMethod::ApiKey(_) => Some("ApiKey realm=\"tollgate\"".into()),
            AuthenticationMethod::Basic(spec) => Some(password::challenge(&spec.realm).into()),
            AuthenticationMethod::ClientCertificate(_) => None,
        }
    }
}
