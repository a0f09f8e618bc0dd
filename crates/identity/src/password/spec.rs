//! Basic authentication as an operator configures it.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::algorithm::token_bucket::TokenBucket;

use crate::method::{CredentialFile, CredentialFormat, CredentialPlace, MethodSpec};

/// Where requests carry user name and password (RFC 7617).
pub const PLACE: CredentialPlace = CredentialPlace::Scheme("Basic");

/// The requests that `Authorization: Basic` authenticates, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicSpec {
    /// The file that has their names and the hashes of their passwords.
    pub users: PathBuf,
    /// The name of the realm in the challenge. The configuration refuses quotes and backslashes.
    pub realm: Arc<str>,
    /// How long a password that was right is accepted without hashing it again.
    pub remember: Duration,
    /// The limit of failed attempts. Each client address has a bucket, and each user name another.
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
