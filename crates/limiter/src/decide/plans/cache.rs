//! The plans of one hash in the shared store, as far as this node has read them for limits that count in one manner.
//!
//! Guarantees a look-up that neither waits nor allocates; that a plan is used for [`STALE`] times its cache time at most
//! without having been read again, unless the store cannot be asked; and a bound on memory: [`PLACES`] values, those
//! without a plan among them. A value without a plan takes the place of one with a plan only once nobody has asked for that
//! for an hour, so made-up values push nobody out who has one. Refuses to know how plans are read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use metrics::{Counter, counter};
use parking_lot::Mutex;

use crate::limit::algorithm_kind::AlgorithmKind;
use crate::limit::key::Key;
use crate::limit::plan::{Plan, PlanError};
use crate::node::bounded_table::BoundedTable;
use crate::store::StoreError;
use crate::store::hash_reader::FieldValue;

/// Values kept of each hash, about 290 bytes each with a plan, and 130 without.
pub const PLACES: usize = 65_536;

/// Cache times after which a plan is not used any more before it has been read again.
pub const STALE: u64 = 10;

/// A value with a plan counts as used so much later than it was.
const LEAD: Duration = Duration::from_secs(3_600);

/// To read a value again that is being read already, or whose reading came to nothing.
const RETRY: Duration = Duration::from_millis(250);

/// Between two lines in the log about what cannot be read: a store that fails now and then would fill it. What is not said
/// for that is said when it happens again.
const COMPLAINT: Duration = Duration::from_secs(1);

/// What is known of one hash, for limits that count in one manner. One per node.
///
/// What a text means depends on that manner: a burst is no plan of a window. So each has its own plans, ready for use, and
/// says itself what it cannot count by.
pub struct PlanCache {
    hash: Arc<str>,
    manner: AlgorithmKind,
    known: BoundedTable<Entry>,
    /// The last reading worked: whoever needs another may wait for it.
    readable: AtomicBool,
    /// The log says that the last one did not.
    told_unreadable: AtomicBool,
    complained_us: AtomicU64,
    outcomes: [Counter; 5],
}

/// The caches of a node. They outlive a reload, as long as a limit that counts so names the hash.
#[derive(Debug, Default)]
pub struct PlanCaches(Mutex<HashMap<Of, Weak<PlanCache>>>);

/// A hash's name, and the manner of counting.
type Of = (Arc<str>, AlgorithmKind);

/// A value to be read.
#[derive(Clone, Debug)]
pub struct PlanQuery {
    pub(crate) cache: Arc<PlanCache>,
    pub(crate) field: Key,
    /// Nothing is known that could be used meanwhile, or only what is too old.
    pub(crate) urgent: bool,
}

/// What the store said of a value, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub holds: Holds,
    /// Microseconds since it was read.
    pub age_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    Plan,
    Nothing,
    Other(PlanError),
}

struct Entry {
    told: Told,
    /// Microseconds of this node's monotonic clock, from before the question was sent.
    read_us: u64,
    /// When it was last to be read again.
    asked_us: u64,
    used_us: u64,
}

enum Told {
    Plan(Box<Plan>),
    Nothing,
    /// `said`: in the log.
    Other {
        why: Box<PlanError>,
        said: bool,
    },
}

impl PlanQuery {
    /// Whether a decision waits for it. After a reading that failed nobody waits until one has worked.
    pub(crate) fn is_awaited(&self) -> bool {
        self.urgent && self.cache.is_readable()
    }
}

impl PlanCaches {
    /// The cache of the hash called `name`, for limits that count in this manner.
    pub fn of(&self, name: &Arc<str>, manner: AlgorithmKind) -> Arc<PlanCache> {
        let (mut caches, place) = (self.0.lock(), (name.clone(), manner));
        if let Some(cache) = caches.get(&place).and_then(Weak::upgrade) {
            return cache;
        }
        let cache = Arc::new(PlanCache::new(name.clone(), place.1.clone()));
        caches.insert(place, Arc::downgrade(&cache));
        cache
    }
}

impl PlanCache {
    /// Metrics go to the recorder that is installed by now.
    fn new(hash: Arc<str>, manner: AlgorithmKind) -> Self {
        let outcomes = ["found", "none", "invalid", "failed", "skipped"];
        Self {
            hash,
            manner,
            known: BoundedTable::new(PLACES),
            readable: AtomicBool::new(true),
            told_unreadable: AtomicBool::new(false),
            complained_us: AtomicU64::new(0),
            outcomes: outcomes.map(|outcome| counter!("tollgate_plan_lookups_total", "outcome" => outcome)),
        }
    }

    pub fn hash(&self) -> &Arc<str> {
        &self.hash
    }

    /// The plan of a value as far as it is known, and the look-up that is due, if one is. A plan holds for `hold`.
    pub(crate) fn find(self: &Arc<Self>, field: Key, hold: Duration, now_us: u64) -> (Option<Plan>, Option<PlanQuery>) {
        let known = self.known.with(&field, |found| {
            let entry = found?;
            entry.used_us = now_us;
            let (age_us, hold_us) = (now_us.saturating_sub(entry.read_us), micros(hold));
            if age_us <= hold_us {
                return Some((entry.plan(), None));
            }
            let urgent = age_us > hold_us.saturating_mul(STALE);
            let being_read = entry.asked_us > entry.read_us && now_us.saturating_sub(entry.asked_us) <= micros(RETRY);
            let due = urgent || !being_read;
            entry.asked_us = if due { now_us } else { entry.asked_us };
            Some((entry.plan(), due.then_some(urgent)))
        });
        let (plan, due) = known.unwrap_or((None, Some(true)));
        (plan, due.map(|urgent| PlanQuery { cache: self.clone(), field, urgent }))
    }

    /// The last plan that was read for a value, however old.
    pub(crate) fn plan(&self, field: &Key) -> Option<Plan> {
        self.known.with(field, |found| found?.plan())
    }

    /// What is known of a value, for people: not a use of it.
    pub(crate) fn reading(&self, field: &Key, now_us: u64) -> Option<Reading> {
        self.known.with(field, |found| {
            let entry = found?;
            let holds = match &entry.told {
                Told::Plan(_) => Holds::Plan,
                Told::Nothing => Holds::Nothing,
                Told::Other { why, .. } => Holds::Other((**why).clone()),
            };
            Some(Reading { holds, age_us: now_us.saturating_sub(entry.read_us) })
        })
    }

    /// Whether who needs a look-up may wait for it. After one that failed nobody waits until one has worked.
    pub(crate) fn is_readable(&self) -> bool {
        self.readable.load(Ordering::Relaxed)
    }

    /// Takes in what the store holds of these fields, asked at `sent_us`.
    pub(crate) fn learn(&self, told: impl Iterator<Item = (Key, FieldValue)>, sent_us: u64) {
        self.readable.store(true, Ordering::Relaxed);
        if self.told_unreadable.load(Ordering::Relaxed) && self.told_unreadable.swap(false, Ordering::Relaxed) {
            tracing::info!(hash = %self.hash, "plans can be read again");
        }
        for (field, text) in told {
            let told = self.judge(&field, text.as_deref(), sent_us);
            self.outcomes[told.outcome()].increment(1);
            let entry = Entry { told, read_us: sent_us, asked_us: sent_us, used_us: sent_us };
            self.known.offer(field, entry, Entry::worth);
        }
    }

    /// Takes in that so many fields could not be read, when asked at `sent_us`.
    pub(crate) fn fail(&self, why: &StoreError, fields: usize, sent_us: u64) {
        self.outcomes[3].increment(fields as u64);
        self.readable.store(false, Ordering::Relaxed);
        if !self.told_unreadable.load(Ordering::Relaxed) && self.may_complain(sent_us) {
            self.told_unreadable.store(true, Ordering::Relaxed);
            tracing::warn!(hash = %self.hash, error = %why, "plans cannot be read: the last known hold, or the limit's own rate");
        }
    }

    /// Takes in that a field is not asked for: the store is away, or too many are asked for already.
    pub(crate) fn skip(&self) {
        self.outcomes[4].increment(1);
    }

    fn judge(&self, field: &Key, text: Option<&[u8]>, now_us: u64) -> Told {
        let Some(text) = text else { return Told::Nothing };
        match Plan::read(text, &self.manner) {
            Ok(plan) => Told::Plan(Box::new(plan)),
            Err(why) => {
                let was_said =
                    |entry: &Entry| matches!(&entry.told, Told::Other { why: before, said: true } if **before == why);
                let said = self.known.with(field, |found| found.is_some_and(|entry| was_said(entry)));
                let said = said || self.complain(field, &why, now_us);
                Told::Other { why: Box::new(why), said }
            }
        }
    }

    /// A field is only there when an operator wrote it, so it may be told; secrets are hashed in it.
    fn complain(&self, field: &Key, why: &PlanError, now_us: u64) -> bool {
        let may = self.may_complain(now_us);
        if may {
            let field = String::from_utf8_lossy(field.as_bytes());
            tracing::warn!(hash = %self.hash, algorithm = self.manner.name(), field = %field.escape_debug(), "a plan cannot be read, the limit's own rate holds: {why}");
        }
        may
    }

    /// Whether it is this caller's turn to write into the log.
    fn may_complain(&self, now_us: u64) -> bool {
        let last_us = self.complained_us.load(Ordering::Relaxed);
        let due = last_us == 0 || now_us.saturating_sub(last_us) >= micros(COMPLAINT);
        let turn = || self.complained_us.compare_exchange(last_us, now_us.max(1), Ordering::Relaxed, Ordering::Relaxed);
        due && turn().is_ok()
    }
}

impl Entry {
    fn plan(&self) -> Option<Plan> {
        match &self.told {
            Told::Plan(plan) => Some((**plan).clone()),
            Told::Nothing | Told::Other { .. } => None,
        }
    }

    fn worth(&self) -> u64 {
        let lead = if matches!(self.told, Told::Plan(_)) { micros(LEAD) } else { 0 };
        self.used_us.saturating_add(lead)
    }
}

impl Told {
    /// The place of its counter.
    fn outcome(&self) -> usize {
        match self {
            Self::Plan(_) => 0,
            Self::Nothing => 1,
            Self::Other { .. } => 2,
        }
    }
}

impl std::fmt::Debug for PlanCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlanCache").field("hash", &self.hash).field("manner", &self.manner).finish_non_exhaustive()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
