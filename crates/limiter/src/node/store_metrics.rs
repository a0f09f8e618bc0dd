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
            failed: StoreError::NAMES.map(|outcome| counter!("tollgate_store_calls_total", "outcome" => outcome)),
        }
    }

    pub fn count<T>(&self, answer: Result<T, &StoreError>) {
        match answer {
            Ok(_) => self.ok.increment(1),
            Err(error) => self.failed[error.index()].increment(1),
        }
    }

    /// Counts an answer that came after the requests had given up, beside their timeout.
    pub fn count_late(&self) {
        self.late.increment(1);
    }
}
