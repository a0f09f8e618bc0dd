//! The retry budget: how many requests may be sent a second time, so that retries do not overload a failing upstream.
//!
//! Guarantees retries ≤ 20 % of recent requests + 10 per second.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::clock;

/// Requests that pay for one retry: 20 %.
const PRICE: u32 = 5;
/// The most that requests can save up: 100 retries. It bounds how far back "recent" reaches.
const SAVINGS: u32 = 100 * PRICE;
/// The floor, for upstreams with few requests: one retry every 100 ms, ten of them at once.
const FLOOR_PERIOD_US: u64 = 100_000;
const FLOOR_BURST: u64 = 10;

/// The retries that an upstream can still take.
#[derive(Debug, Default)]
pub struct RetryBudget {
    saved: AtomicU32,
    /// When the floor's bucket is full again, in microseconds of the monotonic clock.
    floor_full_at: AtomicU64,
}

impl RetryBudget {
    /// Saves up for retries: a request is sent for the first time.
    pub fn deposit(&self) {
        // Workers may overshoot the cap by one each: the cap bounds savings and need not be exact.
        if self.saved.load(Ordering::Relaxed) < SAVINGS {
            self.saved.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Pays for one retry. Returns whether there was enough.
    pub fn withdraw(&self) -> bool {
        self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| saved.checked_sub(PRICE)).is_ok()
            || self.withdraw_from_floor(clock::monotonic_micros())
    }

    fn withdraw_from_floor(&self, now: u64) -> bool {
        let take = |full_at: u64| {
            let next = full_at.max(now) + FLOOR_PERIOD_US;
            (next <= now + FLOOR_BURST * FLOOR_PERIOD_US).then_some(next)
        };
        self.floor_full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn withdrawals(budget: &RetryBudget) -> usize {
        (0..10_000).take_while(|_| budget.withdraw()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_fifth_of_the_requests_may_be_retried_above_the_floor() {
        let budget = RetryBudget::default();
        (0..50).for_each(|_| budget.deposit());
        assert_eq!(withdrawals(&budget), 10 + 10);
    }

    #[tokio::test(start_paused = true)]
    async fn old_requests_pay_for_a_hundred_retries_at_most() {
        let budget = RetryBudget::default();
        (0..100_000).for_each(|_| budget.deposit());
        assert_eq!(withdrawals(&budget), 100 + 10);
    }

    #[tokio::test(start_paused = true)]
    async fn the_floor_comes_back_with_time() {
        let budget = RetryBudget::default();
        assert_eq!(withdrawals(&budget), 10);
        tokio::time::advance(std::time::Duration::from_millis(300)).await;
        assert_eq!(withdrawals(&budget), 3);
    }
}
