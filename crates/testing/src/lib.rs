//! Helpers for the tests of several crates: servers of a test's own, clients that write raw bytes,
//! and polls with a deadline. A program that is missing fails the test, with a message that says
//! what to install. Nothing here needs the gateway, so tests of the limiter do not link it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that lacks what it needs fails"
)]

pub mod dns;
pub mod nginx;
pub mod node;
pub mod pace;
pub mod poll;
pub mod raw_http;
pub mod raw_http2;
pub mod redis;
pub mod topology;
pub mod turns;
pub mod upstream;

use std::num::NonZeroU64;

use tollgate_limiter::algorithm::quota::Quota;
use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::decide::check::{CheckPolicy, Checks};
use tollgate_limiter::decide::decision::Decision;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::BucketCharge;

pub use poll::{PATIENCE, answer_of, answer_within, eventually, in_time, until};

pub const SECOND: u64 = 1_000_000;
pub const HOUR: u64 = 3_600 * SECOND;

/// `tokens` every `period_us`, `burst` at once.
pub fn shape(tokens: u64, period_us: u64, burst: u64) -> TokenBucket {
    let [tokens, period_us, burst] =
        [tokens, period_us, burst].map(|number| NonZeroU64::new(number).unwrap());
    TokenBucket::new(tokens, period_us, burst).unwrap()
}

/// A charge of `cost` tokens to the bucket with this key.
pub fn charge<Q: Into<Quota>>(key: &str, quota: Q, cost: u64) -> BucketCharge {
    BucketCharge {
        key: Key::from(key),
        quota: quota.into(),
        cost,
        largest_cost: cost,
        local_us: u64::MAX,
    }
}

/// The decision on all of `charges` together, from the store if it has to be asked.
pub async fn decide(limiter: &Limiter, charges: &[BucketCharge]) -> Decision {
    limiter.decide(&checks(charges)).wait().await
}

/// The decision on all of `charges` together, where this process knows it.
pub fn decide_locally(limiter: &Limiter, charges: &[BucketCharge]) -> Option<Decision> {
    limiter.decide(&checks(charges)).done()
}

/// Checks that the node's share enforces while the store is away.
pub fn checks(charges: &[BucketCharge]) -> Checks {
    let mut checks = Checks::default();
    for charge in charges {
        checks.tokens.push(charge.clone(), CheckPolicy::default());
    }
    checks
}
