//! The settings that every kind of authenticator has: where its credential stands, the file that it
//! goes by and its challenge. Plain data.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE};

/// The place of a credential in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialPlace {
    Header(HeaderName),
    /// A parameter of the query, decoded as in a form.
    Query(Arc<str>),
    Cookie(Arc<str>),
    /// The credentials of `Authorization` with this scheme (RFC 9110 §11.4).
    Scheme(&'static str),
    /// In no place of the message: the connection has it, or a service that is asked.
    Nowhere,
}

/// A file that credentials are checked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredentialFile<'a> {
    pub path: &'a Path,
    pub format: CredentialFormat,
}

/// The format of a file of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialFormat {
    /// API keys by their hash.
    ApiKeys,
    /// Users and the hashes of their passwords.
    Users,
    /// A JSON Web Key Set.
    KeySet,
}

/// The settings of one kind of authenticator, as far as routes and files need them.
pub trait MethodSpec {
    /// Where the credential stands.
    fn place(&self) -> CredentialPlace {
        CredentialPlace::Nowhere
    }

    /// Whether a credential may stand at whatever place: a service is shown the request.
    fn takes_any_place(&self) -> bool {
        false
    }

    /// The file that credentials are checked by.
    fn file(&self) -> Option<CredentialFile<'_>> {
        None
    }

    /// The fields of requests that this authenticator alone sets.
    fn own_fields(&self) -> Vec<HeaderName> {
        Vec::new()
    }

    /// The challenge to a client that has to authenticate itself (RFC 9110 §11.6.1). `None`: no
    /// scheme is known.
    fn challenge(&self) -> Option<Cow<'static, str>> {
        None
    }

    /// The challenge after a credential with a fault: `error` is a code of RFC 6750 §3.1, and
    /// `reason` says what is wrong.
    fn challenge_after_fault(&self, _error: &str, _reason: &str) -> Option<Cow<'static, str>> {
        self.challenge()
    }

    /// The need of a client without a credential, where no challenge can say so.
    fn unchallenged_need(&self) -> Option<&'static str> {
        None
    }

    /// Whether credentials are checked by the API keys of policies.
    fn takes_policy_keys(&self) -> bool {
        false
    }
}

impl CredentialPlace {
    /// Whether both are the same place, or one of them is a whole field that has the other.
    pub fn is_in_place_of(&self, other: &Self) -> bool {
        let is_whole = matches!(self, Self::Header(_)) || matches!(other, Self::Header(_));
        self == other || is_whole && self.field().is_some() && self.field() == other.field()
    }

    /// The field that has the credential, if it is in one.
    pub fn field(&self) -> Option<&HeaderName> {
        match self {
            Self::Header(name) => Some(name),
            Self::Scheme(_) => Some(&AUTHORIZATION),
            Self::Cookie(_) => Some(&COOKIE),
            Self::Query(_) | Self::Nowhere => None,
        }
    }
}
