//! Bounds failed attempts to authenticate, by the client's network and by the name that it claims,
//! before anything is checked that costs. `claim` has the buckets of an attempt, `table` the
//! attempts under way and those that wait, `known_networks` the places that owners of names come
//! from, and `shared_checks` the checks that they begin.
//!
//! Guarantees that failed attempts and those under way are never more than the bound together. An
//! attempt without room waits while others of its network are under way: they may succeed, and then
//! cost nothing. Memory is bounded: see [`MemoryStore`] and [`AttemptTable`].

mod claim;
mod known_networks;
pub mod shared_checks;
mod table;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout_at;
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::adjustment::{Adjustment, Change};
use tollgate_limiter::store::memory::MemoryStore;

use self::claim::AttemptClaim;
use self::known_networks::KnownNetworks;
use self::table::{AttemptTable, WaitOutcome};
use super::refusal::AuthenticationRefusal;
use tollgate_limiter::clock::{self, Instant};

/// Networks and names that are remembered. Further ones make room, and lose at most what the
/// forgotten ones lacked.
const MAX_BUCKETS: usize = 65_536;

/// The bound of one name from wherever it is tried, in bounds of a network. Names are known to
/// others: whoever fails from fewer networks keeps no owner out. An attempt from a network where
/// the name has succeeded is not charged to it at all, as OWASP advises
/// (<https://owasp.org/www-community/Slow_Down_Online_Guessing_Attacks_with_Device_Cookies>).
const NETWORKS_OF_A_NAME: u32 = 20;

const CROWDED: AuthenticationRefusal =
    AuthenticationRefusal::Undecided("too many credentials of the client wait to be checked");

/// The failed attempts at one authenticator.
pub struct FailedAttempts {
    buckets: MemoryStore,
    bound: TokenBucket,
    name_bound: TokenBucket,
    known: Mutex<KnownNetworks>,
    /// Locked around what `buckets` are asked, so that nobody misses the end of an attempt.
    table: Mutex<AttemptTable>,
}

/// An attempt under way. Dropping it gives its place back, and it costs nothing unless it [has
/// begun](Self::begin).
pub struct Attempt {
    attempts: Arc<FailedAttempts>,
    claim: Arc<AttemptClaim>,
    has_failed: bool,
}

/// An attempt that has a place, or waits for one.
pub enum PendingAttempt {
    Placed(Attempt),
    Waiting(WaitingAttempt),
}

/// An attempt that waits for others to end. Dropping it leaves the queue.
pub struct WaitingAttempt {
    attempts: Arc<FailedAttempts>,
    claim: Arc<AttemptClaim>,
    number: u64,
    end: oneshot::Receiver<WaitOutcome>,
}

/// Why an attempt has no place now.
struct NoPlace {
    /// The keys of its address that lack room, if attempts under way may give it back. Otherwise
    /// only time does.
    waits_for: Option<Vec<Key>>,
    retry_after_us: u64,
}

impl FailedAttempts {
    /// Each address may fail as `bound` says, and each name twenty times as often.
    pub fn new(bound: TokenBucket) -> Self {
        Self {
            buckets: MemoryStore::new(MAX_BUCKETS),
            bound,
            name_bound: bound.times(NETWORKS_OF_A_NAME),
            known: Mutex::default(),
            table: Mutex::default(),
        }
    }

    /// Begins an attempt of a client at `ip`, as `name` if it claims one.
    ///
    /// # Errors
    /// When too many have failed, or too many wait.
    pub fn place(
        self: &Arc<Self>,
        ip: IpAddr,
        name: Option<&[u8]>,
    ) -> Result<PendingAttempt, AuthenticationRefusal> {
        let mut claim = AttemptClaim::new(ip, self.bound);
        if let Some(name) = name {
            claim = claim.with_name(name, self.name_bound, &self.known.lock());
        }
        let claim = Arc::new(claim);
        let mut table = self.table.lock();
        if !table.is_behind_others(&claim) {
            match self.take(&claim, &mut table) {
                Ok(()) => {
                    drop(table);
                    return Ok(PendingAttempt::Placed(self.placed(claim)));
                }
                Err(NoPlace {
                    waits_for: None,
                    retry_after_us,
                }) => {
                    return Err(AuthenticationRefusal::TooManyAttempts(seconds(
                        retry_after_us,
                    )));
                }
                Err(NoPlace {
                    waits_for: Some(_), ..
                }) => {}
            }
        }
        let waiting = table.enqueue(&claim).ok_or(CROWDED)?;
        drop(table);
        Ok(PendingAttempt::Waiting(WaitingAttempt {
            attempts: self.clone(),
            claim,
            number: waiting.number,
            end: waiting.end,
        }))
    }

    fn placed(self: &Arc<Self>, claim: Arc<AttemptClaim>) -> Attempt {
        Attempt {
            attempts: self.clone(),
            claim,
            has_failed: false,
        }
    }

    /// Takes a place, if each bucket has room for another failure beside those of the attempts
    /// under way.
    fn take(&self, claim: &AttemptClaim, table: &mut AttemptTable) -> Result<(), NoPlace> {
        let now_us = clock::monotonic_micros();
        let levels = self
            .buckets
            .take_at(claim.charges(), 0, now_us, Share::WHOLE)
            .levels;
        let mut no_place = NoPlace {
            waits_for: Some(Vec::new()),
            retry_after_us: 0,
        };
        let mut has_room = true;
        let mut is_empty = false;
        for (place, (charge, level)) in claim.charges().iter().zip(&levels).enumerate() {
            let under_way = table.under_way(&charge.key);
            if level.remaining > under_way {
                continue;
            }
            has_room = false;
            is_empty |= level.remaining == 0;
            // Waiting for a name is of no use: no two passwords of it are right.
            match &mut no_place.waits_for {
                Some(keys) if claim.is_address(place) && under_way > 0 => {
                    keys.push(charge.key.clone())
                }
                waits_for => *waits_for = None,
            }
        }
        if has_room {
            table.begin(claim);
            return Ok(());
        }
        if is_empty && no_place.waits_for.is_none() {
            // An empty bucket denies, and then none is charged.
            let denied = self
                .buckets
                .take_at(claim.charges(), 1, now_us, Share::WHOLE);
            no_place.retry_after_us = denied
                .levels
                .iter()
                .map(|level| level.retry_after_us)
                .max()
                .unwrap_or_default();
        }
        Err(no_place)
    }

    /// An attempt has ended: those that wait for it are next.
    fn end(&self, claim: &AttemptClaim, has_failed: bool) {
        let mut table = self.table.lock();
        if has_failed {
            let now_us = clock::monotonic_micros();
            let charges = claim.charges().iter().map(|charge| {
                let change = Change::Charge {
                    charge: charge.quota.charge(1),
                    since_us: now_us,
                };
                Adjustment {
                    key: charge.key.clone(),
                    quota: charge.quota,
                    change,
                }
            });
            self.buckets.adjust_at(&charges.collect::<Vec<_>>(), now_us);
        }
        table.end(claim);
        let mut full: Vec<Key> = Vec::new();
        table.serve(claim, |table, waiting| {
            if waiting
                .claim
                .addresses()
                .any(|address| full.contains(address))
            {
                return true;
            }
            match self.take(&waiting.claim, table) {
                Ok(()) => waiting.end(Ok(())),
                Err(NoPlace {
                    waits_for: Some(keys),
                    ..
                }) => {
                    full.extend(keys);
                    return true;
                }
                Err(NoPlace {
                    waits_for: None,
                    retry_after_us,
                }) => waiting.end(Err(seconds(retry_after_us))),
            }
            false
        });
    }
}

impl PendingAttempt {
    /// Waits for a place until `deadline`.
    ///
    /// # Errors
    /// When those before it have failed, or take too long.
    pub async fn placed(self, deadline: Instant) -> Result<Attempt, AuthenticationRefusal> {
        let mut waiting = match self {
            Self::Placed(attempt) => return Ok(attempt),
            Self::Waiting(waiting) => waiting,
        };
        match timeout_at(deadline, &mut waiting.end).await {
            Ok(Ok(Ok(()))) => Ok(waiting.attempts.placed(waiting.claim.clone())),
            Ok(Ok(Err(seconds))) => Err(AuthenticationRefusal::TooManyAttempts(seconds)),
            Ok(Err(_)) | Err(_) => Err(CROWDED),
        }
    }
}

impl Attempt {
    /// The costly part begins: from now on the attempt has failed unless it
    /// [succeeds](Self::succeeded).
    pub fn begin(&mut self) {
        self.has_failed = true;
    }

    /// The credential is not known.
    pub fn failed(mut self) {
        self.has_failed = true;
    }

    /// The attempt has not failed. The owner of its name comes from its network, then.
    pub fn succeeded(mut self) {
        self.has_failed = false;
        self.claim.note(&mut self.attempts.known.lock());
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.attempts.end(&self.claim, self.has_failed);
    }
}

impl Drop for WaitingAttempt {
    fn drop(&mut self) {
        self.attempts.table.lock().leave(&self.claim, self.number);
        // A place that came too late is the next one's.
        if let Ok(Ok(())) = self.end.try_recv() {
            self.attempts.end(&self.claim, false);
        }
    }
}

/// Whole seconds for `Retry-After`, rounded up and never 0.
fn seconds(micros: u64) -> u64 {
    micros.div_ceil(1_000_000).max(1)
}
