//! The checks of passwords under way: on threads of their own, a few at once, and each password once.
//!
//! Guarantees that no worker hashes, and that hashing takes a bounded share of the machine, whatever clients send and however
//! many authenticators there are.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;
use std::time::Duration;

use futures_util::future::BoxFuture;
use metrics::{Counter, counter};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tollgate_limiter::limit::key::CallerIdentity;

use super::user_table::{PasswordDigest, UserTable};
use crate::identity::attempts::{Attempt, FailedAttempts};
use crate::identity::refusal::AuthenticationRefusal;

/// The threads of all authenticators, also of those that a reload has replaced. The other half of the cores is left to
/// requests.
static THREADS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    Arc::new(Semaphore::new((cores / 2).max(1)))
});

/// Passwords that wait for a thread. Further ones are refused: they would wait too long.
const MAX_WAITING: usize = 64;

/// The longest that a password waits for a thread.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

const BUSY: AuthenticationRefusal = AuthenticationRefusal::Undecided("too many passwords are being checked");
const WRONG: AuthenticationRefusal = AuthenticationRefusal::Invalid("the user name or the password is wrong");

/// The outcome of a check.
pub type PasswordResult = Result<Arc<CallerIdentity>, AuthenticationRefusal>;

/// The checks of one authenticator.
pub struct PasswordChecks {
    threads: Arc<Semaphore>,
    hashed: Counter,
    running: Mutex<HashMap<PasswordDigest, watch::Receiver<Option<PasswordResult>>>>,
}

/// A password to check.
pub struct PasswordCheck {
    pub users: Arc<UserTable>,
    pub name: String,
    pub password: Vec<u8>,
    /// How long it is remembered, if it is right.
    pub remember: Duration,
}

impl PasswordChecks {
    /// Those of the authenticator called `name`.
    pub fn new(name: &str) -> Self {
        let hashed = counter!("tollgate_password_hashes_total", "authenticator" => name.to_owned());
        hashed.increment(0);
        Self { threads: THREADS.clone(), hashed, running: Mutex::default() }
    }

    /// Checks a password. Must run inside a runtime.
    ///
    /// # Errors
    /// Why it is not checked: too many attempts of this kind have failed, or too many are under way.
    pub fn start(
        self: &Arc<Self>,
        check: PasswordCheck,
        digest: PasswordDigest,
        attempts: &Arc<FailedAttempts>,
        client_ip: IpAddr,
    ) -> Result<BoxFuture<'static, PasswordResult>, AuthenticationRefusal> {
        let mut running = self.running.lock();
        if let Some(result) = running.get(&digest) {
            // Browsers open several connections at once.
            return Ok(Box::pin(outcome(result.clone())));
        }
        let attempt =
            attempts.begin(client_ip, Some(check.name.as_bytes())).map_err(AuthenticationRefusal::TooManyAttempts)?;
        if running.len() >= MAX_WAITING {
            attempts.succeeded(attempt);
            return Err(BUSY);
        }
        let (sender, result) = watch::channel(None);
        running.insert(digest, result.clone());
        drop(running);
        let end = RunningCheck { checks: self.clone(), digest };
        let attempts = attempts.clone();
        // Not the request's: a client that leaves would leave its attempt without an outcome.
        tokio::spawn(async move {
            let result = end.checks.run(check, digest, &attempts, attempt).await;
            drop(end);
            sender.send_replace(Some(result));
        });
        Ok(Box::pin(outcome(result)))
    }

    async fn run(
        &self,
        check: PasswordCheck,
        digest: PasswordDigest,
        attempts: &FailedAttempts,
        attempt: Attempt,
    ) -> PasswordResult {
        let Ok(Ok(thread)) = timeout(LONGEST_WAIT, self.threads.clone().acquire_owned()).await else {
            attempts.succeeded(attempt);
            return Err(BUSY);
        };
        self.hashed.increment(1);
        let checked = spawn_blocking(move || {
            let PasswordCheck { users, name, password, remember } = check;
            let found = users.check(&name, &password);
            drop(thread);
            if let Some(identity) = found.clone().filter(|_| !remember.is_zero()) {
                users.remember(digest, identity, remember);
            }
            found
        });
        match checked.await {
            Ok(Some(identity)) => {
                attempts.succeeded(attempt);
                Ok(identity)
            }
            Ok(None) => Err(WRONG),
            Err(_) => Err(AuthenticationRefusal::Unavailable("the password could not be checked")),
        }
    }
}

/// A check that others may wait for. Dropped when it has ended, also by a panic.
struct RunningCheck {
    checks: Arc<PasswordChecks>,
    digest: PasswordDigest,
}

impl Drop for RunningCheck {
    fn drop(&mut self) {
        self.checks.running.lock().remove(&self.digest);
    }
}

async fn outcome(mut result: watch::Receiver<Option<PasswordResult>>) -> PasswordResult {
    let ended = result.wait_for(Option::is_some).await;
    let ended = ended.ok().and_then(|ended| ended.clone());
    ended.unwrap_or(Err(AuthenticationRefusal::Unavailable("the password could not be checked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_authenticators_hash_on_the_same_few_threads() {
        let (one, other) = (PasswordChecks::new("one"), PasswordChecks::new("other"));
        assert!(Arc::ptr_eq(&one.threads, &other.threads));
    }
}
