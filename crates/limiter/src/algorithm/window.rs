//! The arithmetic of fixed and sliding windows, in integers.
//!
//! A window is a *ledger*: which tokens were taken, and when each of them comes back. A request passes while its tokens and
//! those in the ledger are at most the quota. The algorithms differ only in when a token comes back: in a fixed window at
//! the window's end, in a sliding one a window's length after it was taken. So admitted in each fixed window, or in any
//! stretch of a sliding one's length, is at most the quota. `lua/window.lua` is the same for the shared store; a test
//! demands the same decisions.
//!
//! Guarantees a bound on what a ledger holds, and that rounding never brings a token back early. Refuses to know clocks,
//! calendars, keys and stores: when a token taken now comes back, the *horizon*, is told.

use smallvec::SmallVec;

use crate::algorithm::calendar::Period;
use crate::algorithm::token_bucket::ChargeOutcome;

/// Tokens of a window at most.
pub const MAX_QUOTA: u64 = 1_000_000_000;

/// Parts of a sliding window that are told apart. A token of a larger quota comes back at the end of its part's time: at
/// most a 64th of the window late, and never early.
pub const PARTS: u64 = 64;

/// Entries of a ledger at most. Versions of a limit that take turns have parts of their own; beyond this, the two that end
/// first become one.
pub const MAX_ENTRIES: usize = 128;

/// The longest sliding window.
const MAX_WIDTH_US: u64 = 366 * 86_400 * 1_000_000;

/// A quota per window, as the arithmetic uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    quota: u64,
    /// How much of the quota one token takes: more than 1 where a node enforces its share.
    weight: u32,
    span: Span,
}

/// Which stretch of time a quota is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Span {
    /// One after the other.
    Fixed(Period),
    /// Any stretch of `width_us` microseconds, told apart in steps of `grain_us`.
    Sliding { width_us: u64, grain_us: u64 },
}

/// Tokens taken, and when they come back.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct WindowEntries {
    /// In the order in which they end, each later than the one before.
    entries: SmallVec<[WindowEntry; 2]>,
}

/// A time, and when a token taken then comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Timestamp {
    pub now_us: u64,
    pub expires_at_us: u64,
}

/// Tokens that come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowEntry {
    pub until_us: u64,
    pub tokens: u64,
}

/// Why a rate cannot be a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    #[error("the quota is over 1000000000 tokens")]
    QuotaTooLarge,
    #[error("the window is over 366 days long")]
    TooLong,
}

impl Window {
    /// `quota` tokens in each window of `period`.
    ///
    /// # Errors
    /// When the quota or the window is out of bounds.
    pub fn fixed(quota: u64, period: Period) -> Result<Self, WindowError> {
        Self::checked(quota, period.longest_us(), Span::Fixed(period))
    }

    /// `quota` tokens in any `width_us` microseconds.
    ///
    /// # Errors
    /// When the quota or the window is out of bounds.
    pub fn sliding(quota: u64, width_us: u64) -> Result<Self, WindowError> {
        let grain_us = if quota <= PARTS { 1 } else { (width_us / PARTS).max(1) };
        Self::checked(quota, width_us, Span::Sliding { width_us, grain_us })
    }

    fn checked(quota: u64, longest_us: u64, span: Span) -> Result<Self, WindowError> {
        if quota > MAX_QUOTA {
            return Err(WindowError::QuotaTooLarge);
        }
        if longest_us > MAX_WIDTH_US {
            return Err(WindowError::TooLong);
        }
        Ok(Self { quota, weight: 1, span })
    }

    /// The part of it that one of `nodes` equal nodes enforces: a token takes as many of the quota.
    pub fn shared_by(self, nodes: u32) -> Self {
        Self { weight: self.weight.saturating_mul(nodes.max(1)), ..self }
    }

    /// Tokens in a whole window.
    pub fn quota(self) -> u64 {
        self.quota
    }

    /// How much of the quota one token takes.
    pub fn weight(self) -> u32 {
        self.weight
    }

    pub fn span(self) -> Span {
        self.span
    }

    /// Microseconds of a window, of the longest one where they differ.
    pub fn width_us(self) -> u64 {
        match self.span {
            Span::Fixed(period) => period.longest_us(),
            Span::Sliding { width_us, .. } => width_us,
        }
    }

    /// What `tokens` take of the quota.
    pub fn charge(self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.weight.into())
    }
}

impl Span {
    /// When a token taken at `now_us` comes back, of a clock that read 0 at `epoch_us` microseconds since 1970-01-01T00:00Z.
    pub fn expires_at(self, now_us: u64, epoch_us: u64) -> u64 {
        match self {
            Self::Fixed(period) => {
                let end_us = period.window_at(epoch_us.saturating_add(now_us)).end_us;
                end_us.saturating_sub(epoch_us).max(now_us.saturating_add(1))
            }
            Self::Sliding { width_us, grain_us } => {
                (now_us.div_ceil(grain_us)).saturating_mul(grain_us).saturating_add(width_us)
            }
        }
    }
}

impl WindowEntries {
    /// So many tokens, which come back at `until_us`.
    pub fn of(tokens: u64, until_us: u64) -> Self {
        let mut ledger = Self::default();
        ledger.add(tokens, until_us);
        ledger
    }

    /// Entries as they were stored, in any order.
    pub fn collect(entries: impl Iterator<Item = WindowEntry>) -> Self {
        let mut ledger = Self::default();
        entries.for_each(|entry| ledger.add(entry.tokens, entry.until_us));
        ledger
    }

    pub fn entries(&self) -> &[WindowEntry] {
        &self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Without what has come back by `now_us`. Nothing is out for longer than what is taken now would be: a longer window
    /// that the limit had before, or a clock that stepped back, locks nobody out.
    /// Says whether anything was.
    pub fn settle_time(&mut self, now_us: u64, expires_at_us: u64) -> bool {
        self.entries.retain(|entry| entry.until_us > now_us);
        let mut late = 0;
        while let Some(last) = self.entries.last().filter(|last| last.until_us > expires_at_us) {
            late = last.tokens.saturating_add(late);
            self.entries.pop();
        }
        self.add(late, expires_at_us);
        late > 0
    }

    /// Nothing is out beyond `until_us`.
    pub fn end_by(&mut self, now_us: u64, until_us: u64) {
        self.settle_time(now_us, until_us);
        self.entries.retain(|entry| entry.until_us > now_us);
    }

    /// Tokens that are out.
    pub fn used(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.tokens))
    }

    /// When the last of them comes back; 0 when none is out.
    pub fn last_us(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.until_us)
    }

    /// How many of `units` requests of `cost` tokens each fit. None when the cost is over the quota.
    pub fn grants(&self, window: Window, cost: u64, units: u32) -> u32 {
        let room = window.quota.saturating_sub(self.used());
        let fitting = room.checked_div(window.charge(cost)).unwrap_or(u64::MAX);
        u32::try_from(fitting).map_or(units, |fitting| fitting.min(units))
    }

    /// Charges `granted` of the `units` asked for. The caller made sure with [`Self::grants`] that they fit.
    pub fn settle(
        &mut self,
        window: Window,
        cost: u64,
        [granted, units]: [u32; 2],
        Timestamp { now_us, expires_at_us }: Timestamp,
    ) -> ChargeOutcome {
        let charge = window.charge(cost);
        self.add(charge.saturating_mul(granted.into()), expires_at_us);
        let used = self.used();
        let missing = used.saturating_add(charge).saturating_sub(window.quota);
        ChargeOutcome {
            granted,
            backlog: used,
            remaining: window.quota.saturating_sub(used) / u64::from(window.weight),
            retry_after_us: if granted < units { self.wait_us(missing, now_us) } else { 0 },
            reset_after_us: self.last_us().saturating_sub(now_us),
        }
    }

    /// Microseconds until `missing` tokens have come back. Of more than are out, until all have.
    pub fn wait_us(&self, missing: u64, now_us: u64) -> u64 {
        let mut back = 0_u64;
        if missing == 0 {
            return 0;
        }
        for entry in &self.entries {
            back = back.saturating_add(entry.tokens);
            if back >= missing {
                return entry.until_us.saturating_sub(now_us);
            }
        }
        self.last_us().saturating_sub(now_us)
    }

    /// Charges a debt: tokens that were admitted without asking. That makes a window owe at most its quota or the debt, if
    /// that is more, and never less than before.
    pub fn owe(&mut self, quota: u64, tokens: u64, expires_at_us: u64) {
        let used = self.used();
        let after = used.saturating_add(tokens).min(quota.max(tokens)).max(used);
        self.add(after - used, expires_at_us);
    }

    /// Gives back tokens that were taken when they were to come back at `until_us`, as far as they are still out.
    pub fn give_back(&mut self, tokens: u64, until_us: u64) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.until_us == until_us) {
            entry.tokens = entry.tokens.saturating_sub(tokens);
        }
        self.entries.retain(|entry| entry.tokens > 0);
    }

    /// The same with at most `used` tokens out. Those go that would come back last.
    pub fn lower(&mut self, used: u64) {
        let mut extra = self.used().saturating_sub(used);
        while extra > 0
            && let Some(last) = self.entries.last_mut()
        {
            let gone = extra.min(last.tokens);
            (last.tokens, extra) = (last.tokens - gone, extra - gone);
            if last.tokens == 0 {
                self.entries.pop();
            }
        }
    }

    /// Puts out `tokens` until `until_us`.
    pub fn add(&mut self, tokens: u64, until_us: u64) {
        if tokens == 0 {
            return;
        }
        let place = self.entries.partition_point(|entry| entry.until_us < until_us);
        match self.entries.get_mut(place).filter(|entry| entry.until_us == until_us) {
            Some(entry) => entry.tokens = entry.tokens.saturating_add(tokens),
            None => self.entries.insert(place, WindowEntry { until_us, tokens }),
        }
        if self.entries.len() > MAX_ENTRIES {
            let first = self.entries.remove(0);
            self.entries[0].tokens = self.entries[0].tokens.saturating_add(first.tokens);
        }
    }
}

#[cfg(test)]
mod tests;
