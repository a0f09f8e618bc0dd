//! The checks of credentials under way, each of which several requests may wait for.
//!
//! Guarantees that a credential is checked once however many requests bring it at once, that a
//! check whose clients have all gone away before it costs anything is not made, that nobody waits
//! for a place of another client's, and that what a check has found out is not found out again by
//! one that waited for its place meanwhile.

use std::collections::HashMap;
use std::future::ready;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;
use tollgate_limiter::limit::key::CallerIdentity;

use super::{Attempt, PendingAttempt};
use crate::key_table::CredentialHash;
use crate::refusal::AuthenticationRefusal;
use tollgate_limiter::clock::{self, Instant};

/// The longest that a credential waits before it is checked.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The outcome of a check.
pub type CheckResult = Result<Arc<CallerIdentity>, AuthenticationRefusal>;

type CheckEnd = watch::Receiver<Option<CheckResult>>;

/// The checks of one authenticator.
pub struct SharedChecks {
    /// The refusal where a check has broken off.
    broken_off: AuthenticationRefusal,
    running: Mutex<HashMap<CheckKey, watch::Sender<Option<CheckResult>>>>,
}

/// The credential of a check. One that waits for a place is its client's alone: others may have
/// more room.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct CheckKey {
    credential: CredentialHash,
    waits_as: Option<IpAddr>,
}

/// The means to check a credential.
pub trait CredentialCheck: Send + 'static {
    /// The check's part of what is bounded.
    type Resource: Send;

    /// The result that another check of the credential has left.
    fn known(&self) -> Option<CheckResult>;

    /// Waits for what the check needs, until `deadline`. Nothing is lost if this is dropped.
    ///
    /// # Errors
    /// When there is too much to check.
    fn acquire(
        &mut self,
        deadline: Instant,
    ) -> impl Future<Output = Result<Self::Resource, AuthenticationRefusal>> + Send;

    /// Checks the credential. `attempt` has failed unless this says that it succeeded.
    fn check(
        self,
        resource: Self::Resource,
        attempt: Option<Attempt>,
    ) -> impl Future<Output = CheckResult> + Send;
}

/// A check in the table. Dropping it takes it out.
struct SharedCheck {
    checks: Arc<SharedChecks>,
    key: CheckKey,
    is_listed: bool,
    end: watch::Sender<Option<CheckResult>>,
}

impl SharedChecks {
    pub fn new(broken_off: AuthenticationRefusal) -> Self {
        Self {
            broken_off,
            running: Mutex::default(),
        }
    }

    /// Checks a `credential` of a client at `ip`, or waits for the check that is under way. Must
    /// run inside a runtime. `place` finds the check a place among attempts that may fail, if it
    /// needs one.
    ///
    /// # Errors
    /// The refusal by `place`.
    pub fn run<C: CredentialCheck>(
        self: &Arc<Self>,
        credential: CredentialHash,
        ip: IpAddr,
        check: C,
        place: impl FnOnce() -> Result<Option<PendingAttempt>, AuthenticationRefusal>,
    ) -> Result<BoxFuture<'static, CheckResult>, AuthenticationRefusal> {
        let mut running = self.running.lock();
        let checked = CheckKey {
            credential,
            waits_as: None,
        };
        let waiting = CheckKey {
            credential,
            waits_as: Some(ip),
        };
        if let Some(end) = running.get(&checked).or_else(|| running.get(&waiting)) {
            return Ok(self.outcome(end.subscribe()));
        }
        // A check may have ended between the caller's own look for its result and this one.
        if let Some(result) = check.known() {
            return Ok(Box::pin(ready(result)));
        }
        let attempt = place()?;
        let key = if matches!(attempt, Some(PendingAttempt::Waiting(_))) {
            waiting
        } else {
            checked
        };
        let (end, result) = watch::channel(None);
        running.insert(key, end.clone());
        drop(running);
        let shared = SharedCheck {
            checks: self.clone(),
            key,
            is_listed: true,
            end,
        };
        // A task of its own: other requests may wait for the check as well, and the client of this
        // one may leave.
        tokio::spawn(shared.run(check, attempt));
        Ok(self.outcome(result))
    }

    fn outcome(&self, mut end: CheckEnd) -> BoxFuture<'static, CheckResult> {
        let broken_off = self.broken_off.clone();
        Box::pin(async move {
            let ended = end.wait_for(Option::is_some).await;
            let ended = ended.ok().and_then(|ended| ended.clone());
            ended.unwrap_or(Err(broken_off))
        })
    }
}

impl SharedCheck {
    async fn run<C: CredentialCheck>(mut self, mut check: C, pending: Option<PendingAttempt>) {
        let deadline = clock::now() + LONGEST_WAIT;
        let attempt = match pending {
            None => None,
            Some(pending) => {
                let placed = tokio::select! {
                    biased;
                    placed = pending.placed(deadline) => placed,
                    () = self.abandoned() => return,
                };
                match placed {
                    Ok(attempt) => Some(attempt),
                    Err(refusal) => return self.end(Err(refusal)),
                }
            }
        };
        if let Some(other) = self.list_as_checked() {
            drop(attempt);
            let result = self.checks.outcome(other).await;
            return self.end(result);
        }
        // Another check may have begun and ended while this one waited for its place.
        if let Some(result) = check.known() {
            drop(attempt);
            return self.end(result);
        }
        let acquired = tokio::select! {
            biased;
            acquired = check.acquire(deadline) => acquired,
            () = self.abandoned() => return,
        };
        let result = match acquired {
            Ok(resource) => {
                let begun = attempt.map(|mut attempt| {
                    attempt.begin();
                    attempt
                });
                check.check(resource, begun).await
            }
            Err(refusal) => Err(refusal),
        };
        self.end(result);
    }

    /// Lists a check that has its place as under way. `Some`: the credential is being checked for
    /// another client.
    fn list_as_checked(&mut self) -> Option<CheckEnd> {
        self.key.waits_as?;
        let checked = CheckKey {
            waits_as: None,
            ..self.key
        };
        let mut running = self.checks.running.lock();
        if let Some(other) = running.get(&checked) {
            return Some(other.subscribe());
        }
        running.remove(&self.key);
        running.insert(checked, self.end.clone());
        self.key = checked;
        None
    }

    /// Waits until nobody waits for the check any more, and takes it out of the table.
    async fn abandoned(&mut self) {
        loop {
            self.end.closed().await;
            let mut running = self.checks.running.lock();
            if self.end.receiver_count() == 0 {
                running.remove(&self.key);
                self.is_listed = false;
                return;
            }
        }
    }

    fn end(mut self, result: CheckResult) {
        self.unlist();
        self.end.send_replace(Some(result));
    }

    fn unlist(&mut self) {
        if std::mem::take(&mut self.is_listed) {
            self.checks.running.lock().remove(&self.key);
        }
    }
}

impl Drop for SharedCheck {
    fn drop(&mut self) {
        self.unlist();
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use futures_util::future::poll_immediate;
    use tokio::sync::Semaphore;
    use tollgate_limiter::algorithm::token_bucket::TokenBucket;

    use super::*;
    use crate::attempts::FailedAttempts;

    const FAILED: AuthenticationRefusal = AuthenticationRefusal::Invalid("it is wrong");

    /// A check that needs a permit, and then fails.
    struct FailingCheck {
        permits: Arc<Semaphore>,
        known: Arc<Mutex<Option<CheckResult>>>,
    }

    impl CredentialCheck for FailingCheck {
        type Resource = ();

        fn known(&self) -> Option<CheckResult> {
            self.known.lock().clone()
        }

        async fn acquire(&mut self, _: Instant) -> Result<(), AuthenticationRefusal> {
            self.permits
                .acquire()
                .await
                .map(tokio::sync::SemaphorePermit::forget)
                .map_err(|_| FAILED)
        }

        async fn check(self, (): (), _attempt: Option<Attempt>) -> CheckResult {
            Err(FAILED)
        }
    }

    struct ChecksUnderTest {
        checks: Arc<SharedChecks>,
        attempts: Arc<FailedAttempts>,
        permits: Arc<Semaphore>,
        known: Arc<Mutex<Option<CheckResult>>>,
    }

    impl ChecksUnderTest {
        /// A single attempt of an address may fail.
        fn new() -> Self {
            let hour = NonZeroU64::new(3_600_000_000).unwrap();
            let bound = TokenBucket::new(NonZeroU64::MIN, hour, NonZeroU64::MIN).unwrap();
            let checks = Arc::new(SharedChecks::new(AuthenticationRefusal::Unavailable(
                "it broke off",
            )));
            Self {
                checks,
                attempts: Arc::new(FailedAttempts::new(bound)),
                permits: Arc::new(Semaphore::new(0)),
                known: Arc::default(),
            }
        }

        fn run(
            &self,
            credential: u8,
            host: u8,
        ) -> Result<BoxFuture<'static, CheckResult>, AuthenticationRefusal> {
            let ip = IpAddr::from([192, 0, 2, host]);
            let check = FailingCheck {
                permits: self.permits.clone(),
                known: self.known.clone(),
            };
            self.checks.run([credential; 32], ip, check, || {
                Ok(Some(self.attempts.place(ip, None)?))
            })
        }

        /// Waits until so many checks are listed.
        async fn listed(&self, count: usize) {
            while self.checks.running.lock().len() != count {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_without_clients_is_not_made_and_costs_nothing() {
        let test = ChecksUnderTest::new();
        let first = test.run(1, 1).ok().unwrap();
        let mut waiting = test.run(2, 1).ok().unwrap();
        let also_waiting = test.run(2, 1).ok().unwrap();
        assert!(poll_immediate(&mut waiting).await.is_none());
        test.listed(2).await;
        drop(first);
        test.listed(1).await;
        drop(waiting);
        test.permits.add_permits(1);
        assert_eq!(
            also_waiting.await.err(),
            Some(FAILED),
            "another client waits for it"
        );
        assert_eq!(
            test.run(3, 1).err(),
            Some(AuthenticationRefusal::TooManyAttempts(3_600))
        );
        test.listed(0).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_room_does_not_wait_for_one_without() {
        let test = ChecksUnderTest::new();
        let first = test.run(1, 1).ok().unwrap();
        let waiting = test.run(2, 1).ok().unwrap();
        let other = test.run(2, 2).ok().unwrap();
        test.listed(3).await;
        drop(first);
        // The one that has got its place joins the check of the other.
        test.listed(2).await;
        test.permits.add_permits(1);
        assert_eq!(
            [waiting.await.err(), other.await.err()],
            [Some(FAILED), Some(FAILED)]
        );
        assert_eq!(
            test.run(3, 2).err(),
            Some(AuthenticationRefusal::TooManyAttempts(3_600))
        );
        assert!(test.run(3, 1).is_ok(), "only the other has paid");
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_that_a_check_has_just_left_is_taken_and_no_other_check_begins() {
        let test = ChecksUnderTest::new();
        let running = test.run(1, 1).ok().unwrap();
        let identity = Arc::new(CallerIdentity::new("staff", "ada"));
        *test.known.lock() = Some(Ok(identity));
        // A check that is under way has a newer result.
        let joined = test.run(1, 1).ok().unwrap();
        test.permits.add_permits(1);
        test.listed(0).await;
        drop((running, joined));
        // The client has no place left, and needs none.
        let result = test.run(1, 1).ok().unwrap();
        assert_eq!(result.await.ok().unwrap().id(), "ada");
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_waited_for_its_place_takes_the_result_that_another_has_left() {
        let test = ChecksUnderTest::new();
        let first = test.run(1, 1).ok().unwrap();
        let waiting = test.run(2, 1).ok().unwrap();
        test.listed(2).await;
        // A client with room has the credential checked, before the first gives its place back.
        let identity = Arc::new(CallerIdentity::new("staff", "ada"));
        *test.known.lock() = Some(Ok(identity));
        drop(first);
        // There is no permit: a check would never end.
        assert_eq!(waiting.await.ok().unwrap().id(), "ada");
        *test.known.lock() = None;
        assert!(test.run(3, 1).is_ok(), "it has cost nothing");
    }
}
