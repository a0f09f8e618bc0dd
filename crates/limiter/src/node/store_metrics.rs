//! `tollgate_store_calls_total`: calls to the shared store by outcome, resolved once.

use metrics::{Counter, counter};

use crate::store::StoreError;

/// The counters of calls, by outcome.
pub(crate) struct CallOutcomes {
    ok: Counter,
    late: Counter,
    failed: [Counter; StoreError::NAMES.len()],
}

impl CallOutcomes {
    /// Metrics go to the recorder that is installed by now.
    pub fn new() -> Self {
        Self {
            ok: counter!("tollgate_store_calls_total", "outcome" => "ok"),
            late: counter!("tollgate_store_calls_total", "outcome" => "late"),
            failed: StoreError::NAMES
                .map(|outcome| counter!("tollgate_store_calls_total", "outcome" => outcome)),
        }
    }

    /// Counts a call that failed with this error, or one that was answered.
    pub fn count(&self, error: Option<&StoreError>) {
        match error {
            None => self.ok.increment(1),
            Some(error) => self.failed[error.index()].increment(1),
        }
    }

    /// Counts an answer that came after the requests had given up, beside their timeout.
    pub fn count_late(&self) {
        self.late.increment(1);
    }
}
