//! Stopping without breaking what is under way: one signal, one deadline, every listener of every worker.
//!
//! Knows nothing of sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::LONGEST_WAIT;
use crate::clock::{self, Instant};

/// Starts a drain. Dropping it without starting one changes nothing.
#[derive(Debug)]
pub struct DrainSignal {
    deadline: watch::Sender<Option<Instant>>,
    begun: Arc<AtomicBool>,
}

/// Learns of a drain.
#[derive(Clone, Debug)]
pub struct Drain {
    deadline: watch::Receiver<Option<Instant>>,
    begun: Arc<AtomicBool>,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Drained {
    /// Connections that were still open at the deadline, upgraded ones included.
    pub cut: usize,
}

/// A signal and what it reaches.
pub fn channel() -> (DrainSignal, Drain) {
    let (sender, receiver) = watch::channel(None);
    let begun = Arc::new(AtomicBool::new(false));
    (DrainSignal { deadline: sender, begun: Arc::clone(&begun) }, Drain { deadline: receiver, begun })
}

impl DrainSignal {
    /// Lets what is under way end, but no longer than `within`. The first call counts.
    pub fn start(&self, within: Duration) {
        if !self.begun.swap(true, Ordering::Release) {
            self.deadline.send_replace(Some(clock::now() + within.min(LONGEST_WAIT)));
        }
    }
}

impl Drain {
    /// Whether the drain has begun. Costs one load.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Waits for the drain; gives its deadline.
    pub async fn begun(&mut self) -> Instant {
        if let Ok(deadline) = self.deadline.wait_for(Option::is_some).await
            && let Some(deadline) = *deadline
        {
            return deadline;
        }
        std::future::pending().await
    }
}
