//! The checks of passwords under way: on threads of their own, a few at once, and each password
//! once.
//!
//! Guarantees that no worker hashes, and that hashing takes a bounded share of the machine,
//! whatever clients send and however many authenticators there are.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;
use std::time::Duration;

use futures_util::future::BoxFuture;
use metrics::{Counter, counter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout_at;
use tollgate_limiter::algorithm::token_bucket::TokenBucket;

use super::SentPassword;
use super::user_table::{PasswordDigest, UserTable};
use crate::attempts::shared_checks::{CheckResult, CredentialCheck, SharedChecks};
use crate::attempts::{Attempt, FailedAttempts};
use crate::refusal::AuthenticationRefusal;
use tollgate_limiter::clock::Instant;

/// The threads of all authenticators, also of those that a reload has replaced. The other half of
/// the cores is left to requests.
static THREADS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    Arc::new(Semaphore::new((cores / 2).max(1)))
});

/// Passwords that wait for a thread. Further ones are refused: they would wait too long.
const MAX_WAITING: usize = 64;

const BUSY: AuthenticationRefusal =
    AuthenticationRefusal::Undecided("too many passwords are being checked");
const WRONG: AuthenticationRefusal =
    AuthenticationRefusal::Invalid("the user name or the password is wrong");
const BROKEN_OFF: AuthenticationRefusal =
    AuthenticationRefusal::Unavailable("the password could not be checked");

/// The checks of one authenticator.
pub struct PasswordChecks {
    threads: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    hashed: Counter,
    attempts: Arc<FailedAttempts>,
    running: Arc<SharedChecks>,
}

/// A password to check.
pub struct PasswordCheck {
    pub users: Arc<UserTable>,
    pub sent: SentPassword,
    /// How long it is remembered, if it is right.
    pub remember: Duration,
}

/// The check of a password.
struct PasswordHashing {
    checks: Arc<PasswordChecks>,
    check: PasswordCheck,
    digest: PasswordDigest,
}

impl PasswordChecks {
    /// The checks of the authenticator called `name`, whose attempts may fail as `failed_attempts`
    /// says.
    pub fn new(name: &str, failed_attempts: TokenBucket) -> Self {
        let hashed = counter!("tollgate_password_hashes_total", "authenticator" => name.to_owned());
        hashed.increment(0);
        Self {
            threads: THREADS.clone(),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            hashed,
            attempts: Arc::new(FailedAttempts::new(failed_attempts)),
            running: Arc::new(SharedChecks::new(BROKEN_OFF)),
        }
    }

    /// Checks a password of a client at `ip`. Must run inside a runtime.
    ///
    /// # Errors
    /// Why it is not checked: too many attempts of this kind have failed, or too many wait.
    pub fn start(
        self: &Arc<Self>,
        check: PasswordCheck,
        digest: PasswordDigest,
        ip: IpAddr,
    ) -> Result<BoxFuture<'static, CheckResult>, AuthenticationRefusal> {
        // Browsers open several connections at once: these wait for one check.
        let name = check.sent.name.clone();
        let hashing = PasswordHashing {
            checks: self.clone(),
            check,
            digest,
        };
        self.running.run(digest, ip, hashing, || {
            let attempt = self.attempts.place(ip, Some(name.as_bytes()))?;
            Ok(Some(attempt))
        })
    }
}

impl CredentialCheck for PasswordHashing {
    /// A place among the passwords that wait, and a thread.
    type Resource = [OwnedSemaphorePermit; 2];

    fn known(&self) -> Option<CheckResult> {
        self.check.users.remembered(&self.digest).map(Ok)
    }

    async fn acquire(
        &mut self,
        deadline: Instant,
    ) -> Result<Self::Resource, AuthenticationRefusal> {
        let place = self
            .checks
            .waiting
            .clone()
            .try_acquire_owned()
            .map_err(|_| BUSY)?;
        match timeout_at(deadline, self.checks.threads.clone().acquire_owned()).await {
            Ok(Ok(thread)) => Ok([place, thread]),
            Ok(Err(_)) | Err(_) => Err(BUSY),
        }
    }

    async fn check(self, resource: Self::Resource, attempt: Option<Attempt>) -> CheckResult {
        self.checks.hashed.increment(1);
        let digest = self.digest;
        let checked = spawn_blocking(move || {
            let PasswordCheck {
                users,
                sent,
                remember,
            } = self.check;
            let found = users.check(&sent.name, &sent.password);
            drop(resource);
            if let Some(identity) = &found
                && !remember.is_zero()
            {
                users.remember(digest, identity.clone(), remember);
            }
            found
        });
        match checked.await {
            Ok(Some(identity)) => {
                attempt.into_iter().for_each(Attempt::succeeded);
                Ok(identity)
            }
            Ok(None) => Err(WRONG),
            Err(_) => Err(BROKEN_OFF),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use tollgate_limiter::limit::key::CallerIdentity;

    use super::*;

    #[test]
    fn all_authenticators_hash_on_the_same_few_threads() {
        let one = NonZeroU64::MIN;
        let bound = TokenBucket::new(one, one, one).unwrap();
        let one = PasswordChecks::new("one", bound);
        let other = PasswordChecks::new("other", bound);
        assert!(Arc::ptr_eq(&one.threads, &other.threads));
    }

    /// The check of a password may end between a request's own look for it and its check.
    #[tokio::test]
    async fn a_password_that_was_just_found_right_is_not_hashed_again() {
        let one = NonZeroU64::MIN;
        let checks = PasswordChecks::new("staff", TokenBucket::new(one, one, one).unwrap());
        // Without users: a hash would find the password wrong.
        let users = Arc::new(UserTable::new(Vec::new()).unwrap());
        let digest = users.digest("ada", b"one");
        let remember = Duration::from_secs(60);
        let ada = Arc::new(CallerIdentity::new("staff", "ada"));
        users.remember(digest, ada, remember);
        let check = PasswordCheck {
            users,
            sent: SentPassword {
                name: "ada".to_owned(),
                password: b"one".to_vec(),
            },
            remember,
        };
        let ip = IpAddr::from([192, 0, 2, 1]);
        let result = Arc::new(checks).start(check, digest, ip).ok().unwrap();
        assert_eq!(result.await.ok().unwrap().id(), "ada");
    }
}
