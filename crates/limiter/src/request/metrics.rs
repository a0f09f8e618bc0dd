//! `tollgate_ratelimit_decisions_total` and `tollgate_ratelimit_settlements_total` of one limit, resolved once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{Counter, counter};

use crate::decide::decision::DecidedBy;

/// What is counted of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedAs {
    Allowed,
    Denied,
    /// Denied, and passed on to something cheaper.
    Degraded,
    /// Not asked.
    Exempt,
    /// Not acted on, and it would have passed.
    ShadowAllowed,
    /// Not acted on, and it would have been denied.
    ShadowDenied,
}

/// The counters of one limit.
pub struct LimitMetrics {
    rows: [[Counter; BY.len()]; VERDICTS.len()],
}

const BY: [DecidedBy; 4] = [DecidedBy::Redis, DecidedBy::Lease, DecidedBy::DenialCache, DecidedBy::Local];

const VERDICTS: [(CountedAs, &str); 6] = [
    (CountedAs::Allowed, "allowed"),
    (CountedAs::Denied, "denied"),
    (CountedAs::Degraded, "degraded"),
    (CountedAs::Exempt, "exempt"),
    (CountedAs::ShadowAllowed, "shadow_allowed"),
    (CountedAs::ShadowDenied, "shadow_denied"),
];

impl LimitMetrics {
    /// The counters of `limit`. Those that `may_count` says no to are never shown.
    pub fn of(limit: &Arc<str>, may_count: impl Fn(CountedAs) -> bool) -> Self {
        let rows = VERDICTS.map(|(counted, verdict)| {
            BY.map(|by| {
                if !may_count(counted) {
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

/// What came of a cost that is settled after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettlementOutcome {
    /// Charged besides.
    More,
    /// Given back.
    Less,
    Even,
    /// Less, but as much has flowed in since.
    Late,
    /// The response does not say; like the two below, the reservation stands.
    Absent,
    Unreadable,
    /// The response broke off.
    Cut,
    /// Given back: no upstream had the request.
    Unreached,
}

const OUTCOMES: [(SettlementOutcome, &str); 8] = [
    (SettlementOutcome::More, "more"),
    (SettlementOutcome::Less, "less"),
    (SettlementOutcome::Even, "even"),
    (SettlementOutcome::Late, "late"),
    (SettlementOutcome::Absent, "absent"),
    (SettlementOutcome::Unreadable, "unreadable"),
    (SettlementOutcome::Cut, "cut"),
    (SettlementOutcome::Unreached, "unreached"),
];

/// The counters of the settlements of one limit.
pub struct SettlementMetrics {
    counters: [Counter; OUTCOMES.len()],
    limit: Arc<str>,
    told: AtomicBool,
}

impl SettlementMetrics {
    /// Of a limit whose costs may be settled later; of others they would never be shown.
    pub fn of(limit: &Arc<str>) -> Self {
        let counter = |(_, outcome)| {
            let limit = limit.to_string();
            counter!("tollgate_ratelimit_settlements_total", "limit" => limit, "outcome" => outcome)
        };
        Self { counters: OUTCOMES.map(counter), limit: limit.clone(), told: AtomicBool::new(false) }
    }

    /// Counts one. The first that cannot be read is logged: somebody has to change something.
    pub fn count(&self, outcome: SettlementOutcome) {
        if let Some(at) = OUTCOMES.iter().position(|(known, _)| *known == outcome) {
            self.counters[at].increment(1);
        }
        if outcome == SettlementOutcome::Unreadable && !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                limit = %self.limit,
                "a response tells its cost in a way that cannot be read: encoded, or no whole number; what is reserved stands"
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
