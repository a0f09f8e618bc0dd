//! The arithmetic of a token bucket, in integers.
//!
//! A bucket is one number: its *backlog*, the time until it is full again. Taking a token adds the token's emission
//! interval to the backlog, time takes it away, and a request passes while the backlog fits the capacity (the generic cell
//! rate algorithm). `lua/token_bucket.lua` is the same algorithm for the shared store; a test demands the same decisions.
//!
//! Guarantees that every number stays below 2^53, so that Lua's doubles hold it exactly, and that rounding never admits
//! more than asked for. Refuses to know clocks, keys and stores: no I/O, no allocation.

use std::num::NonZeroU64;

/// Capacities stay below this many ticks, so that a capacity plus one request stays below 2^53.
pub const MAX_TICKS: u64 = 1 << 52;

/// Tokens in a full bucket at most.
pub const MAX_BURST: u64 = 1_000_000_000;

/// Tokens per second at most.
pub const MAX_TOKENS_PER_SECOND: u64 = 10_000_000;

/// An empty bucket must be full again within 366 days.
const MAX_FILL_US: u128 = 366 * 86_400 * 1_000_000;

/// Ticks per microsecond up to which a rate is kept as the exact fraction, and otherwise rounded to.
const FINE_TICKS: u64 = 1_000;

/// The longest that a token taken ahead may live.
const LONGEST_LEASE_US: u64 = 50_000;

/// A lease shorter than this ends before it saves a call.
const SHORTEST_LEASE_US: u64 = 1_000;

/// Requests that a full bucket must hold for leases to be worth their price: it can be one whole token of the burst.
const LEASABLE_BURST: u64 = 40;

/// A rate and a burst, as the arithmetic uses them. A tick is `1 / ticks_per_us` microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    ticks_per_us: u64,
    emission: u64,
    capacity: u64,
    /// Ticks of the capacity that nobody may use: the price of leases.
    reserve: u64,
}

/// What a tick of a backlog is worth, in time and in tokens: the rate of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickRate {
    emission: u64,
    ticks_per_us: u64,
}

/// Why a rate and burst cannot be a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenBucketError {
    #[error("the rate is over 10000000 tokens per second")]
    TooFast,
    #[error("the burst is over 1000000000 tokens")]
    BurstTooLarge,
    #[error("an empty bucket would take over 366 days to fill")]
    TooSlow,
}

/// What taking from a bucket came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeOutcome {
    /// Units granted.
    pub granted: u32,
    /// Ticks until the bucket is full again, after the charge.
    pub backlog: u64,
    /// Whole tokens left.
    pub remaining: u64,
    /// Microseconds until one more unit would pass; 0 when all were granted, or when this bucket has room for it.
    pub retry_after_us: u64,
    /// Microseconds until the bucket is full again.
    pub reset_after_us: u64,
}

impl TokenBucket {
    /// `tokens` every `period_us` microseconds, `burst` of them at once. Exact when the reduced fraction has at most 1000
    /// tokens (and nearly always does); otherwise the rate is rounded down by less than a tick per token.
    ///
    /// # Errors
    /// When the rate, the burst or the time to fill is out of bounds.
    pub fn new(tokens: NonZeroU64, period_us: NonZeroU64, burst: NonZeroU64) -> Result<Self, TokenBucketError> {
        let (tokens, period, burst) = (u128::from(tokens.get()), u128::from(period_us.get()), u128::from(burst.get()));
        if tokens * 1_000_000 > period * u128::from(MAX_TOKENS_PER_SECOND) {
            return Err(TokenBucketError::TooFast);
        }
        if burst > u128::from(MAX_BURST) {
            return Err(TokenBucketError::BurstTooLarge);
        }
        if burst * period > MAX_FILL_US * tokens {
            return Err(TokenBucketError::TooSlow);
        }
        let reduced = tokens / gcd(tokens, period);
        let exact = (reduced <= u128::from(FINE_TICKS)).then_some(reduced);
        exact
            .into_iter()
            .chain([u128::from(FINE_TICKS), 1])
            .find_map(|ticks| Self::with_ticks(ticks, (period * ticks).div_ceil(tokens), burst))
            .ok_or(TokenBucketError::TooSlow)
    }

    fn with_ticks(ticks_per_us: u128, emission: u128, burst: u128) -> Option<Self> {
        let capacity = u64::try_from(emission * burst).ok().filter(|capacity| *capacity < MAX_TICKS)?;
        Some(Self {
            ticks_per_us: u64::try_from(ticks_per_us).ok()?,
            emission: u64::try_from(emission).ok()?,
            capacity,
            reserve: 0,
        })
    }

    /// The same limit, for tokens that may be spent a while after they were taken. A flow that conforms to (rate, burst) and
    /// is delayed by up to `w` conforms to (rate, burst + rate · w): so everybody, whether in a hurry or not, takes from a
    /// bucket that is smaller by what flows in `w`. A bucket too small for that stays as it is, and knows no leases.
    pub fn leased(self, largest_cost: u64) -> Self {
        let spare = self.capacity.saturating_sub(self.charge(largest_cost.max(1)));
        let lease_us = LONGEST_LEASE_US.min((self.capacity / 4).min(spare) / self.ticks_per_us);
        if lease_us < SHORTEST_LEASE_US || self.burst() < LEASABLE_BURST.saturating_mul(largest_cost) {
            return self;
        }
        Self { reserve: lease_us * self.ticks_per_us, ..self }
    }

    /// The part of this shape that one of `nodes` equal nodes enforces: a `nodes`-th of the rate and of the burst. The time
    /// to fill stays the same, so a bucket's backlog means the same under every share.
    pub fn shared_by(self, nodes: u32) -> Self {
        Self { emission: self.emission.saturating_mul(u64::from(nodes.max(1))), ..self }
    }

    /// What its ticks are worth.
    pub fn tick_rate(self) -> TickRate {
        TickRate { emission: self.emission, ticks_per_us: self.ticks_per_us }
    }

    /// Ticks in a microsecond.
    pub fn ticks_per_us(self) -> u64 {
        self.ticks_per_us
    }

    /// Ticks that one token takes to come back.
    pub fn emission(self) -> u64 {
        self.emission
    }

    /// Ticks that an empty bucket takes to fill.
    pub fn capacity(self) -> u64 {
        self.capacity
    }

    /// Ticks of the capacity that nobody may use.
    pub fn reserve(self) -> u64 {
        self.reserve
    }

    /// The largest backlog that taking may lead to.
    pub fn usable(self) -> u64 {
        self.capacity - self.reserve
    }

    /// Microseconds from the moment it was asked for that a token taken ahead may be spent; 0: none may be.
    pub fn lease_us(self) -> u64 {
        self.reserve / self.ticks_per_us
    }

    /// Tokens in a full bucket.
    pub fn burst(self) -> u64 {
        self.capacity / self.emission
    }

    /// Ticks that a charge of `cost` tokens adds to the backlog.
    pub fn charge(self, cost: u64) -> u64 {
        self.emission.saturating_mul(cost)
    }

    /// Whole microseconds, rounded up.
    pub fn micros(self, ticks: u64) -> u64 {
        self.tick_rate().micros(ticks)
    }
}

impl TickRate {
    /// As it was stored somewhere. `None`: these are not numbers of a tick_rate.
    pub fn new(emission: u64, ticks_per_us: u64) -> Option<Self> {
        (emission > 0 && ticks_per_us > 0).then_some(Self { emission, ticks_per_us })
    }

    /// Whole microseconds, rounded up.
    pub fn micros(self, ticks: u64) -> u64 {
        ticks.div_ceil(self.ticks_per_us)
    }

    /// Whole tokens, rounded up.
    pub fn tokens(self, ticks: u64) -> u64 {
        ticks.div_ceil(self.emission)
    }

    /// Ticks that flow off in so many microseconds.
    pub fn ticks(self, micros: u64) -> u64 {
        micros.saturating_mul(self.ticks_per_us)
    }

    /// Whether tokens come back sooner than by the `other`.
    pub fn is_faster_than(self, other: Self) -> bool {
        u128::from(self.emission) * u128::from(other.ticks_per_us)
            < u128::from(other.emission) * u128::from(self.ticks_per_us)
    }
}

/// How many of `units` requests of `cost` tokens each fit. None when the cost is over the burst.
pub fn grants(shape: TokenBucket, backlog: u64, cost: u64, units: u32) -> u32 {
    let room = shape.usable().saturating_sub(backlog);
    let fitting = room.checked_div(shape.charge(cost)).unwrap_or(u64::MAX);
    u32::try_from(fitting).map_or(units, |fitting| fitting.min(units))
}

/// Charges `granted` of the `units` asked for. The caller made sure with [`grants`] that they fit.
pub fn settle(shape: TokenBucket, backlog: u64, cost: u64, granted: u32, units: u32) -> ChargeOutcome {
    let charge = shape.charge(cost);
    let backlog = backlog.saturating_add(charge.saturating_mul(u64::from(granted)));
    let missing = backlog.saturating_add(charge).saturating_sub(shape.usable());
    ChargeOutcome {
        granted,
        backlog,
        remaining: shape.usable().saturating_sub(backlog) / shape.emission,
        retry_after_us: if granted < units { shape.micros(missing) } else { 0 },
        reset_after_us: shape.micros(backlog),
    }
}

/// Takes as many of `units` requests of `cost` tokens each as fit, from a bucket that is `backlog` ticks from full.
pub fn take(shape: TokenBucket, backlog: u64, cost: u64, units: u32) -> ChargeOutcome {
    settle(shape, backlog, cost, grants(shape, backlog, cost, units), units)
}

/// Charges a debt: tokens that were admitted without asking. That makes a bucket owe at most its capacity or the debt, if
/// that is more, so nobody is locked out; and never less than before.
pub fn owe(backlog: u64, ticks: u64, capacity: u64) -> u64 {
    backlog.saturating_add(ticks).min(capacity.max(ticks)).max(backlog).min(MAX_TICKS)
}

/// Gives back a charge of `ticks` for tokens that were not spent, `held_us` after it was made. What flowed in meanwhile is
/// not given back: the bucket may have been full before the charge, and then had no room for it.
pub fn give_back(shape: TokenBucket, backlog: u64, ticks: u64, held_us: u64) -> u64 {
    backlog.saturating_sub(ticks.saturating_sub(held_us.saturating_mul(shape.ticks_per_us)))
}

/// Of a reservation that was made `held_us` ago and of which `spent` ticks were spent: the microseconds in which what flowed
/// in takes nothing from what is left of it. The rest is given back as by [`give_back`], counted from that much later.
///
/// Think of every tick of a backlog as somebody's. Time takes ticks away, and whose is ours to say, as long as nobody's goes
/// twice. What was spent is never removed but by time, so in any window of length t it is at most what is still there, a full
/// bucket, and what t took away: the promise stands exactly as long as nobody gives back more than is left of its own. Of
/// its own, a request may let the spent ticks go first. But whether the others' went before them it cannot know (they may
/// have been given back meanwhile, or taken just now), so all that flowed in counts as its own. Hence: nothing is lost while
/// no more flowed in than was spent, and a large reservation that is held for long comes back in part or not at all, though
/// an empty bucket might have had room for it. To say more, the bucket would have to keep what is reserved apart.
pub fn covered_us(shape: TokenBucket, spent: u64, held_us: u64) -> u64 {
    (spent / shape.ticks_per_us).min(held_us)
}

/// Carries a backlog over to another tick_rate: the same tokens, rounded up, however few the new limit has. At most [`MAX_TICKS`].
pub fn convert(backlog: u64, old: TickRate, new: TickRate) -> u64 {
    // Nearly always: a limit meets what it stored itself.
    if old.emission == new.emission {
        return backlog.min(MAX_TICKS);
    }
    let scaled = (u128::from(backlog) * u128::from(new.emission)).div_ceil(u128::from(old.emission.max(1)));
    u64::try_from(scaled).map_or(MAX_TICKS, |ticks| ticks.min(MAX_TICKS))
}

/// The same rounded down: what a backlog may still be.
pub fn convert_room(room: u64, old: TickRate, new: TickRate) -> u64 {
    let scaled = u128::from(room) * u128::from(new.emission) / u128::from(old.emission.max(1));
    u64::try_from(scaled).map_or(MAX_TICKS, |ticks| ticks.min(MAX_TICKS))
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
