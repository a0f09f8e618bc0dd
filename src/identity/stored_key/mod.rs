//! API keys in a hash of the store: `cache` has those that were read, `entry` reads one, and this looks up the others.
//!
//! Guarantees that a key is read by one call, however many requests bring it, that no request waits beyond the store's time
//! limit, and that keys which clients make up cost a bounded number of calls and a bounded room.

mod cache;
mod entry;
pub mod spec;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use metrics::{Counter, counter};
use parking_lot::Mutex;
use tokio::sync::watch;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::limit::key::{CallerIdentity, Key};
use tollgate_limiter::store::StoreError;
use tollgate_limiter::store::hash_reader::FieldValue;

use self::cache::{CachedKey, StoredKeyCache};
use self::spec::StoredKeySpec;
use super::api_key::{CredentialHash, hash};
use super::attempts::{Attempt, FailedAttempts};
use super::refusal::AuthenticationRefusal;
use crate::clock;

/// Calls in flight of one authenticator. Further keys wait for nothing.
const MAX_CALLS: usize = 256;

/// After a call that failed, none is made for so long.
const PAUSE: Duration = Duration::from_millis(250);

/// Between two lines in the log about entries that cannot be read.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

const UNKNOWN: AuthenticationRefusal = AuthenticationRefusal::Invalid("the API key is not known");
const AWAY: AuthenticationRefusal = AuthenticationRefusal::Unavailable("the store that has the keys is away");
const BUSY: AuthenticationRefusal = AuthenticationRefusal::Undecided("too many keys are being looked up");
const BROKEN: AuthenticationRefusal = AuthenticationRefusal::Unavailable("the entry of the key cannot be read");

/// The keys of one authenticator.
pub struct StoredKeys {
    spec: StoredKeySpec,
    authenticator: Arc<str>,
    cache: StoredKeyCache,
    attempts: FailedAttempts,
    reading: Mutex<HashMap<CredentialHash, watch::Receiver<Option<KeyReading>>>>,
    /// Microseconds of the monotonic clock.
    paused_until_us: AtomicU64,
    logged_us: AtomicU64,
    outcomes: [Counter; 4],
}

/// The outcome of a call.
#[derive(Clone)]
enum KeyReading {
    Found(Arc<CallerIdentity>),
    Absent,
    Broken,
    Failed,
}

/// The client that has a key, or why it is not taken.
pub type KeyResult = Result<Arc<CallerIdentity>, AuthenticationRefusal>;

/// The verdict on a key, or the wait for it.
pub enum KeyLookup {
    Decided(KeyResult),
    Waits(BoxFuture<'static, KeyResult>),
}

impl StoredKeys {
    /// The keys of the authenticator of this name. Metrics go to the recorder that is installed by now.
    pub fn new(spec: &StoredKeySpec, authenticator: &Arc<str>) -> Self {
        let outcomes = ["found", "none", "invalid", "failed"].map(|outcome| {
            let counter = counter!("tollgate_api_key_lookups_total", "authenticator" => authenticator.to_string(), "outcome" => outcome);
            counter.increment(0);
            counter
        });
        Self {
            authenticator: authenticator.clone(),
            cache: StoredKeyCache::new(spec.remember, spec.grace),
            attempts: FailedAttempts::new(spec.failed_attempts),
            spec: spec.clone(),
            reading: Mutex::default(),
            paused_until_us: AtomicU64::new(0),
            logged_us: AtomicU64::new(0),
            outcomes,
        }
    }

    /// The client that has `key`, over the connection of `limiter` to the store. Must run inside a runtime.
    pub fn check(self: &Arc<Self>, key: &[u8], client_ip: IpAddr, limiter: &Limiter) -> KeyLookup {
        let key = hash(key);
        let fallback = match self.cache.find(&key) {
            CachedKey::Known(identity) => return KeyLookup::Decided(Ok(identity)),
            CachedKey::Unknown => return KeyLookup::Decided(Err(UNKNOWN)),
            CachedKey::Stale(fallback) => fallback,
        };
        match self.start(key, fallback.is_none().then_some(client_ip), limiter) {
            Ok(reading) => KeyLookup::Waits(Box::pin(async move { verdict(outcome(reading).await, fallback) })),
            Err(refusal @ (AWAY | BUSY)) => KeyLookup::Decided(fallback.ok_or(refusal)),
            Err(refusal) => KeyLookup::Decided(Err(refusal)),
        }
    }

    /// Begins to read a key, or joins those who wait for it. `unknown_from`: nobody is known to have it, and this client brings
    /// it.
    fn start(
        self: &Arc<Self>,
        key: CredentialHash,
        unknown_from: Option<IpAddr>,
        limiter: &Limiter,
    ) -> Result<watch::Receiver<Option<KeyReading>>, AuthenticationRefusal> {
        let mut reading = self.reading.lock();
        if let Some(running) = reading.get(&key) {
            return Ok(running.clone());
        }
        if clock::monotonic_micros() < self.paused_until_us.load(Ordering::Relaxed) {
            return Err(AWAY);
        }
        if reading.len() >= MAX_CALLS {
            return Err(BUSY);
        }
        let call = limiter.read_hash(self.spec.hash.clone(), field(&key)).ok_or(AWAY)?;
        let attempt = unknown_from.map(|ip| self.attempts.begin(ip, None)).transpose();
        let attempt = attempt.map_err(AuthenticationRefusal::TooManyAttempts)?;
        let (sender, result) = watch::channel(None);
        reading.insert(key, result.clone());
        drop(reading);
        let end = KeyCall { keys: self.clone(), key };
        // Not the request's: others may wait for it as well.
        tokio::spawn(async move {
            let read = end.keys.read(key, call, attempt).await;
            drop(end);
            sender.send_replace(Some(read));
        });
        Ok(result)
    }

    async fn read(
        &self,
        key: CredentialHash,
        call: BoxFuture<'static, Result<FieldValue, StoreError>>,
        attempt: Option<Attempt>,
    ) -> KeyReading {
        let began = clock::now();
        let read = match call.await {
            Ok(None) => KeyReading::Absent,
            Ok(Some(text)) => match entry::read(&text, &self.authenticator) {
                Ok(identity) => KeyReading::Found(Arc::new(identity)),
                Err(why) => {
                    self.log(|| tracing::warn!(authenticator = %self.authenticator, hash = %self.spec.hash, why, "an entry of API keys cannot be read"));
                    KeyReading::Broken
                }
            },
            Err(error) => {
                self.log(|| tracing::warn!(authenticator = %self.authenticator, hash = %self.spec.hash, %error, "API keys cannot be read: those that were read lately hold on"));
                let until = clock::monotonic_micros().saturating_add(PAUSE.as_micros() as u64);
                self.paused_until_us.store(until, Ordering::Relaxed);
                KeyReading::Failed
            }
        };
        self.outcomes[read.place()].increment(1);
        match &read {
            KeyReading::Found(identity) => self.cache.learn(key, Some(identity.clone()), began),
            KeyReading::Absent => self.cache.learn(key, None, began),
            KeyReading::Broken | KeyReading::Failed => {}
        }
        if let Some(attempt) = attempt.filter(|_| !matches!(read, KeyReading::Absent)) {
            self.attempts.succeeded(attempt);
        }
        read
    }

    /// Writes a line, unless there was one a moment ago.
    fn log(&self, line: impl FnOnce()) {
        let (now, last) = (clock::monotonic_micros().max(1), self.logged_us.load(Ordering::Relaxed));
        let is_due = last == 0 || now.saturating_sub(last) >= LOG_INTERVAL.as_micros() as u64;
        if is_due && self.logged_us.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            line();
        }
    }
}

impl KeyReading {
    /// The place of its counter.
    fn place(&self) -> usize {
        match self {
            Self::Found(_) => 0,
            Self::Absent => 1,
            Self::Broken => 2,
            Self::Failed => 3,
        }
    }
}

/// A call that others may wait for. Dropped when it has ended, also by a panic.
struct KeyCall {
    keys: Arc<StoredKeys>,
    key: CredentialHash,
}

impl Drop for KeyCall {
    fn drop(&mut self) {
        self.keys.reading.lock().remove(&self.key);
    }
}

fn verdict(reading: KeyReading, fallback: Option<Arc<CallerIdentity>>) -> KeyResult {
    match reading {
        KeyReading::Found(identity) => Ok(identity),
        KeyReading::Absent => Err(UNKNOWN),
        KeyReading::Broken => Err(BROKEN),
        KeyReading::Failed => fallback.ok_or(AWAY),
    }
}

async fn outcome(mut reading: watch::Receiver<Option<KeyReading>>) -> KeyReading {
    let ended = reading.wait_for(Option::is_some).await;
    ended.ok().and_then(|ended| ended.clone()).unwrap_or(KeyReading::Failed)
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
