//! API keys in a hash of the store: `cache` has those that were read, `entry` reads one, and this
//! looks up the others.
//!
//! Guarantees that a key is read by one call, however many requests bring it, that no request waits
//! beyond the store's time limit, and that keys which clients make up cost a bounded number of
//! calls and a bounded room.

mod cache;
mod entry;

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use metrics::{Counter, counter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::limit::key::{CallerIdentity, Key};
use tollgate_limiter::store::StoreError;
use tollgate_limiter::store::hash_reader::FieldValue;

use self::cache::{CachedKey, StoredKeyCache};
use super::spec::StoredKeySpec;
use crate::attempts::shared_checks::{CheckResult, CredentialCheck, SharedChecks};
use crate::attempts::{Attempt, FailedAttempts};
use crate::key_table::{CredentialHash, hash};
use crate::refusal::AuthenticationRefusal;
use tollgate_limiter::clock::{self, Instant};

/// Calls in flight of one authenticator. Further keys wait for nothing.
const MAX_CALLS: usize = 256;

/// After a call that failed, none is made for so long.
const PAUSE: Duration = Duration::from_millis(250);

/// Between two lines in the log about entries that cannot be read.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

const UNKNOWN: AuthenticationRefusal = AuthenticationRefusal::Invalid("the API key is not known");
const AWAY: AuthenticationRefusal =
    AuthenticationRefusal::Unavailable("the store that has the keys is away");
const BUSY: AuthenticationRefusal =
    AuthenticationRefusal::Undecided("too many keys are being looked up");
const BROKEN: AuthenticationRefusal =
    AuthenticationRefusal::Unavailable("the entry of the key cannot be read");

/// The keys of one authenticator.
pub struct StoredKeys {
    spec: StoredKeySpec,
    authenticator: Arc<str>,
    cache: StoredKeyCache,
    attempts: Arc<FailedAttempts>,
    reading: Arc<SharedChecks>,
    calls: Arc<Semaphore>,
    /// Microseconds of the monotonic clock.
    paused_until_us: AtomicU64,
    logged_us: AtomicU64,
    outcomes: LookupCounters,
}

/// The calls by their outcome.
struct LookupCounters {
    found: Counter,
    none: Counter,
    invalid: Counter,
    failed: Counter,
}

/// The call for a key.
struct KeyCall {
    keys: Arc<StoredKeys>,
    key: CredentialHash,
    limiter: Limiter,
}

/// The verdict on a key, or the wait for it.
pub enum KeyLookup {
    Decided(CheckResult),
    Waits(BoxFuture<'static, CheckResult>),
}

impl StoredKeys {
    /// The keys of the authenticator of this name. Metrics go to the recorder that is installed by
    /// now.
    pub fn new(spec: &StoredKeySpec, authenticator: &Arc<str>) -> Self {
        let [found, none, invalid, failed] = ["found", "none", "invalid", "failed"].map(|outcome| {
            let counter = counter!("tollgate_api_key_lookups_total", "authenticator" => authenticator.to_string(), "outcome" => outcome);
            counter.increment(0);
            counter
        });
        Self {
            authenticator: authenticator.clone(),
            cache: StoredKeyCache::new(spec.remember, spec.grace),
            attempts: Arc::new(FailedAttempts::new(spec.failed_attempts)),
            spec: spec.clone(),
            reading: Arc::new(SharedChecks::new(AWAY)),
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            paused_until_us: AtomicU64::new(0),
            logged_us: AtomicU64::new(0),
            outcomes: LookupCounters {
                found,
                none,
                invalid,
                failed,
            },
        }
    }

    /// The client that has `key`, over the connection of `limiter` to the store. Must run inside a
    /// runtime.
    pub fn check(self: &Arc<Self>, key: &[u8], client_ip: IpAddr, limiter: &Limiter) -> KeyLookup {
        let key = hash(key);
        let fallback = match self.cache.find(&key) {
            CachedKey::Known(identity) => return KeyLookup::Decided(Ok(identity)),
            CachedKey::Unknown => return KeyLookup::Decided(Err(UNKNOWN)),
            CachedKey::Stale(fallback) => fallback,
        };
        // The attempt is counted for a key that nobody is known to have.
        match self.start(key, fallback.is_none(), client_ip, limiter) {
            Ok(result) => {
                KeyLookup::Waits(Box::pin(async move { or_fallback(result.await, fallback) }))
            }
            Err(refusal) => KeyLookup::Decided(or_fallback(Err(refusal), fallback)),
        }
    }

    /// Begins to read a key, or joins the requests that wait for it.
    fn start(
        self: &Arc<Self>,
        key: CredentialHash,
        is_attempt: bool,
        client_ip: IpAddr,
        limiter: &Limiter,
    ) -> Result<BoxFuture<'static, CheckResult>, AuthenticationRefusal> {
        let check = KeyCall {
            keys: self.clone(),
            key,
            limiter: limiter.clone(),
        };
        self.reading.run(key, client_ip, check, || {
            if self.is_paused() {
                return Err(AWAY);
            }
            if is_attempt {
                Ok(Some(self.attempts.place(client_ip, None)?))
            } else {
                Ok(None)
            }
        })
    }

    /// Whether a call has failed a moment ago.
    fn is_paused(&self) -> bool {
        clock::monotonic_micros() < self.paused_until_us.load(Ordering::Relaxed)
    }

    /// Takes note of what a call that began at `began` has read: the client, or why it is not
    /// taken.
    fn learn(
        &self,
        key: CredentialHash,
        read: Result<FieldValue, StoreError>,
        began: Instant,
    ) -> CheckResult {
        match read {
            Ok(None) => {
                self.outcomes.none.increment(1);
                self.cache.learn(key, None, began);
                Err(UNKNOWN)
            }
            Ok(Some(text)) => match entry::read(&text, &self.authenticator) {
                Ok(identity) => {
                    self.outcomes.found.increment(1);
                    let identity = Arc::new(identity);
                    self.cache.learn(key, Some(identity.clone()), began);
                    Ok(identity)
                }
                Err(why) => {
                    self.outcomes.invalid.increment(1);
                    self.log(|| tracing::warn!(authenticator = %self.authenticator, hash = %self.spec.hash, why, "an entry of API keys cannot be read"));
                    Err(BROKEN)
                }
            },
            Err(error) => {
                self.outcomes.failed.increment(1);
                self.log(|| tracing::warn!(authenticator = %self.authenticator, hash = %self.spec.hash, %error, "API keys cannot be read: those that were read lately hold on"));
                let until = clock::monotonic_micros().saturating_add(PAUSE.as_micros() as u64);
                self.paused_until_us.store(until, Ordering::Relaxed);
                Err(AWAY)
            }
        }
    }

    /// Writes a line, unless there was one a moment ago.
    fn log(&self, line: impl FnOnce()) {
        let now = clock::monotonic_micros().max(1);
        let last = self.logged_us.load(Ordering::Relaxed);
        let is_due = last == 0 || now.saturating_sub(last) >= LOG_INTERVAL.as_micros() as u64;
        if is_due
            && self
                .logged_us
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            line();
        }
    }
}

impl CredentialCheck for KeyCall {
    /// A place among the calls.
    type Resource = OwnedSemaphorePermit;

    fn known(&self) -> Option<CheckResult> {
        match self.keys.cache.find(&self.key) {
            CachedKey::Known(identity) => Some(Ok(identity)),
            CachedKey::Unknown => Some(Err(UNKNOWN)),
            CachedKey::Stale(_) => None,
        }
    }

    async fn acquire(&mut self, _: Instant) -> Result<Self::Resource, AuthenticationRefusal> {
        // Calls may have failed while this one waited.
        if self.keys.is_paused() {
            return Err(AWAY);
        }
        self.keys
            .calls
            .clone()
            .try_acquire_owned()
            .map_err(|_| BUSY)
    }

    async fn check(self, place: Self::Resource, attempt: Option<Attempt>) -> CheckResult {
        let began = clock::now();
        let hash = self.keys.spec.hash.clone();
        let Some(call) = self.limiter.read_hash(hash, field(&self.key)) else {
            attempt.into_iter().for_each(Attempt::succeeded);
            return Err(AWAY);
        };
        let read = call.await;
        drop(place);
        let result = self.keys.learn(self.key, read, began);
        if result != Err(UNKNOWN) {
            attempt.into_iter().for_each(Attempt::succeeded);
        }
        result
    }
}

/// Takes the client that had the key a while ago if nobody can be asked.
fn or_fallback(result: CheckResult, fallback: Option<Arc<CallerIdentity>>) -> CheckResult {
    match result {
        Err(refusal @ (AWAY | BUSY)) => fallback.ok_or(refusal),
        result => result,
    }
}

/// The field of a key: its SHA-256 in hexadecimal digits.
fn field(key: &CredentialHash) -> Key {
    let mut digits = String::with_capacity(2 * key.len());
    for byte in key {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    Key::from(&*digits)
}
