//! Checks user names and passwords by the users of a file.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;

use super::checks::{PasswordCheck, PasswordChecks};
use super::spec::{BasicSpec, PLACE};
use super::user_table::UserTable;
use crate::authenticator::{self, Authenticator, BuildContext, CredentialSet, Finding};
use crate::key_table::ApiKeyTable;
use crate::refusal::AuthenticationRefusal;
use crate::source::CredentialSource;

const NO_USERS: AuthenticationRefusal =
    AuthenticationRefusal::Unavailable("the users are not known yet");
const MALFORMED: AuthenticationRefusal =
    AuthenticationRefusal::Invalid("the credential is no user name and password");

/// Authenticates clients by user name and password.
pub struct BasicAuthenticator {
    /// The users of the file, once it was read.
    users: ArcSwapOption<UserTable>,
    checks: Arc<PasswordChecks>,
    /// How long a password that was right is not hashed again.
    remember: Duration,
}

impl BasicAuthenticator {
    pub fn new(spec: &BasicSpec, context: BuildContext<'_>) -> Self {
        Self {
            users: ArcSwapOption::empty(),
            checks: Arc::new(PasswordChecks::new(context.name, spec.failed_attempts)),
            remember: spec.remember,
        }
    }
}

impl Authenticator for BasicAuthenticator {
    fn check(&self, source: CredentialSource<'_>, _: Option<&ApiKeyTable>) -> Finding {
        let credential = match authenticator::read(&PLACE, source) {
            Ok(credential) => credential,
            Err(finding) => return finding,
        };
        let users = self.users.load();
        let Some(users) = users.as_ref() else {
            return Finding::refused(NO_USERS);
        };
        let Some(sent) = super::read(&credential) else {
            return Finding::refused(MALFORMED);
        };
        let digest = users.digest(&sent.name, &sent.password);
        if let Some(identity) = users.remembered(&digest) {
            return Finding::Decided(Ok(identity.into()));
        }
        let check = PasswordCheck {
            users: users.clone(),
            sent,
            remember: self.remember,
        };
        match self.checks.start(check, digest, source.client_ip) {
            Ok(result) => Finding::checking(result),
            Err(refusal) => Finding::refused(refusal),
        }
    }

    fn install(&self, credentials: Box<dyn CredentialSet>) {
        let Some(read) = credentials.downcast::<UserTable>() else {
            return;
        };
        // The table remembers passwords: the same users need not be hashed again.
        let is_same = self
            .users
            .load()
            .as_ref()
            .is_some_and(|users| users.is_same(&read));
        if !is_same {
            self.users.store(Some(Arc::from(read)));
        }
    }
}

impl CredentialSet for UserTable {
    fn count(&self) -> usize {
        self.len()
    }
}
