//! The trait of authenticators: a kind finds its credential in a request and says who sent it.
//!
//! Guarantees that a kind is known to routes by this trait alone.

use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::attempts::shared_checks::CheckResult;
use super::credential::{self, FoundCredential};
use super::key_table::ApiKeyTable;
use super::method::CredentialPlace;
use super::metrics::AuthenticatorMetrics;
use super::refusal::{AuthenticationRefusal, AuthenticationResult, VerifiedClient};
use super::source::CredentialSource;

const SENT_TWICE: AuthenticationRefusal =
    AuthenticationRefusal::Invalid("the credential is sent more than once");

/// A kind of authenticator at work.
pub trait Authenticator: Any + Send + Sync {
    /// Looks for a credential in a request, and checks it. `policy_keys` are the API keys of
    /// policies that the route takes, if any are known.
    fn check(&self, source: CredentialSource<'_>, policy_keys: Option<&ApiKeyTable>) -> Finding;

    /// Checks credentials by those of a file from now on. Kinds without a file drop them.
    fn install(&self, credentials: Box<dyn CredentialSet>) {
        drop(credentials);
    }

    /// The work of this authenticator on the control plane, which must end once the authenticator
    /// is gone. `None`: there is none, or it has begun already.
    fn upkeep(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// Credentials as read from a file, in the type of its format.
pub trait CredentialSet: Any + Debug + Send + Sync {
    /// How many credentials, or keys for them.
    fn count(&self) -> usize;
}

/// The means to build an authenticator, beside the settings of its kind.
#[derive(Clone, Copy)]
pub struct BuildContext<'a> {
    pub name: &'a Arc<str>,
    pub metrics: &'a Arc<AuthenticatorMetrics>,
    /// The authenticator that had the name until now.
    pub predecessor: Option<&'a dyn Authenticator>,
}

/// The verdict of an authenticator on a request.
pub enum Finding {
    /// No credential for this authenticator: another one may know the client.
    Absent,
    /// A credential that names another issuer.
    Foreign,
    Decided(AuthenticationResult),
    /// Undecided for now. The future must end by itself, soon: nothing else bounds it.
    Waits(BoxFuture<'static, AuthenticationResult>),
}

impl<'a> BuildContext<'a> {
    /// The predecessor, if it is of the kind `T`.
    pub fn predecessor_as<T: Authenticator>(self) -> Option<&'a T> {
        let predecessor: &dyn Any = self.predecessor?;
        predecessor.downcast_ref()
    }
}

impl dyn CredentialSet {
    /// The credentials in the type of their format. `None`: they are of another.
    pub fn downcast<T: CredentialSet>(self: Box<Self>) -> Option<Box<T>> {
        let credentials: Box<dyn Any> = self;
        credentials.downcast().ok()
    }
}

impl Finding {
    pub fn refused(refusal: AuthenticationRefusal) -> Self {
        Self::Decided(Err(refusal))
    }

    /// The finding of a check that has ended.
    pub fn checked(result: CheckResult) -> Self {
        Self::Decided(result.map(VerifiedClient::from))
    }

    /// The finding of a check that is under way.
    pub fn checking(result: BoxFuture<'static, CheckResult>) -> Self {
        Self::Waits(Box::pin(
            result.map(|result| result.map(VerifiedClient::from)),
        ))
    }
}

/// The credential at `place`.
///
/// # Errors
/// The finding where there is not exactly one.
pub fn read<'a>(
    place: &CredentialPlace,
    source: CredentialSource<'a>,
) -> Result<Cow<'a, [u8]>, Finding> {
    match credential::find(place, source.uri, source.headers) {
        FoundCredential::Absent => Err(Finding::Absent),
        FoundCredential::Several => Err(Finding::refused(SENT_TWICE)),
        FoundCredential::One(credential) => Ok(credential),
    }
}
