//! A key's state in the compact form that a table in memory keeps: by the time at which all is
//! back, so that it stays true as time passes. With the floor under states that were dropped to
//! make room.
//!
//! Guarantees that no key ever has more tokens than it should: a key that is not known lacks at
//! least as much as any of its limit that was dropped. That holds while its limit stands. A limit
//! that changed after its key was dropped starts from the floor in time, not in tokens, and one
//! whose algorithm changed starts anew.

use crate::algorithm::quota::Quota;
use crate::algorithm::state::{QuotaState, StoredState};
use crate::algorithm::token_bucket::conversion::Backlog;
use crate::algorithm::token_bucket::{MAX_TICKS, TickRate};
use crate::algorithm::window::{MAX_STEP_BACK_US, Timestamp, WindowEntries};

/// A stored state that does not depend on the time it is looked at.
pub(crate) enum CompactState {
    TokenBucket {
        /// When the bucket is full again, in ticks since the clock's zero.
        full_at: u64,
        /// The worth of those ticks.
        tick_rate: TickRate,
    },
    /// Boxed: most keys have buckets.
    Window(Box<WindowEntries>),
}

/// The most that a key of a limit may lack that is not known.
#[derive(Default)]
pub(crate) struct EvictionFloor {
    /// Microseconds: an unknown bucket may have been charged up to this time.
    buckets_full_at_us: u64,
    /// An unknown window may have as many tokens out, until then.
    window_tokens: u64,
    window_until_us: u64,
}

impl CompactState {
    pub fn new(state: StoredState, now_us: u64) -> Self {
        match state {
            StoredState::TokenBucket(Backlog { ticks, tick_rate }) => Self::TokenBucket {
                full_at: tick_rate.ticks(now_us).saturating_add(ticks),
                tick_rate,
            },
            StoredState::Window(entries) => Self::Window(Box::new(entries)),
        }
    }

    pub fn at(&self, now_us: u64) -> StoredState {
        match self {
            Self::TokenBucket { full_at, tick_rate } => {
                let left = full_at.saturating_sub(tick_rate.ticks(now_us));
                StoredState::TokenBucket(Backlog {
                    ticks: left.min(MAX_TICKS),
                    tick_rate: *tick_rate,
                })
            }
            Self::Window(entries) => StoredState::Window(WindowEntries::clone(entries)),
        }
    }

    /// Makes all tokens be back at `full_at_us` at the latest, by the rate that the state is stored
    /// by.
    pub fn lower(&mut self, full_at_us: u64, now_us: u64) {
        match self {
            Self::TokenBucket { full_at, tick_rate } => {
                *full_at = (*full_at).min(tick_rate.ticks(full_at_us))
            }
            Self::Window(entries) => entries.end_by(now_us, full_at_us),
        }
    }

    /// Until when it is worth keeping.
    pub fn kept_until_us(&self) -> u64 {
        match self {
            Self::TokenBucket { .. } => self.loss().0,
            Self::Window(entries) => entries.last_us().saturating_add(MAX_STEP_BACK_US),
        }
    }

    /// Moves the end of windows: the wall clock stepped back.
    pub fn postpone(&mut self, by_us: u64) {
        if let Self::Window(entries) = self {
            entries.postpone(by_us);
        }
    }

    /// The loss that dropping it would be: until when, and of how many tokens as far as that
    /// counts.
    pub fn loss(&self) -> (u64, u64) {
        match self {
            Self::TokenBucket { full_at, tick_rate } => (tick_rate.micros(*full_at), 0),
            Self::Window(entries) => (entries.last_us(), entries.tokens_out()),
        }
    }
}

impl EvictionFloor {
    /// Covers a state that is dropped.
    pub fn raise(&mut self, dropped: &CompactState, now_us: u64) {
        let (full_at_us, tokens) = dropped.loss();
        match dropped {
            CompactState::TokenBucket { .. } => {
                self.buckets_full_at_us = self.buckets_full_at_us.max(full_at_us)
            }
            CompactState::Window(_) => {
                let still = if self.window_until_us > now_us {
                    self.window_tokens
                } else {
                    0
                };
                self.window_tokens = still.max(tokens);
                self.window_until_us = self.window_until_us.max(full_at_us);
            }
        }
    }

    /// From when on it covers nothing.
    pub fn end_us(&self) -> u64 {
        self.buckets_full_at_us.max(self.window_until_us)
    }

    /// Like [`CompactState::postpone`].
    pub fn postpone(&mut self, by_us: u64) {
        self.window_until_us = self.window_until_us.saturating_add(by_us);
    }

    /// The state of a key that is not known: at most all of its tokens are missing.
    pub fn state(&self, quota: Quota, at: Timestamp) -> QuotaState {
        match quota {
            Quota::TokenBucket(bucket) => {
                let tick_rate = bucket.tick_rate();
                let until_floor =
                    tick_rate.ticks(self.buckets_full_at_us.saturating_sub(at.now_us));
                let ticks = until_floor.min(bucket.capacity());
                let state =
                    StoredState::TokenBucket(Backlog { ticks, tick_rate }).read_as(quota, at);
                // A denial stores the bucket then. Otherwise the floor of a slower limit would go
                // on denying for as long as that takes.
                if until_floor > bucket.capacity() {
                    state.changed()
                } else {
                    state
                }
            }
            Quota::Window(window) if self.window_until_us > at.now_us => {
                let tokens = self.window_tokens.min(window.quota());
                StoredState::Window(WindowEntries::new(tokens, self.window_until_us))
                    .read_as(quota, at)
            }
            Quota::Window(_) => StoredState::full(quota).read_as(quota, at),
        }
    }
}
