//! The plans of one hash in the shared store, as far as this node has read them, for limits of one
//! algorithm.
//!
//! Guarantees a look-up that neither waits nor allocates. A plan is used for [`MAX_AGE`] times its
//! cache time at most without having been read again, unless the store cannot be asked. Memory is
//! bounded: [`CAPACITY`] values, those without a plan among them. A value without a plan displaces
//! one with a plan only when that was not used for an hour, so made-up values displace no client
//! that has a plan.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use metrics::{Counter, counter};
use parking_lot::Mutex;

use crate::limit::algorithm::AlgorithmKind;
use crate::limit::key::Key;
use crate::limit::plan::{Plan, PlanError};
use crate::node::bounded_table::BoundedTable;
use crate::store::StoreError;
use crate::store::hash_reader::FieldValue;

/// Values kept of each hash, about 290 bytes each with a plan, and 130 without.
pub const CAPACITY: usize = 65_536;

/// After this many cache times, a plan is not used before it has been read again.
pub const MAX_AGE: u64 = 10;

/// A value with a plan counts as used so much later than it was, when room has to be made.
const PLAN_PRIORITY: Duration = Duration::from_secs(3_600);

/// Pause before a value is read again that is being read already, or whose read failed.
const RETRY: Duration = Duration::from_millis(250);

/// Between two lines in the log about plans that cannot be read: a store that fails now and then
/// would fill it. A failure that is not logged for that reason is logged when it happens again.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The plans of one hash, for limits of one algorithm. One per node.
///
/// The meaning of a text depends on the algorithm: a burst is no plan of a window. Each algorithm
/// has its own plans, ready for use, and its own reasons to reject a text.
pub struct PlanCache {
    hash: Arc<str>,
    algorithm: AlgorithmKind,
    known: BoundedTable<PlanEntry>,
    /// The last read worked: a request that needs another may wait for it.
    readable: AtomicBool,
    /// The log has a line that says that the last read failed.
    unreadable_logged: AtomicBool,
    logged_us: AtomicU64,
    outcomes: [Counter; 5],
}

/// The caches of a node. A cache outlives a reload as long as a limit of its algorithm names its
/// hash.
#[derive(Debug, Default)]
pub struct PlanCaches(Mutex<HashMap<CacheId, Weak<PlanCache>>>);

/// The name of a hash, and an algorithm.
type CacheId = (Arc<str>, AlgorithmKind);

/// A value to be read.
#[derive(Clone, Debug)]
pub struct PlanQuery {
    pub(crate) cache: Arc<PlanCache>,
    pub(crate) field: Key,
    /// No plan is known that could be used meanwhile, or only one that is too old.
    pub(crate) urgent: bool,
}

/// The content of a field at its last read, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanReading {
    pub content: FieldContent,
    /// Microseconds since it was read.
    pub age_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldContent {
    Plan,
    Absent,
    Invalid(PlanError),
}

struct PlanEntry {
    content: CachedContent,
    /// Microseconds of this node's monotonic clock, from before the call was sent.
    read_us: u64,
    /// When the last query for it was made.
    queried_us: u64,
    used_us: u64,
}

enum CachedContent {
    Plan(Box<Plan>),
    Absent,
    /// `logged`: the log has a line for it.
    Invalid {
        why: Box<PlanError>,
        logged: bool,
    },
}

impl PlanQuery {
    /// Whether a decision waits for it. After a read that failed no request waits until one has
    /// worked.
    pub(crate) fn is_awaited(&self) -> bool {
        self.urgent && self.cache.is_readable()
    }
}

impl PlanCaches {
    /// The cache of the hash called `name`, for limits of this algorithm.
    pub fn cache(&self, name: &Arc<str>, algorithm: AlgorithmKind) -> Arc<PlanCache> {
        let mut caches = self.0.lock();
        let place = (name.clone(), algorithm);
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
    fn new(hash: Arc<str>, algorithm: AlgorithmKind) -> Self {
        let outcomes = ["found", "none", "invalid", "failed", "skipped"];
        Self {
            hash,
            algorithm,
            known: BoundedTable::new(CAPACITY),
            readable: AtomicBool::new(true),
            unreadable_logged: AtomicBool::new(false),
            logged_us: AtomicU64::new(0),
            outcomes: outcomes
                .map(|outcome| counter!("tollgate_plan_lookups_total", "outcome" => outcome)),
        }
    }

    pub fn hash(&self) -> &Arc<str> {
        &self.hash
    }

    /// The plan of a value as far as it is known, and the query that is needed, if one is. A plan
    /// is fresh for `hold`.
    pub(crate) fn find(
        self: &Arc<Self>,
        field: Key,
        hold: Duration,
        now_us: u64,
    ) -> (Option<Plan>, Option<PlanQuery>) {
        let known = self.known.with(&field, |found| {
            let entry = found?;
            entry.used_us = now_us;
            let age_us = now_us.saturating_sub(entry.read_us);
            let hold_us = micros(hold);
            if age_us <= hold_us {
                return Some((entry.plan(), None));
            }
            let urgent = age_us > hold_us.saturating_mul(MAX_AGE);
            let being_read = entry.queried_us > entry.read_us
                && now_us.saturating_sub(entry.queried_us) <= micros(RETRY);
            let due = urgent || !being_read;
            entry.queried_us = if due { now_us } else { entry.queried_us };
            Some((entry.plan(), due.then_some(urgent)))
        });
        let (plan, due) = known.unwrap_or((None, Some(true)));
        (
            plan,
            due.map(|urgent| PlanQuery {
                cache: self.clone(),
                field,
                urgent,
            }),
        )
    }

    /// The last plan that was read for a value, however old.
    pub(crate) fn plan(&self, field: &Key) -> Option<Plan> {
        self.known.with(field, |found| found?.plan())
    }

    /// The content of a field at its last read, for people: it does not count as a use.
    pub(crate) fn reading(&self, field: &Key, now_us: u64) -> Option<PlanReading> {
        self.known.with(field, |found| {
            let entry = found?;
            let content = match &entry.content {
                CachedContent::Plan(_) => FieldContent::Plan,
                CachedContent::Absent => FieldContent::Absent,
                CachedContent::Invalid { why, .. } => FieldContent::Invalid((**why).clone()),
            };
            Some(PlanReading {
                content,
                age_us: now_us.saturating_sub(entry.read_us),
            })
        })
    }

    /// Whether a request that needs a query may wait for it. After a read that failed no request
    /// waits until one has worked.
    pub(crate) fn is_readable(&self) -> bool {
        self.readable.load(Ordering::Relaxed)
    }

    /// Takes over the store's values of these fields, read by a call sent at `sent_us`.
    pub(crate) fn learn(&self, values: impl Iterator<Item = (Key, FieldValue)>, sent_us: u64) {
        self.readable.store(true, Ordering::Relaxed);
        if self.unreadable_logged.load(Ordering::Relaxed)
            && self.unreadable_logged.swap(false, Ordering::Relaxed)
        {
            tracing::info!(hash = %self.hash, "plans can be read again");
        }
        for (field, text) in values {
            let content = self.read_content(&field, text.as_deref(), sent_us);
            self.outcomes[content.outcome()].increment(1);
            let entry = PlanEntry {
                content,
                read_us: sent_us,
                queried_us: sent_us,
                used_us: sent_us,
            };
            self.known.offer(field, entry, PlanEntry::worth);
        }
    }

    /// Takes over that `fields` fields could not be read by a call sent at `sent_us`.
    pub(crate) fn fail(&self, why: &StoreError, fields: usize, sent_us: u64) {
        self.outcomes[3].increment(fields as u64);
        self.readable.store(false, Ordering::Relaxed);
        if !self.unreadable_logged.load(Ordering::Relaxed) && self.may_log(sent_us) {
            self.unreadable_logged.store(true, Ordering::Relaxed);
            tracing::warn!(hash = %self.hash, error = %why, "plans cannot be read: the last known hold, or the limit's own rate");
        }
    }

    /// Counts a field that is not read: the store is away, or too many fields wait already.
    pub(crate) fn skip(&self) {
        self.outcomes[4].increment(1);
    }

    fn read_content(&self, field: &Key, text: Option<&[u8]>, now_us: u64) -> CachedContent {
        let Some(text) = text else {
            return CachedContent::Absent;
        };
        match Plan::read(text, &self.algorithm) {
            Ok(plan) => CachedContent::Plan(Box::new(plan)),
            Err(why) => {
                let logged = self.known.with(field, |found| {
                    found.is_some_and(|entry| entry.content.has_logged(&why))
                });
                let logged = logged || self.log_invalid(field, &why, now_us);
                CachedContent::Invalid {
                    why: Box::new(why),
                    logged,
                }
            }
        }
    }

    /// Logs an invalid plan. The field may be shown: it is only there because an operator wrote it,
    /// and secrets are hashed in it.
    fn log_invalid(&self, field: &Key, why: &PlanError, now_us: u64) -> bool {
        let may = self.may_log(now_us);
        if may {
            let field = String::from_utf8_lossy(field.as_bytes());
            tracing::warn!(hash = %self.hash, algorithm = self.algorithm.name(), field = %field.escape_debug(), "a plan cannot be read, the limit's own rate holds: {why}");
        }
        may
    }

    /// Whether it is this caller's turn to write into the log.
    fn may_log(&self, now_us: u64) -> bool {
        let last_us = self.logged_us.load(Ordering::Relaxed);
        if last_us != 0 && now_us.saturating_sub(last_us) < micros(LOG_INTERVAL) {
            return false;
        }
        let exchanged = self.logged_us.compare_exchange(
            last_us,
            now_us.max(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        exchanged.is_ok()
    }
}

impl CachedContent {
    /// Whether this is a value that is no plan for the same reason, which was logged.
    fn has_logged(&self, why: &PlanError) -> bool {
        match self {
            Self::Invalid {
                why: before,
                logged,
            } => *logged && **before == *why,
            Self::Plan(_) | Self::Absent => false,
        }
    }
}

impl PlanEntry {
    fn plan(&self) -> Option<Plan> {
        match &self.content {
            CachedContent::Plan(plan) => Some((**plan).clone()),
            CachedContent::Absent | CachedContent::Invalid { .. } => None,
        }
    }

    fn worth(&self) -> u64 {
        let lead = if matches!(self.content, CachedContent::Plan(_)) {
            micros(PLAN_PRIORITY)
        } else {
            0
        };
        self.used_us.saturating_add(lead)
    }
}

impl CachedContent {
    /// The index of its counter.
    fn outcome(&self) -> usize {
        match self {
            Self::Plan(_) => 0,
            Self::Absent => 1,
            Self::Invalid { .. } => 2,
        }
    }
}

impl std::fmt::Debug for PlanCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlanCache")
            .field("hash", &self.hash)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
