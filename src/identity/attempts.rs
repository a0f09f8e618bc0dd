//! Bounds failed attempts to authenticate, by the client's address and by the name that it claims, before anything is
//! checked that costs.
//!
//! Guarantees that attempts under way count as failed until they have succeeded, so that many at once are no way around
//! the bound. Memory is bounded: see [`MemoryStore`].

use std::net::IpAddr;

use sha2::{Digest, Sha256};
use tollgate_limiter::algorithm::quota::Quota;
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::BucketCharge;
use tollgate_limiter::store::adjustment::{Adjustment, Change};
use tollgate_limiter::store::memory::MemoryStore;

use crate::clock;

/// Addresses and names that are remembered. Further ones make room, and lose at most what the forgotten ones lacked.
const MAX_BUCKETS: usize = 65_536;

/// A client of IPv6 has all addresses of its network to choose from.
const IPV6_NETWORK: u8 = 64;

/// The failed attempts at one authenticator.
pub struct FailedAttempts {
    buckets: MemoryStore,
    quota: Quota,
}

/// An attempt that counts as failed, unless it [succeeds](FailedAttempts::succeeded).
pub struct Attempt {
    charges: Vec<BucketCharge>,
    taken_at_us: u64,
}

impl FailedAttempts {
    /// Each address and each name may fail as `quota` says.
    pub fn new(quota: Quota) -> Self {
        Self { buckets: MemoryStore::new(MAX_BUCKETS), quota }
    }

    /// Begins an attempt of a client at `ip`, as `name` if it claims one.
    ///
    /// # Errors
    /// When too many have failed: the seconds until the next may be made.
    pub fn begin(&self, ip: IpAddr, name: Option<&[u8]>) -> Result<Attempt, u64> {
        let charge = |key: Key| BucketCharge { key, quota: self.quota, cost: 1, largest_cost: 1 };
        let charges: Vec<BucketCharge> =
            [Some(of_address(ip)), name.map(of_name)].into_iter().flatten().map(charge).collect();
        let grant = self.buckets.take_at(&charges, 1, clock::monotonic_micros(), Share::WHOLE);
        if grant.units == 0 {
            let wait_us = grant.levels.iter().map(|level| level.retry_after_us).max().unwrap_or_default();
            return Err(wait_us.div_ceil(1_000_000).max(1));
        }
        Ok(Attempt { charges, taken_at_us: grant.at_us })
    }

    /// The attempt has not failed.
    pub fn succeeded(&self, attempt: Attempt) {
        let (charge, taken_at_us) = (self.quota.charge(1), attempt.taken_at_us);
        let change = Change::Refund { charge, taken_at_us };
        let refunds: Vec<Adjustment> = (attempt.charges.into_iter())
            .map(|BucketCharge { key, quota, .. }| Adjustment { key, quota, change })
            .collect();
        self.buckets.adjust_at(&refunds, clock::monotonic_micros());
    }
}

/// The prefixes keep addresses and names apart, each with its own part of the table.
fn of_address(ip: IpAddr) -> Key {
    let mut key = Key(b"address:".as_slice().into());
    key.0.extend_from_slice(Key::of_ip(ip, 32, IPV6_NETWORK).as_bytes());
    key
}

/// A name is as long as its client likes, and is nobody's business.
fn of_name(name: &[u8]) -> Key {
    let mut key = Key(b"name:".as_slice().into());
    key.0.extend_from_slice(&Sha256::digest(name)[..16]);
    key
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use tollgate_limiter::algorithm::token_bucket::TokenBucket;

    use super::*;

    /// Two at once, one more every ten seconds.
    fn attempts() -> FailedAttempts {
        let number = |number| NonZeroU64::new(number).unwrap();
        FailedAttempts::new(TokenBucket::new(number(1), number(10_000_000), number(2)).unwrap().into())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_and_a_name_fail_a_few_times_and_then_wait() {
        let attempts = attempts();
        assert!(attempts.begin(ip("192.0.2.1"), Some(b"ada")).is_ok());
        assert!(attempts.begin(ip("192.0.2.1"), Some(b"bob")).is_ok());
        assert_eq!(attempts.begin(ip("192.0.2.1"), Some(b"cyd")).err(), Some(10), "the address has failed twice");
        assert!(attempts.begin(ip("192.0.2.2"), Some(b"ada")).is_ok());
        assert!(attempts.begin(ip("192.0.2.3"), Some(b"ada")).is_err(), "the name has failed twice");
        assert!(attempts.begin(ip("192.0.2.3"), Some(b"cyd")).is_ok(), "what is refused counts nowhere");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(attempts.begin(ip("192.0.2.1"), None).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_succeeds_counts_no_more() {
        let attempts = attempts();
        for _ in 0..5 {
            let attempt = attempts.begin(ip("192.0.2.1"), Some(b"ada")).unwrap_or_else(|_| panic!("none has failed"));
            attempts.succeeded(attempt);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_addresses_of_a_network_of_ipv6_fail_together() {
        let attempts = attempts();
        for host in ["2001:db8::1", "2001:db8::2"] {
            assert!(attempts.begin(ip(host), None).is_ok());
        }
        assert!(attempts.begin(ip("2001:db8::3"), None).is_err());
        assert!(attempts.begin(ip("2001:db8:0:1::3"), None).is_ok());
    }
}
