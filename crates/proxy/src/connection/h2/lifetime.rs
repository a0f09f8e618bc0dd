//! The number of streams that connections to an endpoint live for, as the last GOAWAY has taught.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tollgate_limiter::clock;

/// How long a lifetime is trusted. Long enough that an upstream whose connections end after so many
/// streams has little to refuse: the streams of one connection each time. Short enough that an
/// upstream that was only restarted has its connections shared soon.
const TRUSTED: Duration = Duration::from_secs(10);

/// A lifetime, learned from a connection that its upstream has closed while more streams were under
/// way.
pub struct LearnedLifetime {
    /// [`usize::MAX`]: not known, or outlived since.
    streams: AtomicUsize,
    /// Microseconds of the monotonic clock.
    trusted_until: AtomicU64,
}

impl Default for LearnedLifetime {
    fn default() -> Self {
        Self {
            streams: AtomicUsize::new(usize::MAX),
            trusted_until: AtomicU64::new(0),
        }
    }
}

impl LearnedLifetime {
    /// The streams that a connection can be trusted with. [`usize::MAX`]: any number.
    pub fn streams(&self) -> usize {
        let streams = self.streams.load(Ordering::Relaxed);
        let is_trusted = streams != usize::MAX
            && clock::monotonic_micros() < self.trusted_until.load(Ordering::Relaxed);
        if is_trusted { streams } else { usize::MAX }
    }

    /// Learns that a connection has ended after so many streams.
    pub fn learn(&self, streams: usize) {
        let trusted = u64::try_from(TRUSTED.as_micros()).unwrap_or(u64::MAX);
        self.trusted_until.store(
            clock::monotonic_micros().saturating_add(trusted),
            Ordering::Relaxed,
        );
        self.streams.store(streams, Ordering::Relaxed);
    }

    /// Learns that a connection has carried more than so many streams. Returns whether that is
    /// news.
    pub fn outlive(&self, streams: usize) -> bool {
        let is_longer = streams >= self.streams.load(Ordering::Relaxed);
        if is_longer {
            self.streams.store(usize::MAX, Ordering::Relaxed);
        }
        is_longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_trusted_for_some_seconds_or_until_a_connection_outlives_it() {
        let lifetime = LearnedLifetime::default();
        assert_eq!(lifetime.streams(), usize::MAX);
        lifetime.learn(7);
        assert_eq!(
            (lifetime.streams(), lifetime.outlive(6), lifetime.streams()),
            (7, false, 7)
        );
        assert_eq!(
            (lifetime.outlive(7), lifetime.streams()),
            (true, usize::MAX)
        );
        lifetime.learn(7);
        tokio::time::advance(TRUSTED - Duration::from_millis(1)).await;
        assert_eq!(lifetime.streams(), 7);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(lifetime.streams(), usize::MAX);
    }
}
