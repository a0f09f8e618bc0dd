//! What a key holds, as a limit sees it: how a bucket or a window is charged and corrected, whichever it is.
//!
//! Guarantees that a limit which changes its algorithm forgets nothing: what was consumed by the one counts in tokens by the
//! other. A window that was a bucket has all of them out until its horizon; a bucket that was a window lacks all of them.
//! `lua/values.lua` and what stands behind it are the same. Refuses to know clocks and stores.

use crate::algorithm::conversion::{Backlog, ConvertedBacklog};
use crate::algorithm::level::Level;
use crate::algorithm::quota::Quota;
use crate::algorithm::token_bucket as bucket;
use crate::algorithm::token_bucket::{ChargeOutcome, MAX_TICKS};
use crate::algorithm::window::{Timestamp, WindowEntries};

/// As it is kept, at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredState {
    Bucket(Backlog),
    Window(WindowEntries),
}

/// As a limit sees it, at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaState {
    quota: Quota,
    at: Timestamp,
    held: Consumption,
    changed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Consumption {
    Bucket(ConvertedBacklog),
    Window(WindowEntries),
}

impl StoredState {
    /// Nothing is missing.
    pub fn full(quota: Quota) -> Self {
        match quota {
            Quota::TokenBucket(shape) => Self::Bucket(Backlog { ticks: 0, tick_rate: shape.tick_rate() }),
            Quota::Window(_) => Self::Window(WindowEntries::default()),
        }
    }

    /// `tokens` are missing, those of a window until its horizon.
    pub fn lacking(quota: Quota, tokens: u64, at: Timestamp) -> Self {
        match quota {
            Quota::TokenBucket(shape) => {
                Self::Bucket(Backlog { ticks: shape.charge(tokens).min(MAX_TICKS), tick_rate: shape.tick_rate() })
            }
            Quota::Window(_) => Self::Window(WindowEntries::of(tokens, at.expires_at_us)),
        }
    }

    pub fn is_full(&self) -> bool {
        match self {
            Self::Bucket(backlog) => backlog.ticks == 0,
            Self::Window(ledger) => ledger.is_empty(),
        }
    }

    /// As the limit with this quota sees it. A share sees what the whole limit sees.
    pub fn seen(self, quota: Quota, at: Timestamp) -> QuotaState {
        let (held, changed) = match (self, quota) {
            (Self::Bucket(backlog), Quota::TokenBucket(shape)) => {
                let carried = backlog.carried(shape);
                (Consumption::Bucket(carried), carried.moved)
            }
            (Self::Window(mut ledger), Quota::TokenBucket(shape)) => {
                ledger.end_by(at.now_us, u64::MAX);
                let ticks = shape.charge(ledger.used()).min(MAX_TICKS);
                let mut carried = Backlog { ticks, tick_rate: shape.tick_rate() }.carried(shape);
                carried.moved = ticks > 0;
                (Consumption::Bucket(carried), ticks > 0)
            }
            (Self::Bucket(backlog), Quota::Window(_)) => {
                (Consumption::Window(WindowEntries::of(backlog.tokens(), at.expires_at_us)), backlog.ticks > 0)
            }
            (Self::Window(mut ledger), Quota::Window(_)) => {
                let late = ledger.settle_time(at.now_us, at.expires_at_us);
                (Consumption::Window(ledger), late)
            }
        };
        QuotaState { quota, at, held, changed }
    }
}

impl QuotaState {
    /// Whether it must be kept anew.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// The same, to be kept whatever becomes of it.
    #[must_use]
    pub fn changed(self) -> Self {
        Self { changed: true, ..self }
    }

    /// What to keep.
    pub fn kept(&self) -> StoredState {
        match &self.held {
            Consumption::Bucket(carried) => StoredState::Bucket(carried.kept),
            Consumption::Window(ledger) => StoredState::Window(ledger.clone()),
        }
    }

    /// Microseconds until all tokens are back, as it is kept.
    pub fn full_in_us(&self) -> u64 {
        match &self.held {
            Consumption::Bucket(carried) => carried.kept.tick_rate.micros(carried.kept.ticks),
            Consumption::Window(ledger) => ledger.last_us().saturating_sub(self.at.now_us),
        }
    }

    /// How many of `units` requests of `cost` tokens each fit `part`: the limit, or a node's share of it.
    pub fn grants(&self, part: Quota, cost: u64, units: u32) -> u32 {
        match (&self.held, part) {
            (Consumption::Bucket(carried), Quota::TokenBucket(part)) => {
                bucket::grants(part, carried.backlog, cost, units)
            }
            (Consumption::Window(ledger), Quota::Window(part)) => ledger.grants(part, cost, units),
            _ => 0,
        }
    }

    /// Charges `granted` of the `units` asked for, of `part`.
    pub fn charge(&mut self, part: Quota, cost: u64, granted: u32, units: u32) -> Level {
        self.changed |= granted > 0;
        let taken = match (&mut self.held, part) {
            (Consumption::Bucket(carried), Quota::TokenBucket(part)) => {
                let taken = carried.settle(part, cost, granted, units);
                carried.kept = carried.after(&taken);
                carried.backlog = taken.backlog;
                taken
            }
            (Consumption::Window(ledger), Quota::Window(part)) => ledger.settle(part, cost, [granted, units], self.at),
            _ => ChargeOutcome { granted: 0, backlog: 0, remaining: 0, retry_after_us: 0, reset_after_us: 0 },
        };
        Level { remaining: taken.remaining, retry_after_us: taken.retry_after_us, reset_after_us: taken.reset_after_us }
    }

    /// What a request of `cost` would meet. It takes nothing.
    pub fn level(&self, part: Quota, cost: u64) -> Level {
        self.clone().charge(part, cost, 0, 1)
    }

    /// Charges what was admitted without asking.
    pub fn owe(&mut self, charge: u64) {
        let before = self.kept();
        match (&mut self.held, self.quota) {
            (Consumption::Bucket(carried), Quota::TokenBucket(shape)) => {
                *carried = carried.owe(charge, shape.capacity()).carried(shape)
            }
            (Consumption::Window(ledger), Quota::Window(window)) => {
                ledger.owe(window.quota(), charge, self.at.expires_at_us)
            }
            _ => {}
        }
        self.changed |= self.kept() != before;
    }

    /// Charges all of what a request turned out to cost besides, however little there is.
    pub fn charge_late(&mut self, charge: u64) {
        let before = self.kept();
        match (&mut self.held, self.quota) {
            (Consumption::Bucket(carried), Quota::TokenBucket(shape)) => {
                *carried = carried.owe(charge, MAX_TICKS).carried(shape);
            }
            (Consumption::Window(ledger), Quota::Window(_)) => ledger.owe(MAX_TICKS, charge, self.at.expires_at_us),
            _ => {}
        }
        self.changed |= self.kept() != before;
    }

    /// Gives back a charge that was made at `taken_us`, when the horizon was `from_us`.
    pub fn give_back(&mut self, charge: u64, taken_us: u64, from_us: u64) {
        let before = self.kept();
        match (&mut self.held, self.quota) {
            (Consumption::Bucket(carried), Quota::TokenBucket(shape)) => {
                if let Some(held_us) = self.at.now_us.checked_sub(taken_us).filter(|_| carried.is_own()) {
                    let ticks = bucket::give_back(shape, carried.kept.ticks, charge, held_us);
                    *carried = carried.lowered(ticks);
                }
            }
            (Consumption::Window(ledger), Quota::Window(_)) if taken_us <= self.at.now_us => {
                ledger.give_back(charge, from_us)
            }
            _ => {}
        }
        self.changed |= self.kept() != before;
    }

    /// Tokens that are missing of the burst, what was consumed beyond it left aside.
    fn missing(&self) -> u64 {
        match (&self.held, self.quota) {
            (Consumption::Bucket(carried), Quota::TokenBucket(shape)) => {
                carried.kept.ticks.min(carried.as_kept(shape.capacity()))
            }
            (Consumption::Window(ledger), Quota::Window(window)) => ledger.used().min(window.quota()),
            _ => 0,
        }
    }

    /// The same with `tokens` more, though not more than all. What was consumed beyond the burst is given besides, or what is
    /// given would not show.
    #[must_use]
    pub fn given(mut self, tokens: u64) -> Self {
        let before = self.kept();
        let missing = self.missing();
        match (&mut self.held, self.quota) {
            (Consumption::Bucket(carried), Quota::TokenBucket(shape)) => {
                *carried = carried.lowered(missing.saturating_sub(carried.as_kept(shape.charge(tokens))));
            }
            (Consumption::Window(ledger), Quota::Window(_)) => ledger.lower(missing.saturating_sub(tokens)),
            _ => {}
        }
        self.changed |= self.kept() != before;
        self
    }

    /// The same with nothing missing beyond `full_in_us` from now.
    #[must_use]
    pub fn full_by(mut self, full_in_us: u64) -> Self {
        let before = self.kept();
        match &mut self.held {
            Consumption::Bucket(carried) => *carried = carried.lowered(carried.kept.tick_rate.ticks(full_in_us)),
            Consumption::Window(ledger) => ledger.end_by(self.at.now_us, self.at.now_us.saturating_add(full_in_us)),
        }
        self.changed |= self.kept() != before;
        self
    }

    /// At least so much is missing: what `level` says is left, and how long the rest takes to come back. Time until all of
    /// it is back, unlike tokens, means the same under every share; but where a bucket is kept by a faster limit, that time
    /// is less than by this one, and what remains tells more.
    pub fn observe(&mut self, level: &Level) {
        let before = self.kept();
        match (&mut self.held, self.quota) {
            (Consumption::Bucket(carried), Quota::TokenBucket(shape)) => {
                let fitting = shape.charge(level.remaining.saturating_add(1));
                let by_time = shape.tick_rate().ticks(level.reset_after_us);
                let said = by_time.max((shape.usable() + 1).saturating_sub(fitting));
                if said > carried.backlog {
                    *carried = Backlog { ticks: said.min(MAX_TICKS), tick_rate: shape.tick_rate() }.carried(shape);
                }
            }
            (Consumption::Window(ledger), Quota::Window(window)) => {
                let said = window.quota().saturating_sub(level.remaining);
                let until_us = self.at.now_us.saturating_add(level.reset_after_us).min(self.at.expires_at_us);
                ledger.add(said.saturating_sub(ledger.used()), until_us.max(self.at.now_us + 1));
            }
            _ => {}
        }
        self.changed |= self.kept() != before;
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::algorithm::token_bucket::TokenBucket;
    use crate::algorithm::window::Window;

    const AT: Timestamp = Timestamp { now_us: 1_000_000, expires_at_us: 4_000_000 };

    fn bucket() -> Quota {
        let nonzero = |number| NonZeroU64::new(number).unwrap();
        TokenBucket::new(nonzero(10), nonzero(1_000_000), nonzero(20)).unwrap().into()
    }

    fn window() -> Quota {
        Window::sliding(20, 3_000_000).unwrap().into()
    }

    fn left(state: &QuotaState, quota: Quota) -> u64 {
        state.level(quota, 1).remaining
    }

    #[test]
    fn another_algorithm_sees_the_tokens_that_were_consumed() {
        for (from, to) in [(bucket(), window()), (window(), bucket()), (window(), window()), (bucket(), bucket())] {
            let mut state = StoredState::full(from).seen(from, AT);
            state.charge(from, 1, 7, 7);
            assert_eq!(left(&state.kept().seen(to, AT), to), 13, "{from:?} to {to:?}");
        }
    }

    #[test]
    fn gifts_and_notes_are_of_tokens() {
        for quota in [bucket(), window()] {
            let spent = StoredState::lacking(quota, 20, AT).seen(quota, AT);
            assert_eq!(left(&spent.clone().given(5), quota), 5);
            assert_eq!(left(&spent.clone().given(u64::MAX), quota), 20);
            assert_eq!(left(&spent.full_by(0), quota), 20);
            let mut full = StoredState::full(quota).seen(quota, AT);
            full.observe(&Level { remaining: 8, retry_after_us: 0, reset_after_us: 1_000_000 });
            assert_eq!(left(&full, quota), 8);
        }
    }

    #[test]
    fn a_gift_shows_at_once_also_where_more_was_consumed_than_the_burst() {
        let spent = StoredState::lacking(bucket(), 90, AT).seen(bucket(), AT);
        assert_eq!(left(&spent.given(5), bucket()), 5);
    }

    #[test]
    fn what_is_owed_and_given_back_changes_what_is_kept() {
        for quota in [bucket(), window()] {
            let mut state = StoredState::full(quota).seen(quota, AT);
            state.owe(quota.charge(6));
            assert!(state.is_changed());
            let mut state = state.kept().seen(quota, AT);
            state.give_back(quota.charge(4), AT.now_us, AT.expires_at_us);
            assert_eq!((left(&state, quota), state.is_changed()), (18, true));
        }
    }
}
