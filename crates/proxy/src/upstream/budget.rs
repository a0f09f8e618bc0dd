//! The retry budget: how many requests may be sent a second time, so that retries do not overload a
//! failing upstream.
//!
//! Guarantees retries ≤ 20 % of recent requests, or ten per second where that is more. What the ten
//! per second have paid for counts against the share: an upstream with 50 requests per second or
//! more gets no more than 1.2 times as many.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use tollgate_limiter::clock;

/// Requests that pay for one retry: 20 %.
const PRICE: i32 = 5;
/// The most that requests can save up: 100 retries. It bounds how far back "recent" reaches.
const SAVINGS: i32 = 100 * PRICE;
/// The floor, for upstreams with few requests: one retry every 100 ms, ten of them at once.
const FLOOR_PERIOD_US: u64 = 100_000;
const FLOOR_BURST: u64 = 10;
/// The most that the floor has paid in advance, and that requests pay back.
const DEBT: i32 = FLOOR_BURST as i32 * PRICE;

/// The retries that an upstream can still take.
#[derive(Debug, Default)]
pub struct RetryBudget {
    /// Below zero: what the floor has paid in advance.
    saved: AtomicI32,
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
        let now = clock::monotonic_micros();
        if self.pay_from_savings() {
            // The floor is no addition to the share.
            self.withdraw_from_floor(now);
            return true;
        }
        if !self.withdraw_from_floor(now) {
            return false;
        }
        let owed = self
            .saved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| {
                Some((saved - PRICE).max(-DEBT))
            });
        owed.is_ok()
    }

    fn pay_from_savings(&self) -> bool {
        let paid = self
            .saved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| {
                (saved >= PRICE).then_some(saved - PRICE)
            });
        paid.is_ok()
    }

    fn withdraw_from_floor(&self, now: u64) -> bool {
        let latest = now + FLOOR_BURST * FLOOR_PERIOD_US;
        let taken =
            self.floor_full_at
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                    let next = full_at.max(now) + FLOOR_PERIOD_US;
                    (next <= latest).then_some(next)
                });
        taken.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn withdrawals(budget: &RetryBudget) -> usize {
        (0..10_000).take_while(|_| budget.withdraw()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_fifth_of_the_requests_may_be_retried() {
        let budget = RetryBudget::default();
        (0..100).for_each(|_| budget.deposit());
        assert_eq!(withdrawals(&budget), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn old_requests_pay_for_a_hundred_retries_at_most() {
        let budget = RetryBudget::default();
        (0..100_000).for_each(|_| budget.deposit());
        assert_eq!(withdrawals(&budget), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn the_floor_comes_back_with_time() {
        let budget = RetryBudget::default();
        assert_eq!(withdrawals(&budget), 10);
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(withdrawals(&budget), 3);
    }

    /// The retries of `requests`, one every `period`, each of which wants one.
    async fn retries(requests: usize, period: Duration) -> usize {
        let budget = RetryBudget::default();
        let mut retries = 0;
        for _ in 0..requests {
            budget.deposit();
            retries += usize::from(budget.withdraw());
            tokio::time::advance(period).await;
        }
        retries
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_is_no_more_than_a_fifth_of_the_requests_and_few_requests_have_ten_a_second() {
        for per_second in [55, 100, 1000, 10_000] {
            let retries = retries(10_000, Duration::from_secs(1) / per_second).await;
            assert!(
                (1_990..=2_000).contains(&retries),
                "{per_second}: {retries}"
            );
        }
        assert_eq!(retries(1_000, Duration::from_millis(100)).await, 1_000);
        let retries = retries(1_000, Duration::from_millis(50)).await;
        assert!((500..=511).contains(&retries), "{retries}");
    }
}
