//! A key's window, as a limit reads it at some time: how it is charged and corrected.
//!
//! Guarantees that tokens which are out stay out until they expire, whatever the limit's quota and
//! length were when they were taken, but no longer than a token that is taken now.

use crate::algorithm::level::Level;
use crate::algorithm::window::{Timestamp, Window, WindowEntries, WindowEntry};

/// A window as the limit `window` reads it, at `at`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowState {
    window: Window,
    at: Timestamp,
    entries: WindowEntries,
    converted: bool,
}

impl WindowEntries {
    /// The state in a reply of `lua/grant.lua`, given at `now_us`: pairs of microseconds until
    /// tokens expire, and how many. `None`: no such reply.
    pub fn from_reply(numbers: &[u64], now_us: u64) -> Option<Self> {
        let (pairs, []) = numbers.as_chunks::<2>() else {
            return None;
        };
        let entries = pairs.iter().map(|[expires_in_us, tokens]| WindowEntry {
            until_us: now_us.saturating_add(*expires_in_us),
            tokens: *tokens,
        });
        Some(Self::from_entries(entries))
    }
}

impl WindowState {
    /// The window that is stored with these entries.
    #[inline]
    pub fn new(window: Window, mut stored: WindowEntries, at: Timestamp) -> Self {
        let (at, converted) = stored.read_at(at);
        Self {
            window,
            at,
            entries: stored,
            converted,
        }
    }

    /// Whether reading it changed what is to be stored.
    #[inline]
    pub fn is_converted(&self) -> bool {
        self.converted
    }

    /// The entries to store.
    #[inline]
    pub fn stored(&self) -> &WindowEntries {
        &self.entries
    }

    /// Microseconds until all tokens are back.
    #[inline]
    pub fn full_in_us(&self) -> u64 {
        self.entries.last_us().saturating_sub(self.at.now_us)
    }

    /// Like [`QuotaState::fitting`](crate::algorithm::state::QuotaState::fitting).
    #[inline]
    pub fn fitting(&self, parts: u32, cost_tokens: u64, units: u32) -> u32 {
        let part = self.window.shared_by(parts);
        self.entries.fitting(part, cost_tokens, units)
    }

    /// Like [`QuotaState::charge`](crate::algorithm::state::QuotaState::charge).
    #[inline]
    pub fn charge(&mut self, parts: u32, cost_tokens: u64, granted: u32) -> Level {
        let part = self.window.shared_by(parts);
        let outcome = self.entries.charge(part, cost_tokens, granted, self.at);
        Level::from(outcome)
    }

    /// Charges tokens that were admitted without asking, and were to expire at `expires_at_us`.
    pub fn charge_debt(&mut self, charge_tokens: u64, expires_at_us: u64) {
        let until_us = expires_at_us.min(self.at.expires_at_us);
        self.entries
            .charge_debt(charge_tokens, until_us, self.at.now_us);
    }

    /// Refunds tokens that were charged at `taken_us`, when they were to expire at `expired_at_us`.
    pub fn refund(&mut self, charge_tokens: u64, taken_us: u64, expired_at_us: u64) {
        if taken_us <= self.at.now_us {
            self.entries.refund(charge_tokens, expired_at_us);
        }
    }

    /// Grants `tokens`. Consumption beyond the quota is forgiven besides: otherwise a grant would
    /// not show.
    pub fn grant(&mut self, tokens: u64) {
        let used = self.entries.tokens_out().min(self.window.quota());
        self.entries.lower(used.saturating_sub(tokens));
    }

    /// Makes all tokens be back in at most `full_in_us` microseconds.
    pub fn lower_to(&mut self, full_in_us: u64) {
        let until_us = self.at.now_us.saturating_add(full_in_us);
        self.entries.end_by(self.at.now_us, until_us);
    }

    /// Takes over a level that the store replied: at least so much is out from now on.
    pub fn observe(&mut self, level: &Level) {
        let observed = self.window.quota().saturating_sub(level.remaining);
        let missing = observed.saturating_sub(self.entries.tokens_out());
        let until_us = self
            .at
            .now_us
            .saturating_add(level.reset_after_us)
            .min(self.at.expires_at_us);
        self.entries.add(missing, until_us.max(self.at.now_us + 1));
    }
}
