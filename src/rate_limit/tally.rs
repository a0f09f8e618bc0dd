//! `tollgate_ratelimit_decisions_total` of one limit, resolved once.

use std::sync::Arc;

use metrics::{Counter, counter};

use super::decision::DecidedBy;

/// What is counted of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
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
pub struct Tally {
    rows: [[Counter; BY.len()]; VERDICTS.len()],
}

const BY: [DecidedBy; 4] = [DecidedBy::Redis, DecidedBy::Lease, DecidedBy::DenialCache, DecidedBy::Local];

const VERDICTS: [(Counted, &str); 6] = [
    (Counted::Allowed, "allowed"),
    (Counted::Denied, "denied"),
    (Counted::Degraded, "degraded"),
    (Counted::Exempt, "exempt"),
    (Counted::ShadowAllowed, "shadow_allowed"),
    (Counted::ShadowDenied, "shadow_denied"),
];

impl Tally {
    /// The counters of `limit`. Those that `may_count` says no to are never shown.
    pub fn of(limit: &Arc<str>, may_count: impl Fn(Counted) -> bool) -> Self {
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
    pub fn count(&self, counted: Counted, by: DecidedBy) {
        let row = VERDICTS.iter().position(|(known, _)| *known == counted);
        let column = BY.iter().position(|known| *known == by);
        if let (Some(row), Some(column)) = (row, column) {
            self.rows[row][column].increment(1);
        }
    }
}

impl std::fmt::Debug for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tally")
    }
}
