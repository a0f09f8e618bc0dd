//! A key's token bucket, as a limit reads it at some time: how it is charged and corrected.
//!
//! Guarantees that consumed tokens count whatever the limit's rate and burst were when they were
//! taken: see [`conversion`](crate::algorithm::token_bucket::conversion).

use crate::algorithm::level::Level;
use crate::algorithm::token_bucket;
use crate::algorithm::token_bucket::conversion::{Backlog, ConvertedBacklog};
use crate::algorithm::token_bucket::{TickRate, TokenBucket};

/// A bucket as the limit `bucket` reads it, at `now_us`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucketState {
    bucket: TokenBucket,
    now_us: u64,
    backlog: ConvertedBacklog,
}

impl Backlog {
    /// No token is missing.
    #[inline]
    pub fn full(bucket: TokenBucket) -> Self {
        Self {
            ticks: 0,
            tick_rate: bucket.tick_rate(),
        }
    }

    /// The state in a reply of `lua/grant.lua`: the missing ticks, and the two numbers that they
    /// count by. A full bucket has none of them. `None`: no such reply.
    pub fn from_reply(bucket: TokenBucket, numbers: &[u64]) -> Option<Self> {
        match numbers {
            [] => Some(Self::full(bucket)),
            [ticks, emission, ticks_per_us] => Some(Self {
                ticks: *ticks,
                tick_rate: TickRate::new(*emission, *ticks_per_us)?,
            }),
            _ => None,
        }
    }
}

impl TokenBucketState {
    /// The bucket that is stored with this backlog.
    #[inline]
    pub fn new(bucket: TokenBucket, stored: Backlog, now_us: u64) -> Self {
        Self {
            bucket,
            now_us,
            backlog: stored.convert_to(bucket),
        }
    }

    /// Whether reading it changed what is to be stored.
    #[inline]
    pub fn is_converted(&self) -> bool {
        self.backlog.changed
    }

    /// The backlog to store.
    #[inline]
    pub fn stored(&self) -> Backlog {
        self.backlog.stored
    }

    /// Microseconds until all tokens are back, by the rate that the bucket is stored by.
    #[inline]
    pub fn full_in_us(&self) -> u64 {
        let Backlog { ticks, tick_rate } = self.backlog.stored;
        tick_rate.micros(ticks)
    }

    /// Like [`QuotaState::fitting`](crate::algorithm::state::QuotaState::fitting).
    #[inline]
    pub fn fitting(&self, parts: u32, cost_tokens: u64, units: u32) -> u32 {
        let part = self.bucket.shared_by(parts);
        token_bucket::fitting(part, self.backlog.ticks, cost_tokens, units)
    }

    /// Like [`QuotaState::charge`](crate::algorithm::state::QuotaState::charge).
    #[inline]
    pub fn charge(&mut self, parts: u32, cost_tokens: u64, granted: u32, units: u32) -> Level {
        let part = self.bucket.shared_by(parts);
        let outcome = self.backlog.charge(part, cost_tokens, granted, units);
        self.backlog.stored = self.backlog.after(&outcome);
        self.backlog.ticks = outcome.backlog;
        Level::from(outcome)
    }

    /// Charges ticks that were admitted `age_us` microseconds ago without asking.
    pub fn charge_debt(&mut self, charge_ticks: u64, age_us: u64) {
        let stored = self.backlog.charge_debt(charge_ticks, age_us);
        self.backlog = stored.convert_to(self.bucket);
    }

    /// Refunds ticks that were charged at `taken_us`. A bucket that is stored by another version of
    /// the limit gets no refund, since less may be left of the charge there.
    pub fn refund(&mut self, charge_ticks: u64, taken_us: u64) {
        if !self.backlog.is_own() {
            return;
        }
        let Some(held_us) = self.now_us.checked_sub(taken_us) else {
            return;
        };
        let missing = self.backlog.stored.ticks;
        let left = token_bucket::refund(self.bucket, missing, charge_ticks, held_us);
        self.backlog = self.backlog.lowered(left);
    }

    /// Grants `tokens`. Consumption beyond the burst is forgiven besides: otherwise a grant would
    /// not show.
    pub fn grant(&mut self, tokens: u64) {
        let capacity = self.backlog.as_stored(self.bucket.capacity());
        let missing = self.backlog.stored.ticks.min(capacity);
        let granted = self.backlog.as_stored(self.bucket.charge(tokens));
        self.backlog = self.backlog.lowered(missing.saturating_sub(granted));
    }

    /// Makes all tokens be back in at most `full_in_us` microseconds.
    pub fn lower_to(&mut self, full_in_us: u64) {
        let most = self.backlog.stored.tick_rate.ticks(full_in_us);
        self.backlog = self.backlog.lowered(most);
    }

    /// Takes over a level that the store replied. Time until all tokens are back, unlike tokens,
    /// means the same under every share. Where the bucket is stored by a faster limit, that time is
    /// less than by this one; then the remaining tokens tell more.
    pub fn observe(&mut self, level: &Level) {
        let fitting = self.bucket.charge(level.remaining.saturating_add(1));
        let by_tokens = (self.bucket.usable() + 1).saturating_sub(fitting);
        let by_time = self.bucket.tick_rate().ticks(level.reset_after_us);
        let observed = by_time.max(by_tokens);
        if observed > self.backlog.ticks {
            self.backlog = Backlog::new(self.bucket, observed).convert_to(self.bucket);
        }
    }
}
