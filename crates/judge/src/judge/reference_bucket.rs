//! A token bucket beside the limiter: it sees the same requests without any delay, and says how
//! many a correct limiter admits.
//!
//! Guarantees to share no arithmetic with the limiter that is judged.

use parking_lot::Mutex;

use crate::limit::TestedLimit;

/// A token bucket. Levels are in tokens times the rate's period.
#[derive(Default)]
pub struct ReferenceBucket(Mutex<ReferenceLevel>);

#[derive(Default)]
struct ReferenceLevel {
    used: u128,
    at_us: u64,
}

impl ReferenceBucket {
    /// Whether `cost` tokens were there at `now_us`, which takes them. Time that runs back stands
    /// still.
    pub fn take(&self, limit: &TestedLimit, cost: u64, now_us: u64) -> bool {
        let mut level = self.0.lock();
        let passed = u128::from(now_us.saturating_sub(level.at_us));
        level.at_us = level.at_us.max(now_us);
        level.used = level.used.saturating_sub(passed * limit.tokens());
        let charge = u128::from(cost) * limit.period();
        let fits = level.used + charge <= u128::from(limit.burst.get()) * limit.period();
        if fits {
            level.used += charge;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_the_burst_and_then_the_rate() {
        let limit = TestedLimit::per_second(10, 5);
        let bucket = ReferenceBucket::default();
        let admitted = |from: u64, to: u64| {
            (from..to)
                .filter(|at| bucket.take(&limit, 1, at * 1_000))
                .count()
        };
        assert_eq!(admitted(1, 101), 5);
        assert_eq!(admitted(101, 1_101), 10);
        assert!(
            !bucket.take(&limit, 1, 0),
            "time that runs back refills nothing"
        );
    }
}
