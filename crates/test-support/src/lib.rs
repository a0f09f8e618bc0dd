//! What the tests of several crates share: servers of a test's own, clients that write raw bytes, and polls with a
//! deadline. A program that is missing fails the test, with a message that says what to install.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that lacks what it needs fails")]

pub mod front;
pub mod raw_http;
pub mod redis;
pub mod topology;
pub mod turns;
pub mod upstream;

use std::future::Future;
use std::num::NonZeroU64;
use std::time::Duration;

use tollgate::clock;
use tollgate_limiter::algorithm::quota::Quota;
use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::limit::spec::OnOutage;
use tollgate_limiter::store::Ask;

pub const SECOND: u64 = 1_000_000;
pub const HOUR: u64 = 3_600 * SECOND;

/// `tokens` every `period_us`, `burst` at once.
pub fn shape(tokens: u64, period_us: u64, burst: u64) -> TokenBucket {
    let nonzero = |number| NonZeroU64::new(number).unwrap();
    TokenBucket::new(nonzero(tokens), nonzero(period_us), nonzero(burst)).unwrap()
}

pub fn ask<Q: Into<Quota>>(key: &str, quota: Q, cost: u64) -> Ask {
    Ask {
        key: Key::from(key),
        quota: quota.into(),
        cost,
        largest_cost: cost,
        on_outage: OnOutage::Local,
        settled_later: false,
    }
}

/// Asks again and again until the condition holds. Fails when it does not within `limit`.
pub async fn eventually_within<F, C>(limit: Duration, what: &str, mut condition: C)
where
    F: Future<Output = bool>,
    C: FnMut() -> F,
{
    let started = clock::now();
    while !condition().await {
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub async fn eventually<F, C>(what: &str, condition: C)
where
    F: Future<Output = bool>,
    C: FnMut() -> F,
{
    eventually_within(Duration::from_secs(5), what, condition).await;
}
