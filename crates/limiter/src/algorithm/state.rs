//! The state of a key: how it is charged and corrected, whatever the algorithm. With
//! [`quota`](crate::algorithm::quota) this is the one place that tells the algorithms apart.
//!
//! Guarantees that a limit which changes its algorithm forgets nothing: tokens consumed under one
//! algorithm count under the other. A window that was a bucket has all of them out until they would
//! expire now; a bucket that was a window lacks all of them. `lua/values.lua` and the scripts
//! behind it do the same.

use crate::algorithm::conversion::{Backlog, ConvertedBacklog};
use crate::algorithm::level::Level;
use crate::algorithm::quota::Quota;
use crate::algorithm::token_bucket;
use crate::algorithm::token_bucket::{ChargeOutcome, TickRate};
use crate::algorithm::window::{Timestamp, WindowEntries, WindowEntry};

/// A key's state as it is stored, at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredState {
    TokenBucket(Backlog),
    Window(WindowEntries),
}

/// A key's state as the limit with `quota` reads it, at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaState {
    quota: Quota,
    at: Timestamp,
    consumed: Consumption,
    changed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Consumption {
    TokenBucket(ConvertedBacklog),
    Window(WindowEntries),
}

impl StoredState {
    /// No token is missing.
    #[inline]
    pub fn full(quota: Quota) -> Self {
        match quota {
            Quota::TokenBucket(bucket) => Self::TokenBucket(Backlog {
                ticks: 0,
                tick_rate: bucket.tick_rate(),
            }),
            Quota::Window(_) => Self::Window(WindowEntries::default()),
        }
    }

    /// `tokens` are missing; those of a window expire as if they were taken now.
    #[inline]
    pub fn lacking(quota: Quota, tokens: u64, at: Timestamp) -> Self {
        match quota {
            Quota::TokenBucket(bucket) => {
                Self::TokenBucket(Backlog::of(bucket, bucket.charge(tokens)))
            }
            Quota::Window(_) => Self::Window(WindowEntries::of(tokens, at.expires_at_us)),
        }
    }

    /// The state in a reply of `lua/grant.lua`, given at `now_us`: for a bucket its ticks and the
    /// two numbers that they count by; for a window pairs of microseconds and tokens. `None`: no
    /// such reply.
    pub fn from_reply(quota: Quota, numbers: &[u64], now_us: u64) -> Option<Self> {
        match (quota, numbers) {
            (_, []) => Some(Self::full(quota)),
            (Quota::TokenBucket(_), [ticks, emission, ticks_per_us]) => {
                let tick_rate = TickRate::new(*emission, *ticks_per_us)?;
                Some(Self::TokenBucket(Backlog {
                    ticks: *ticks,
                    tick_rate,
                }))
            }
            (Quota::Window(_), pairs) if pairs.len().is_multiple_of(2) => {
                let entry = |pair: &[u64]| WindowEntry {
                    until_us: now_us.saturating_add(pair[0]),
                    tokens: pair[1],
                };
                Some(Self::Window(WindowEntries::from_entries(
                    pairs.chunks_exact(2).map(entry),
                )))
            }
            _ => None,
        }
    }

    /// This state as the limit with this quota reads it. A share reads the same as the whole limit.
    #[inline]
    pub fn read_as(self, quota: Quota, mut at: Timestamp) -> QuotaState {
        let (consumed, changed) = match (self, quota) {
            (Self::TokenBucket(backlog), Quota::TokenBucket(bucket)) => {
                let backlog = backlog.convert_to(bucket);
                (Consumption::TokenBucket(backlog), backlog.changed)
            }
            (Self::Window(mut entries), Quota::TokenBucket(bucket)) => {
                entries.end_by(at.now_us, u64::MAX);
                let mut backlog =
                    Backlog::of(bucket, bucket.charge(entries.used())).convert_to(bucket);
                backlog.changed = backlog.stored.ticks > 0;
                (Consumption::TokenBucket(backlog), backlog.changed)
            }
            (Self::TokenBucket(backlog), Quota::Window(_)) => {
                let entries = WindowEntries::of(backlog.tokens(), at.expires_at_us);
                (Consumption::Window(entries), backlog.ticks > 0)
            }
            (Self::Window(mut entries), Quota::Window(_)) => {
                let (resumed, changed) = entries.read_at(at);
                at = resumed;
                (Consumption::Window(entries), changed)
            }
        };
        QuotaState {
            quota,
            at,
            consumed,
            changed,
        }
    }
}

impl QuotaState {
    /// Whether it must be stored again.
    #[inline]
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// This state, to be stored again in any case.
    #[must_use]
    #[inline]
    pub fn changed(self) -> Self {
        Self {
            changed: true,
            ..self
        }
    }

    /// The state to store.
    #[inline]
    pub fn stored(&self) -> StoredState {
        match &self.consumed {
            Consumption::TokenBucket(backlog) => StoredState::TokenBucket(backlog.stored),
            Consumption::Window(entries) => StoredState::Window(entries.clone()),
        }
    }

    /// Microseconds until all tokens are back, by the rate that the state is stored by.
    #[inline]
    pub fn full_in_us(&self) -> u64 {
        match &self.consumed {
            Consumption::TokenBucket(backlog) => {
                backlog.stored.tick_rate.micros(backlog.stored.ticks)
            }
            Consumption::Window(entries) => entries.last_us().saturating_sub(self.at.now_us),
        }
    }

    /// How many of `units` requests of `cost` tokens each fit `part`: the limit, or a node's share
    /// of it.
    #[inline]
    pub fn fitting(&self, part: Quota, cost: u64, units: u32) -> u32 {
        match (&self.consumed, part) {
            (Consumption::TokenBucket(backlog), Quota::TokenBucket(part)) => {
                token_bucket::fitting(part, backlog.ticks, cost, units)
            }
            (Consumption::Window(entries), Quota::Window(part)) => {
                entries.fitting(part, cost, units)
            }
            _ => 0,
        }
    }

    /// Charges `granted` of the `units` asked for to `part`.
    #[inline]
    pub fn charge(&mut self, part: Quota, cost: u64, granted: u32, units: u32) -> Level {
        self.changed |= granted > 0;
        let outcome = match (&mut self.consumed, part) {
            (Consumption::TokenBucket(backlog), Quota::TokenBucket(part)) => {
                let outcome = backlog.charge(part, cost, granted, units);
                backlog.stored = backlog.after(&outcome);
                backlog.ticks = outcome.backlog;
                outcome
            }
            (Consumption::Window(entries), Quota::Window(part)) => {
                entries.charge(part, cost, granted, self.at)
            }
            _ => ChargeOutcome::default(),
        };
        Level {
            remaining: outcome.remaining,
            retry_after_us: outcome.retry_after_us,
            reset_after_us: outcome.reset_after_us,
        }
    }

    /// The level that a request of `cost` would meet. Charges nothing.
    pub fn level(&self, part: Quota, cost: u64) -> Level {
        self.clone().charge(part, cost, 0, 1)
    }

    /// Charges tokens that were admitted `age_us` microseconds ago without asking, and were to
    /// expire at `expires_at_us`. All of them count, however little there is: what would be cut off
    /// could be admitted again.
    pub fn charge_debt(&mut self, charge: u64, age_us: u64, expires_at_us: u64) {
        self.correct(|consumed, quota, at| match (consumed, quota) {
            (Consumption::TokenBucket(backlog), Quota::TokenBucket(bucket)) => {
                *backlog = backlog.charge_debt(charge, age_us).convert_to(bucket);
            }
            (Consumption::Window(entries), Quota::Window(_)) => {
                entries.charge_debt(charge, expires_at_us.min(at.expires_at_us), at.now_us);
            }
            _ => {}
        });
    }

    /// Refunds a charge that was made at `taken_us`, when it was to expire at `expired_at_us`.
    pub fn refund(&mut self, charge: u64, taken_us: u64, expired_at_us: u64) {
        self.correct(|consumed, quota, at| match (consumed, quota) {
            (Consumption::TokenBucket(backlog), Quota::TokenBucket(bucket)) => {
                if let Some(held_us) = at.now_us.checked_sub(taken_us).filter(|_| backlog.is_own())
                {
                    let ticks = token_bucket::refund(bucket, backlog.stored.ticks, charge, held_us);
                    *backlog = backlog.lowered(ticks);
                }
            }
            (Consumption::Window(entries), Quota::Window(_)) if taken_us <= at.now_us => {
                entries.refund(charge, expired_at_us);
            }
            _ => {}
        });
    }

    /// This state with `tokens` more, though not more than all. Consumption beyond the burst is
    /// forgiven besides: otherwise a grant would not show.
    #[must_use]
    pub fn grant(mut self, tokens: u64) -> Self {
        self.correct(|consumed, quota, _| match (consumed, quota) {
            (Consumption::TokenBucket(backlog), Quota::TokenBucket(bucket)) => {
                let missing = backlog
                    .stored
                    .ticks
                    .min(backlog.as_stored(bucket.capacity()));
                *backlog = backlog
                    .lowered(missing.saturating_sub(backlog.as_stored(bucket.charge(tokens))));
            }
            (Consumption::Window(entries), Quota::Window(window)) => {
                entries.lower(entries.used().min(window.quota()).saturating_sub(tokens));
            }
            _ => {}
        });
        self
    }

    /// This state with all tokens back in at most `full_in_us` microseconds.
    #[must_use]
    pub fn full_by(mut self, full_in_us: u64) -> Self {
        self.correct(|consumed, _, at| match consumed {
            Consumption::TokenBucket(backlog) => {
                *backlog = backlog.lowered(backlog.stored.tick_rate.ticks(full_in_us));
            }
            Consumption::Window(entries) => {
                entries.end_by(at.now_us, at.now_us.saturating_add(full_in_us))
            }
        });
        self
    }

    /// Takes over a level that the store replied: at least so much is missing from now on. Time
    /// until all tokens are back, unlike tokens, means the same under every share. Where a bucket
    /// is stored by a faster limit, that time is less than by this one; then the remaining tokens
    /// tell more.
    pub fn observe(&mut self, level: &Level) {
        self.correct(|consumed, quota, at| match (consumed, quota) {
            (Consumption::TokenBucket(backlog), Quota::TokenBucket(bucket)) => {
                let fitting = bucket.charge(level.remaining.saturating_add(1));
                let by_time = bucket.tick_rate().ticks(level.reset_after_us);
                let observed = by_time.max((bucket.usable() + 1).saturating_sub(fitting));
                if observed > backlog.ticks {
                    *backlog = Backlog::of(bucket, observed).convert_to(bucket);
                }
            }
            (Consumption::Window(entries), Quota::Window(window)) => {
                let observed = window.quota().saturating_sub(level.remaining);
                let until_us = at
                    .now_us
                    .saturating_add(level.reset_after_us)
                    .min(at.expires_at_us);
                entries.add(
                    observed.saturating_sub(entries.used()),
                    until_us.max(at.now_us + 1),
                );
            }
            _ => {}
        });
    }

    /// Corrects what was consumed, and remembers whether that changed what is to be stored.
    fn correct(&mut self, correction: impl FnOnce(&mut Consumption, Quota, Timestamp)) {
        let before = self.stored();
        correction(&mut self.consumed, self.quota, self.at);
        self.changed |= self.stored() != before;
    }
}

#[cfg(test)]
mod tests;
