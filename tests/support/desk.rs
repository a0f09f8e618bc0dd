//! A store whose answers a test gives itself, call by call.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tollgate::rate_limit::decision::Level;
use tollgate::store::memory::MemoryStore;
use tollgate::store::{Ask, Grant, Store, StoreError};

pub const TIMEOUT: Duration = Duration::from_millis(20);

/// Hands every call over, and fails it after [`TIMEOUT`].
pub struct Desk {
    calls: mpsc::UnboundedSender<Call>,
}

/// A call that waits for its answer.
pub struct Call {
    pub asks: Vec<Ask>,
    pub units: u32,
    answer: oneshot::Sender<Result<Grant, StoreError>>,
}

impl Desk {
    pub fn open() -> (Self, mpsc::UnboundedReceiver<Call>) {
        let (calls, incoming) = mpsc::unbounded_channel();
        (Self { calls }, incoming)
    }
}

impl Call {
    pub fn answer(self, result: Result<Grant, StoreError>) {
        // Whoever asked may be gone.
        let _ = self.answer.send(result);
    }

    /// As a bucket in `memory` decides.
    pub async fn answer_from(self, memory: &MemoryStore) {
        let grant = memory.take(&self.asks, self.units).await;
        self.answer(grant);
    }

    /// Grants so many units, and says the same of every bucket.
    pub fn grant(self, units: u32, level: Level) {
        let levels = self.asks.iter().map(|_| level).collect();
        self.answer(Ok(Grant { units, levels }));
    }
}

impl Store for Desk {
    fn take<'a>(&'a self, asks: &'a [Ask], units: u32) -> BoxFuture<'a, Result<Grant, StoreError>> {
        let (answer, answered) = oneshot::channel();
        let handed_over = self.calls.send(Call { asks: asks.to_vec(), units, answer });
        Box::pin(async move {
            handed_over.map_err(|_| StoreError::Io)?;
            let answer = tokio::time::timeout(TIMEOUT, answered).await;
            answer.map_or(Err(StoreError::Timeout), |answer| answer.unwrap_or(Err(StoreError::Io)))
        })
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }
}
