//! The numbers of a limit, whatever its algorithm: the questions that the limiter and its stores
//! ask of every algorithm.
//!
//! Guarantees an answer for each algorithm to each question; the arithmetic is in
//! [`token_bucket`] and [`window`](crate::algorithm::window).

use crate::algorithm::held_back::{HeldBack, Reserve};
use crate::algorithm::level::Level;
use crate::algorithm::token_bucket;
use crate::algorithm::token_bucket::TokenBucket;
use crate::algorithm::window::{PARTS, Span, Timestamp, Window};

/// The numbers of a limit, as the arithmetic uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quota {
    /// Tokens that flow back one by one.
    TokenBucket(TokenBucket),
    /// Tokens that come back when they expire, several at once.
    Window(Window),
}

/// The script of an algorithm, in `lua/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlgorithmScript {
    TokenBucket,
    FixedWindow,
    SlidingWindow,
}

/// The part of a reservation that was not spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unspent {
    /// Ticks of a bucket, tokens of a window.
    pub charge: u64,
    /// Microseconds since the reservation in which nothing was lost of it.
    pub covered_us: u64,
}

impl AlgorithmScript {
    /// The letter that stands for the algorithm in the scripts' arguments.
    #[inline]
    pub fn letter(self) -> &'static str {
        match self {
            Self::TokenBucket => "b",
            Self::FixedWindow => "f",
            Self::SlidingWindow => "s",
        }
    }
}

impl Quota {
    /// The part of it that one of `nodes` equal nodes enforces.
    #[inline]
    pub fn shared_by(self, nodes: u32) -> Self {
        match self {
            Self::TokenBucket(bucket) => Self::TokenBucket(bucket.shared_by(nodes)),
            Self::Window(window) => Self::Window(window.shared_by(nodes)),
        }
    }

    /// The charge of `tokens`, in the unit of [`Self::charge`], and the limit to hold it to, while
    /// a part is held back. A bucket's charge is scaled, so that nothing that is stored has to be
    /// converted; of a window, tokens are kept back.
    #[inline]
    pub fn holding_back(self, held: HeldBack, tokens: u64) -> (u64, Self) {
        match self {
            Self::TokenBucket(bucket) => (
                held.charge(bucket.charge(tokens), bucket.capacity())
                    .min(token_bucket::MAX_TICKS),
                self,
            ),
            Self::Window(window) => (
                tokens,
                Self::Window(window.bounded(held.quota(window.quota()))),
            ),
        }
    }

    /// The charge of tokens that are spent already, while a part is held back: `charge` is in the
    /// unit of [`Self::charge`]. Of a window, tokens are kept back, and weigh no more than ever.
    #[inline]
    pub fn charge_holding_back(self, held: HeldBack, charge: u64) -> u64 {
        match self {
            Self::TokenBucket(_) => held.scaled(charge).min(token_bucket::MAX_TICKS),
            Self::Window(_) => charge,
        }
    }

    /// The refund of tokens that were charged while a part was held back: `charge` is in the unit
    /// of [`Self::charge`].
    #[inline]
    pub fn refund_holding_back(self, held: HeldBack, charge: u64) -> u64 {
        match self {
            Self::TokenBucket(_) => held.refund(charge).min(token_bucket::MAX_TICKS),
            Self::Window(_) => charge,
        }
    }

    /// The level of a client whose request of `tokens` was decided while a part was held back.
    /// `level` is that of the store, and `whole_retry_us` the wait in a window of which nothing is
    /// held back.
    pub fn level_holding_back(
        self,
        reserve: Reserve,
        tokens: u64,
        level: Level,
        whole_retry_us: u64,
    ) -> Level {
        let Reserve { part, left_us } = reserve;
        if part == HeldBack::Nothing {
            return level;
        }
        let mut remaining = level.remaining;
        let mut whole_retry_us = whole_retry_us;
        if let Self::TokenBucket(bucket) = self {
            let charge = bucket.charge(tokens);
            let extra = self.holding_back(part, tokens).0.saturating_sub(charge);
            let backlog = bucket.tick_rate().ticks(level.reset_after_us);
            let fitting = bucket.usable().saturating_sub(backlog) / part.scaled(bucket.charge(1));
            // The time may be by another version of the limit, and tokens are rounded.
            remaining = fitting.clamp(part.quota(remaining), part.quota(remaining + 1));
            whole_retry_us = level
                .retry_after_us
                .saturating_sub(extra / bucket.ticks_per_us());
        }
        // At least 1: a level with no wait denies nothing.
        let longest_us = whole_retry_us.max(left_us).max(1);
        let retry_after_us = match part {
            // Whatever comes back meanwhile, nothing of it is granted.
            HeldBack::Whole if level.retry_after_us > 0 => longest_us,
            _ => level.retry_after_us.min(longest_us),
        };
        Level {
            remaining,
            retry_after_us,
            ..level
        }
    }

    /// This limit for tokens that may be spent a while after they were taken. Windows have no
    /// leases.
    #[inline]
    pub fn leased(self, largest_cost: u64) -> Self {
        match self {
            Self::TokenBucket(bucket) => Self::TokenBucket(bucket.leased(largest_cost)),
            Self::Window(_) => self,
        }
    }

    /// Microseconds from the call for it that a token taken ahead may be spent; 0: none may be.
    #[inline]
    pub fn lease_us(self) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.lease_us(),
            Self::Window(_) => 0,
        }
    }

    /// Tokens that may be taken at once, at most.
    #[inline]
    pub fn burst(self) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.burst(),
            Self::Window(window) => window.quota(),
        }
    }

    /// Microseconds in which all tokens are back for certain.
    #[inline]
    pub fn fill_us(self) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.micros(bucket.capacity()),
            Self::Window(window) => window.width_us(),
        }
    }

    /// Microseconds of the window at `unix_us` since 1970-01-01T00:00Z; of a bucket, in which it
    /// fills.
    #[inline]
    pub fn window_us(self, unix_us: u64) -> u64 {
        match self {
            Self::Window(window) => window.span().width_at(unix_us),
            Self::TokenBucket(_) => self.fill_us(),
        }
    }

    /// Whether its windows go by a calendar, and so differ in length.
    #[inline]
    pub fn has_calendar(self) -> bool {
        match self {
            Self::Window(window) => window.span().has_calendar(),
            Self::TokenBucket(_) => false,
        }
    }

    /// Tokens that all requests of `us` microseconds together take on and on: what flows in
    /// meanwhile. Of a window, all of its tokens.
    #[inline]
    pub fn tokens_within(self, us: u64) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.tick_rate().ticks(us) / bucket.emission(),
            Self::Window(window) => window.quota(),
        }
    }

    /// Microseconds before all tokens are back at which a request of `tokens` passes for certain.
    #[inline]
    pub fn spare_us(self, tokens: u64) -> u64 {
        match self {
            Self::TokenBucket(bucket) => {
                bucket.micros(bucket.usable().saturating_sub(bucket.charge(tokens)))
            }
            Self::Window(_) => 0,
        }
    }

    /// A time of a clock that read 0 at `epoch_us` microseconds since 1970-01-01T00:00Z, and when a
    /// token taken then expires.
    #[inline]
    pub fn timestamp(self, now_us: u64, epoch_us: u64) -> Timestamp {
        match self {
            Self::TokenBucket(_) => Timestamp {
                now_us,
                expires_at_us: u64::MAX,
                next_expiry_us: u64::MAX,
            },
            Self::Window(window) => window.span().timestamp(now_us, epoch_us),
        }
    }

    /// The charge of `tokens`: ticks of a bucket, units of a window's quota.
    #[inline]
    pub fn charge(self, tokens: u64) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.charge(tokens),
            Self::Window(window) => window.charge(tokens),
        }
    }

    /// Whether a request of `tokens` can ever pass.
    #[inline]
    pub fn holds(self, tokens: u64) -> bool {
        match self {
            Self::TokenBucket(bucket) => bucket.charge(tokens) <= bucket.usable(),
            Self::Window(window) => window.charge(tokens) <= window.quota(),
        }
    }

    /// Microseconds in which `tokens` flow back, rounded down; none where they come back together.
    #[inline]
    pub fn flow_us(self, tokens: u64) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.charge(tokens) / bucket.ticks_per_us(),
            Self::Window(_) => 0,
        }
    }

    /// Microseconds that a request waits longer, at least, for `tokens` more than another waits
    /// for.
    #[inline]
    pub fn dearer_us(self, tokens: u64) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.micros(bucket.charge(tokens)),
            Self::Window(_) => 0,
        }
    }

    /// Microseconds from one request of `tokens` to the next, on average, when there are as many as
    /// may be.
    #[inline]
    pub fn pace_us(self, tokens: u64) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.micros(bucket.charge(tokens)),
            Self::Window(window) => {
                let all = u128::from(window.width_us()) * u128::from(window.charge(tokens));
                u64::try_from(all.div_ceil(window.quota().max(1).into())).unwrap_or(u64::MAX)
            }
        }
    }

    /// The bucket of a limit that is one. Leases are for buckets alone.
    #[inline]
    pub fn token_bucket(self) -> Option<TokenBucket> {
        match self {
            Self::TokenBucket(bucket) => Some(bucket),
            Self::Window(_) => None,
        }
    }

    /// Whether tokens come back when they expire, and not one by one.
    #[inline]
    pub fn tokens_expire(self) -> bool {
        match self {
            Self::TokenBucket(_) => false,
            Self::Window(_) => true,
        }
    }

    /// The part of a debt's `charge` that comes back within `left_us` microseconds. A window owes
    /// all or nothing: its tokens come back together.
    #[inline]
    pub fn charge_within(self, charge: u64, left_us: u64) -> u64 {
        match self {
            Self::TokenBucket(bucket) => charge.min(bucket.tick_rate().ticks(left_us)),
            Self::Window(_) if left_us == 0 => 0,
            Self::Window(_) => charge,
        }
    }

    /// The unspent part of a reservation of `reserved` tokens that was held for `held_us`
    /// microseconds, when the request cost `actual`. A window has tokens until they expire
    /// together, so unspent ones are as good as never taken.
    pub fn unspent(self, reserved: u64, actual: u64, held_us: u64) -> Unspent {
        let charge = self.charge(reserved.saturating_sub(actual));
        match self {
            Self::TokenBucket(bucket) => {
                let covered_us = token_bucket::covered_us(bucket, bucket.charge(actual), held_us);
                let flowed = held_us
                    .saturating_sub(covered_us)
                    .saturating_mul(bucket.ticks_per_us());
                Unspent {
                    charge: charge.saturating_sub(flowed),
                    covered_us,
                }
            }
            Self::Window(_) => Unspent {
                charge,
                covered_us: 0,
            },
        }
    }

    /// The script that counts by this algorithm.
    #[inline]
    pub fn script(self) -> AlgorithmScript {
        match self {
            Self::TokenBucket(_) => AlgorithmScript::TokenBucket,
            Self::Window(window) => match window.span() {
                Span::Fixed(_) => AlgorithmScript::FixedWindow,
                Span::Sliding { .. } => AlgorithmScript::SlidingWindow,
            },
        }
    }

    /// The work of the script for a key, in that for a bucket: that for a sliding window grows with
    /// its entries.
    pub fn script_work(self) -> usize {
        match self.script() {
            AlgorithmScript::TokenBucket | AlgorithmScript::FixedWindow => 1,
            AlgorithmScript::SlidingWindow => {
                1 + usize::try_from(self.burst().min(PARTS) / 4).unwrap_or(0)
            }
        }
    }

    /// The four numbers that the script has from ARGV, explained in its file. `earliest_us`: the
    /// earliest time, in microseconds since 1970-01-01T00:00Z, at which it may run.
    pub fn script_numbers(self, earliest_us: u64) -> [u64; 4] {
        match self {
            Self::TokenBucket(bucket) => [
                bucket.emission(),
                bucket.capacity(),
                bucket.ticks_per_us(),
                bucket.reserve(),
            ],
            Self::Window(window) => match window.span() {
                Span::Sliding { width_us, grain_us } => [window.quota(), width_us, grain_us, 0],
                Span::Fixed(period) if !period.is_calendar() => {
                    [window.quota(), period.longest_us(), 0, 0]
                }
                Span::Fixed(period) => {
                    let this = period.window_at(earliest_us);
                    [
                        window.quota(),
                        this.start_us,
                        this.end_us,
                        period.window_at(this.end_us).end_us,
                    ]
                }
            },
        }
    }
}

impl From<TokenBucket> for Quota {
    fn from(bucket: TokenBucket) -> Self {
        Self::TokenBucket(bucket)
    }
}

impl From<Window> for Quota {
    fn from(window: Window) -> Self {
        Self::Window(window)
    }
}

#[cfg(test)]
mod tests;
