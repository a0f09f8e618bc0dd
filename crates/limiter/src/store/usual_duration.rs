//! How long calls usually take: near the longest of the last few.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The estimate follows a rise at once, and a fall by one of this many parts with each call.
const DECAY: u64 = 8;

/// An estimate of the time in which nearly every call ends now.
#[derive(Debug, Default)]
pub(crate) struct UsualDuration {
    us: AtomicU64,
}

impl UsualDuration {
    pub fn get(&self) -> Duration {
        Duration::from_micros(self.us.load(Ordering::Relaxed))
    }

    /// Notes a call that took so many microseconds, or takes that long at least.
    pub fn learn(&self, us: u64) {
        let known = self.us.load(Ordering::Relaxed);
        self.us.store(
            us.max(known - known.saturating_sub(us) / DECAY),
            Ordering::Relaxed,
        );
    }
}
