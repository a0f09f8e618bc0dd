//! Users and their passwords as data.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::algorithm::token_bucket::TokenBucket;

use crate::method::{CredentialFile, CredentialFormat, CredentialPlace, MethodSpec};

/// Where requests carry user name and password (RFC 7617).
pub const PLACE: CredentialPlace = CredentialPlace::Scheme("Basic");

/// Users of `Authorization: Basic`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicSpec {
    /// The file that has their names and the hashes of their passwords.
    pub users: PathBuf,
    /// Without quotes and backslashes.
    pub realm: Arc<str>,
    /// How long a password that was right is not hashed again.
    pub remember: Duration,
    /// The attempts of a client address and at a user name that may fail.
    pub failed_attempts: TokenBucket,
}

impl MethodSpec for BasicSpec {
    fn place(&self) -> CredentialPlace {
        PLACE
    }

    fn file(&self) -> Option<CredentialFile<'_>> {
        Some(CredentialFile {
            path: &self.users,
            format: CredentialFormat::Users,
        })
    }

    fn challenge(&self) -> Option<Cow<'static, str>> {
        Some(format!("Basic realm=\"{}\", charset=\"UTF-8\"", self.realm).into())
    }
}
