//! `tollgate_ratelimit_decisions_total` and `tollgate_ratelimit_settlements_total` of one limit,
//! resolved once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use metrics::{Counter, counter};
use parking_lot::Mutex;

use crate::decide::decision::DecidedBy;

/// The outcomes of a decision that are counted of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedAs {
    Allowed,
    Denied,
    /// Denied, and degraded.
    Degraded,
    /// The limit was not asked.
    Exempt,
    /// Not enforced, and would have passed.
    ShadowAllowed,
    /// Not enforced, and would have been denied.
    ShadowDenied,
}

/// The counters of limits that are in use: a limit has the same in each configuration, and on each
/// route.
#[derive(Debug, Default)]
pub struct LimitMetricsCache(Mutex<CachedMetrics>);

/// By limit, and by which outcomes it may count.
type CachedMetrics = HashMap<(Arc<str>, [bool; VERDICTS.len()]), Weak<LimitMetrics>>;

/// The counters of one limit.
pub struct LimitMetrics {
    rows: [[Counter; BY.len()]; VERDICTS.len()],
}

const BY: [DecidedBy; 4] = [
    DecidedBy::Redis,
    DecidedBy::Lease,
    DecidedBy::DenialCache,
    DecidedBy::Local,
];

const VERDICTS: [(CountedAs, &str); 6] = [
    (CountedAs::Allowed, "allowed"),
    (CountedAs::Denied, "denied"),
    (CountedAs::Degraded, "degraded"),
    (CountedAs::Exempt, "exempt"),
    (CountedAs::ShadowAllowed, "shadow_allowed"),
    (CountedAs::ShadowDenied, "shadow_denied"),
];

impl LimitMetricsCache {
    /// The counters of `limit`. An outcome that `may_count` rejects is never exported.
    pub fn limit(
        &self,
        limit: &Arc<str>,
        may_count: impl Fn(CountedAs) -> bool,
    ) -> Arc<LimitMetrics> {
        let counts = VERDICTS.map(|(counted, _)| may_count(counted));
        let mut cached = self.0.lock();
        if let Some(metrics) = cached.get(&(limit.clone(), counts)).and_then(Weak::upgrade) {
            return metrics;
        }
        if cached.len() == cached.capacity() {
            // Before it grows, those of limits that are gone make room.
            cached.retain(|_, metrics| metrics.strong_count() > 0);
        }
        let metrics = Arc::new(LimitMetrics::new(limit, counts));
        cached.insert((limit.clone(), counts), Arc::downgrade(&metrics));
        metrics
    }
}

impl LimitMetrics {
    fn new(limit: &Arc<str>, counts: [bool; VERDICTS.len()]) -> Self {
        let mut counts = counts.into_iter();
        let rows = VERDICTS.map(|(_, verdict)| {
            let counted = counts.next().unwrap_or(false);
            BY.map(|by| {
                if !counted {
                    return Counter::noop();
                }
                let limit = limit.to_string();
                counter!("tollgate_ratelimit_decisions_total", "limit" => limit, "verdict" => verdict, "decided_by" => by.as_str())
            })
        });
        Self { rows }
    }

    /// Counts one decision.
    pub fn count(&self, counted: CountedAs, by: DecidedBy) {
        let row = VERDICTS.iter().position(|(known, _)| *known == counted);
        let column = BY.iter().position(|known| *known == by);
        if let (Some(row), Some(column)) = (row, column) {
            self.rows[row][column].increment(1);
        }
    }
}

/// The outcome of a cost that is settled after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettlementOutcome {
    /// The cost was more, and was charged.
    More,
    /// The cost was less, and the rest was refunded.
    Less,
    Even,
    /// Less, but the rest has flowed in since.
    Late,
    /// The response does not tell; as with the two below, what is reserved or the cost of an absent
    /// number is charged.
    Absent,
    Unreadable,
    /// The response broke off.
    Cut,
    /// Refunded: no upstream had the request.
    Unreached,
    /// Refunded: the limit does not count responses of this status.
    Uncounted,
}

const OUTCOMES: [(SettlementOutcome, &str); 9] = [
    (SettlementOutcome::More, "more"),
    (SettlementOutcome::Less, "less"),
    (SettlementOutcome::Even, "even"),
    (SettlementOutcome::Late, "late"),
    (SettlementOutcome::Absent, "absent"),
    (SettlementOutcome::Unreadable, "unreadable"),
    (SettlementOutcome::Cut, "cut"),
    (SettlementOutcome::Unreached, "unreached"),
    (SettlementOutcome::Uncounted, "uncounted"),
];

/// The counters of the settlements of one limit.
pub struct SettlementMetrics {
    counters: [Counter; OUTCOMES.len()],
    limit: Arc<str>,
    logged: AtomicBool,
}

impl SettlementMetrics {
    /// The counters of a limit whose costs may be settled later.
    pub fn new(limit: &Arc<str>) -> Self {
        Self {
            counters: OUTCOMES.map(|(_, outcome)| {
            let limit = limit.to_string();
            counter!("tollgate_ratelimit_settlements_total", "limit" => limit, "outcome" => outcome)
        }),
            limit: limit.clone(),
            logged: AtomicBool::new(false),
        }
    }

    /// Counts one. The first that cannot be read is logged: an operator has to change something.
    pub fn count(&self, outcome: SettlementOutcome) {
        if let Some(at) = OUTCOMES.iter().position(|(known, _)| *known == outcome) {
            self.counters[at].increment(1);
        }
        if outcome == SettlementOutcome::Unreadable && !self.logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                limit = %self.limit,
                "a response tells its cost in a way that cannot be read: encoded, or no whole number; what is reserved stands, or what an absent number costs"
            );
        }
    }
}

impl std::fmt::Debug for SettlementMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SettlementMetrics")
    }
}

impl std::fmt::Debug for LimitMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LimitMetrics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_has_the_same_counters_wherever_it_is_used_and_they_go_with_it() {
        let cache = LimitMetricsCache::default();
        let kept = cache.limit(&"kept".into(), |_| true);
        assert!(Arc::ptr_eq(&kept, &cache.limit(&"kept".into(), |_| true)));
        let fewer = cache.limit(&"kept".into(), |counted| counted == CountedAs::Denied);
        assert!(
            !Arc::ptr_eq(&kept, &fewer),
            "what may be counted has changed"
        );
        for number in 0..10_000 {
            drop(cache.limit(&format!("gone{number}").into(), |_| true));
        }
        assert!(
            cache.0.lock().len() < 100,
            "{} are kept",
            cache.0.lock().len()
        );
        assert!(Arc::ptr_eq(&kept, &cache.limit(&"kept".into(), |_| true)));
    }
}
