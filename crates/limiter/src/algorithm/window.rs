//! The arithmetic of fixed and sliding windows, in integers.
//!
//! A window is a list of entries: tokens that were taken, and when they expire, which brings them
//! back. A request passes while its tokens and those in the list are at most the quota. The
//! algorithms differ only in when a token expires: in a fixed window at the window's end, in a
//! sliding one a window's length after it was taken. So admitted in each fixed window, or in any
//! stretch of a sliding one's length, is at most the quota. `lua/window.lua` does the same in
//! Redis; a test demands the same decisions.
//!
//! Guarantees a bound on the entries, that rounding never brings a token back early, and that a
//! clock which steps back over the beginning of a fixed window by no more than [`MAX_STEP_BACK_US`]
//! opens neither window twice.

pub mod state;

use smallvec::SmallVec;

use crate::algorithm::calendar::Period;
use crate::algorithm::token_bucket::{ChargeOutcome, MAX_TICKS};

/// Tokens in a window at most.
pub const MAX_QUOTA: u64 = 1_000_000_000;

/// Parts that a sliding window of a larger quota is divided into. A token comes back at the end of
/// its part's time: at most a 64th of the window late, and never early.
pub const PARTS: u64 = 64;

/// Entries of a window at most. Versions of a limit that take turns have parts of their own; beyond
/// this, the two that expire first become one.
pub const MAX_ENTRIES: usize = 128;

/// The largest step back of a clock that begins no window anew: more than clocks are set by, or
/// than the clocks of a primary and its replica differ. After a larger one a window may admit its
/// quota again, and nobody waits for longer than a window.
pub const MAX_STEP_BACK_US: u64 = 10_000_000;

/// The longest sliding window.
const MAX_WIDTH_US: u64 = 366 * 86_400 * 1_000_000;

/// A quota per window, as the arithmetic uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    quota: u64,
    /// Units of the quota that one token takes: more than 1 where a node enforces its share.
    weight: u32,
    span: Span,
}

/// The stretch of time that a quota is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Span {
    /// Windows that follow one another.
    Fixed(Period),
    /// Any stretch of `width_us` microseconds, divided into steps of `grain_us`.
    Sliding { width_us: u64, grain_us: u64 },
}

/// Tokens that were taken, and when they expire.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct WindowEntries {
    /// In the order in which they expire, each later than the one before.
    entries: SmallVec<[WindowEntry; 2]>,
}

/// A time, and when a token taken then expires, in microseconds of the caller's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Timestamp {
    pub now_us: u64,
    pub expires_at_us: u64,
    /// The end of the next window, if this one ends so soon that the clock may have been in the
    /// next and stepped back. Otherwise `expires_at_us`.
    pub next_expiry_us: u64,
}

/// Tokens that expire together.
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
        let grain_us = if quota <= PARTS {
            1
        } else {
            (width_us / PARTS).max(1)
        };
        Self::checked(quota, width_us, Span::Sliding { width_us, grain_us })
    }

    fn checked(quota: u64, longest_us: u64, span: Span) -> Result<Self, WindowError> {
        if quota > MAX_QUOTA {
            return Err(WindowError::QuotaTooLarge);
        }
        if longest_us > MAX_WIDTH_US {
            return Err(WindowError::TooLong);
        }
        Ok(Self {
            quota,
            weight: 1,
            span,
        })
    }

    /// The part of it that one of `nodes` equal nodes enforces: a token takes `nodes` units of the
    /// quota.
    #[inline]
    pub fn shared_by(self, nodes: u32) -> Self {
        Self {
            weight: self.weight.saturating_mul(nodes.max(1)),
            ..self
        }
    }

    /// The window with at most `quota` tokens.
    #[inline]
    pub fn bounded(self, quota: u64) -> Self {
        Self {
            quota: quota.min(self.quota),
            ..self
        }
    }

    /// Tokens in a whole window.
    #[inline]
    pub fn quota(self) -> u64 {
        self.quota
    }

    #[inline]
    pub fn span(self) -> Span {
        self.span
    }

    /// Microseconds of a window, of the longest one where they differ.
    #[inline]
    pub fn width_us(self) -> u64 {
        match self.span {
            Span::Fixed(period) => period.longest_us(),
            Span::Sliding { width_us, .. } => width_us,
        }
    }

    /// Units of the quota that `tokens` take.
    #[inline]
    pub fn charge(self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.weight.into())
    }
}

impl Span {
    /// Microseconds of the window at `unix_us` since 1970-01-01T00:00Z.
    #[inline]
    pub fn width_at(self, unix_us: u64) -> u64 {
        match self {
            Self::Fixed(period) => {
                let window = period.window_at(unix_us);
                window.end_us - window.start_us
            }
            Self::Sliding { width_us, .. } => width_us,
        }
    }

    /// Whether windows go by a calendar, and so differ in length.
    #[inline]
    pub fn has_calendar(self) -> bool {
        matches!(self, Self::Fixed(period) if period.is_calendar())
    }

    /// `now_us`, and when a token taken then expires, by a clock that read 0 at `epoch_us`
    /// microseconds since 1970-01-01T00:00Z.
    #[inline]
    pub fn timestamp(self, now_us: u64, epoch_us: u64) -> Timestamp {
        let expires_at_us = self.expires_at(now_us, epoch_us);
        let next_expiry_us = match self {
            Self::Fixed(period)
                if expires_at_us - now_us <= MAX_STEP_BACK_US.min(period.longest_us()) =>
            {
                self.expires_at(expires_at_us, epoch_us)
            }
            _ => expires_at_us,
        };
        Timestamp {
            now_us,
            expires_at_us,
            next_expiry_us,
        }
    }

    /// When a token taken at `now_us` expires, by a clock that read 0 at `epoch_us` microseconds
    /// since 1970-01-01T00:00Z.
    #[inline]
    pub fn expires_at(self, now_us: u64, epoch_us: u64) -> u64 {
        match self {
            Self::Fixed(period) => {
                let end_us = period.window_at(epoch_us.saturating_add(now_us)).end_us;
                end_us
                    .saturating_sub(epoch_us)
                    .max(now_us.saturating_add(1))
            }
            Self::Sliding { width_us, grain_us } => (now_us.div_ceil(grain_us))
                .saturating_mul(grain_us)
                .saturating_add(width_us),
        }
    }
}

impl WindowEntries {
    /// `tokens` that expire at `until_us`.
    #[inline]
    pub fn new(tokens: u64, until_us: u64) -> Self {
        let mut list = Self::default();
        list.add(tokens, until_us);
        list
    }

    /// Entries as they were stored, in any order.
    pub fn from_entries(entries: impl Iterator<Item = WindowEntry>) -> Self {
        let mut list = Self::default();
        entries.for_each(|entry| list.add(entry.tokens, entry.until_us));
        list
    }

    /// Drops the tokens that expired by `now_us`. No token is out for longer than one taken now
    /// would be, so a longer window that the limit had before, or a clock that stepped back, locks
    /// nobody out. Says whether any was.
    #[inline]
    pub fn expire(&mut self, now_us: u64, expires_at_us: u64) -> bool {
        self.entries.retain(|entry| entry.until_us > now_us);
        let mut late = 0;
        while let Some(last) = self
            .entries
            .last()
            .filter(|last| last.until_us > expires_at_us)
        {
            late = last.tokens.saturating_add(late);
            self.entries.pop();
        }
        self.add(late, expires_at_us);
        late > 0
    }

    /// Drops the tokens that expired, like [`Self::expire`]. Where tokens of the next window are
    /// out, the clock stepped back: then that window goes on, and the time is returned with its
    /// end. Says whether the entries must be stored.
    #[inline]
    pub fn read_at(&mut self, at: Timestamp) -> (Timestamp, bool) {
        let last_us = self.last_us();
        let stepped_back = last_us > at.expires_at_us && last_us <= at.next_expiry_us;
        let at = if stepped_back {
            Timestamp {
                expires_at_us: last_us,
                ..at
            }
        } else {
            at
        };
        (at, self.expire(at.now_us, at.expires_at_us))
    }

    /// Moves all expiries by `by_us`: the clock that they are the ends of windows by stepped back.
    pub fn postpone(&mut self, by_us: u64) {
        self.entries
            .iter_mut()
            .for_each(|entry| entry.until_us = entry.until_us.saturating_add(by_us));
    }

    /// Leaves no token out beyond `until_us`.
    #[inline]
    pub fn end_by(&mut self, now_us: u64, until_us: u64) {
        self.expire(now_us, until_us);
        self.entries.retain(|entry| entry.until_us > now_us);
    }

    /// Tokens that are out.
    #[inline]
    pub fn tokens_out(&self) -> u64 {
        self.entries
            .iter()
            .fold(0, |sum, entry| sum.saturating_add(entry.tokens))
    }

    /// When the last of them expires; 0 when none is out.
    #[inline]
    pub fn last_us(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.until_us)
    }

    /// How many of `units` requests of `cost` tokens each fit. None when the cost is over the
    /// quota.
    #[inline]
    pub fn fitting(&self, window: Window, cost: u64, units: u32) -> u32 {
        let room = window.quota.saturating_sub(self.tokens_out());
        let count = room.checked_div(window.charge(cost)).unwrap_or(u64::MAX);
        u32::try_from(count).map_or(units, |count| count.min(units))
    }

    /// Charges `granted` requests. The caller made sure with [`Self::fitting`] that they fit.
    #[inline]
    pub fn charge(
        &mut self,
        window: Window,
        cost: u64,
        granted: u32,
        Timestamp {
            now_us,
            expires_at_us,
            ..
        }: Timestamp,
    ) -> ChargeOutcome {
        let charge = window.charge(cost);
        self.add(charge.saturating_mul(granted.into()), expires_at_us);
        let used = self.tokens_out();
        let missing = used.saturating_add(charge).saturating_sub(window.quota);
        ChargeOutcome {
            granted,
            backlog: used,
            remaining: window.quota.saturating_sub(used) / u64::from(window.weight),
            // Also of the last request that passes: where the tokens of a window come back one
            // after the other, nothing else tells when the next one passes.
            retry_after_us: self.wait_us(missing, now_us),
            reset_after_us: self.last_us().saturating_sub(now_us),
        }
    }

    /// Microseconds until `missing` tokens have come back. Of more than are out, until all have.
    #[inline]
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

    /// Charges a debt: tokens that were admitted without asking, and that expire at `until_us`. All
    /// of them count, up to [`MAX_TICKS`] in all, unless they have expired by `now_us`.
    #[inline]
    pub fn charge_debt(&mut self, tokens: u64, until_us: u64, now_us: u64) {
        if until_us > now_us {
            self.add(
                tokens.min(MAX_TICKS.saturating_sub(self.tokens_out())),
                until_us,
            );
        }
    }

    /// Refunds tokens that were to expire at `until_us`, as far as they are still out.
    #[inline]
    pub fn refund(&mut self, tokens: u64, until_us: u64) {
        if let Some(entry) = self
            .entries
            .iter_mut()
            .find(|entry| entry.until_us == until_us)
        {
            entry.tokens = entry.tokens.saturating_sub(tokens);
        }
        self.entries.retain(|entry| entry.tokens > 0);
    }

    /// Leaves at most `used` tokens out. Those that would expire last go first.
    pub fn lower(&mut self, used: u64) {
        let mut extra = self.tokens_out().saturating_sub(used);
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

    /// Adds `tokens` that expire at `until_us`.
    #[inline]
    pub fn add(&mut self, tokens: u64, until_us: u64) {
        if tokens == 0 {
            return;
        }
        let place = self
            .entries
            .partition_point(|entry| entry.until_us < until_us);
        match self
            .entries
            .get_mut(place)
            .filter(|entry| entry.until_us == until_us)
        {
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
