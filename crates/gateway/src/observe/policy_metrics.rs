//! The metrics of policies that come from a database.

use metrics::{Counter, Gauge, counter, gauge};

/// Ends of candidates of strategies.
pub struct RolloutMetrics {
    stopped: Counter,
    aborted: Counter,
    promoted: Counter,
}

impl RolloutMetrics {
    pub fn new() -> Self {
        let metrics = Self {
            stopped: counter!("tollgate_policy_rollouts_total", "outcome" => "stopped"),
            aborted: counter!("tollgate_policy_rollouts_total", "outcome" => "aborted"),
            promoted: counter!("tollgate_policy_rollouts_total", "outcome" => "promoted"),
        };
        [&metrics.stopped, &metrics.aborted, &metrics.promoted]
            .into_iter()
            .for_each(|counter| counter.increment(0));
        metrics
    }

    /// Counts a candidate that this node stopped.
    pub fn stopped(&self) {
        self.stopped.increment(1);
    }

    /// Counts a commit of this node that ended a candidate.
    pub fn ended(&self, is_promoted: bool) {
        if is_promoted {
            self.promoted.increment(1)
        } else {
            self.aborted.increment(1)
        }
    }
}

impl Default for RolloutMetrics {
    fn default() -> Self {
        Self::new()
    }
}

/// The policies at work, and the fate of new ones.
pub struct PolicyMetrics {
    revision: Gauge,
    age: Gauge,
    applied: Counter,
    refused: Counter,
}

impl PolicyMetrics {
    pub fn new() -> Self {
        let metrics = Self {
            revision: gauge!("tollgate_policy_revision"),
            age: gauge!("tollgate_policy_age_seconds"),
            applied: counter!("tollgate_policy_updates_total", "outcome" => "applied"),
            refused: counter!("tollgate_policy_updates_total", "outcome" => "refused"),
        };
        metrics.applied.increment(0);
        metrics.refused.increment(0);
        metrics
    }

    /// Shows the revision at work.
    pub fn running(&self, revision: u64) {
        self.revision.set(revision as f64);
    }

    /// Shows the time since the database answered.
    pub fn age(&self, seconds: f64) {
        self.age.set(seconds);
    }

    /// Counts a revision that was taken over.
    pub fn applied(&self) {
        self.applied.increment(1);
    }

    /// Counts a revision that does not fit the file of this node.
    pub fn refused(&self) {
        self.refused.increment(1);
    }
}

impl Default for PolicyMetrics {
    fn default() -> Self {
        Self::new()
    }
}
