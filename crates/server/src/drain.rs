//! Stopping without breaking requests: one signal and one deadline for every listener of every
//! worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use tollgate_limiter::clock::{self, Instant};
use tollgate_wire::http::deadline::LONGEST_WAIT;

/// Starts a drain. A signal that is dropped starts none.
#[derive(Debug)]
pub struct DrainSignal {
    deadline: watch::Sender<Option<Instant>>,
    begun: Arc<AtomicBool>,
}

/// Tells a listener that a drain has begun.
#[derive(Clone, Debug)]
pub struct Drain {
    deadline: watch::Receiver<Option<Instant>>,
    begun: Arc<AtomicBool>,
}

/// The end of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Drained {
    /// Connections that were still open at the deadline, upgraded ones included.
    pub cut: usize,
}

/// A signal, and the drain that the signal starts.
pub fn channel() -> (DrainSignal, Drain) {
    let (sender, receiver) = watch::channel(None);
    let begun = Arc::new(AtomicBool::new(false));
    (
        DrainSignal {
            deadline: sender,
            begun: Arc::clone(&begun),
        },
        Drain {
            deadline: receiver,
            begun,
        },
    )
}

impl DrainSignal {
    /// Starts the drain: requests under way may end, but no later than `within` from now. Only the
    /// first call counts.
    pub fn start(&self, within: Duration) {
        if !self.begun.swap(true, Ordering::Release) {
            self.deadline
                .send_replace(Some(clock::now() + within.min(LONGEST_WAIT)));
        }
    }
}

impl Drain {
    /// Whether the drain has begun. Costs one atomic load.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Waits until the drain begins. Returns its deadline.
    pub async fn begun(&mut self) -> Instant {
        if let Ok(deadline) = self.deadline.wait_for(Option::is_some).await
            && let Some(deadline) = *deadline
        {
            return deadline;
        }
        std::future::pending().await
    }
}
