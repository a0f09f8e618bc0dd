//! The rules that tokens are checked by, and where the keys of their issuer are.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use jsonwebtoken::Algorithm;

use crate::method::{CredentialFile, CredentialFormat, CredentialPlace, MethodSpec};
use tollgate_wire::transport::tls::client::{ClientTls, PeerName};

/// The challenge to a client that should send a token (RFC 6750 §3).
const BEARER: &str = "Bearer realm=\"tollgate\"";

/// Tokens of one issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSpec {
    pub place: CredentialPlace,
    pub issuer: String,
    /// Any of these. Empty: tokens that are for nobody in particular.
    pub audience: Vec<String>,
    pub algorithms: Vec<Algorithm>,
    pub leeway: Duration,
    /// The claim that is the client's id.
    pub id: String,
    /// The claim that is its plan.
    pub plan: Option<String>,
    /// A token needs all of these.
    pub scopes: Vec<String>,
    pub max_token: usize,
    /// Verified tokens that are remembered.
    pub cached_tokens: usize,
    pub keys: KeySetSource,
}

/// Where the keys of an issuer are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySetSource {
    File(PathBuf),
    Url(Box<KeySetUrl>),
}

/// A URL with the keys of an issuer, and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySetUrl {
    /// Host and port to connect to.
    pub host: String,
    pub port: u16,
    /// In origin-form.
    pub target: String,
    /// The `Host` field.
    pub authority: String,
    /// `None`: in the clear.
    pub tls: Option<(ClientTls, PeerName)>,
    /// How often the keys are fetched again.
    pub refresh: Duration,
    /// How long they are used while they cannot be fetched again.
    pub stale: Duration,
    /// For a whole fetch.
    pub timeout: Duration,
}

impl MethodSpec for JwtSpec {
    fn place(&self) -> CredentialPlace {
        self.place.clone()
    }

    fn file(&self) -> Option<CredentialFile<'_>> {
        match &self.keys {
            KeySetSource::File(path) => Some(CredentialFile {
                path,
                format: CredentialFormat::KeySet,
            }),
            KeySetSource::Url(_) => None,
        }
    }

    fn challenge(&self) -> Option<Cow<'static, str>> {
        Some(BEARER.into())
    }

    fn challenge_after_fault(&self, error: &str, reason: &str) -> Option<Cow<'static, str>> {
        Some(format!("{BEARER}, error=\"{error}\", error_description=\"{reason}\"").into())
    }
}
