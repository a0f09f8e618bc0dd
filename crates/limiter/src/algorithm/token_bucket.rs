//! The arithmetic of a token bucket, in integers.
//!
//! A bucket is one number: its *backlog*, the time until it is full again. Taking a token adds the
//! token's emission interval to the backlog, time takes it away, and a request passes while the
//! backlog fits the capacity (the generic cell rate algorithm, ITU-T I.371). `lua/token_bucket.lua`
//! is this algorithm in Redis; a test demands the same decisions.
//!
//! Guarantees that every number stays below 2^53, so that Lua's doubles hold it exactly, and that
//! rounding never admits more than asked for.

pub mod conversion;
pub mod state;

use std::num::NonZeroU64;

use crate::algorithm::level::Level;

/// Capacities stay below this many ticks, so that a capacity plus one request stays below 2^53.
pub const MAX_TICKS: u64 = 1 << 52;

/// Tokens in a full bucket at most.
pub const MAX_BURST: u64 = 1_000_000_000;

/// Tokens per second at most.
pub const MAX_TOKENS_PER_SECOND: u64 = 10_000_000;

/// An empty bucket must be full again within 366 days.
const MAX_FILL_US: u128 = 366 * 86_400 * 1_000_000;

/// Ticks per microsecond up to which a rate is kept as the exact fraction, and otherwise rounded
/// to.
const FINE_TICKS: u64 = 1_000;

/// Microseconds that a token taken ahead may live at most.
const LONGEST_LEASE_US: u64 = 50_000;

/// A lease shorter than this ends before it saves a call.
const SHORTEST_LEASE_US: u64 = 1_000;

/// Requests that a full bucket must hold for leases to be worth their price, which can be one whole
/// token of the burst.
const LEASABLE_BURST: u64 = 40;

/// A rate and a burst, as the arithmetic uses them. A tick is `1 / ticks_per_us` microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    ticks_per_us: u64,
    emission: u64,
    capacity: u64,
    /// Ticks of the capacity that no request may use: the price of leases.
    reserve: u64,
}

/// The worth of a tick, in time and in tokens: a rate as buckets store it.
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

/// The outcome of charging a bucket or a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ChargeOutcome {
    /// Units granted.
    pub granted: u32,
    /// Ticks that a bucket lacks after the charge; of a window, tokens that are out.
    pub backlog: u64,
    /// Whole tokens left.
    pub remaining: u64,
    /// Microseconds until one more unit would pass; 0 when all were granted, or when there is room
    /// for it here.
    pub retry_after_us: u64,
    /// Microseconds until all tokens are back.
    pub reset_after_us: u64,
}

impl TokenBucket {
    /// `tokens` every `period_us` microseconds, `burst` of them at once. Exact when the reduced
    /// fraction has at most 1000 tokens (and nearly always does); otherwise the rate is rounded
    /// down by less than a tick per token.
    ///
    /// # Errors
    /// When the rate, the burst or the time to fill is out of bounds.
    pub fn new(
        tokens: NonZeroU64,
        period_us: NonZeroU64,
        burst: NonZeroU64,
    ) -> Result<Self, TokenBucketError> {
        let tokens = u128::from(tokens.get());
        let period = u128::from(period_us.get());
        let burst = u128::from(burst.get());
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
        let capacity = u64::try_from(emission * burst)
            .ok()
            .filter(|capacity| *capacity < MAX_TICKS)?;
        Some(Self {
            ticks_per_us: u64::try_from(ticks_per_us).ok()?,
            emission: u64::try_from(emission).ok()?,
            capacity,
            reserve: 0,
        })
    }

    /// This limit for tokens that may be spent a while after they were taken. A flow that conforms
    /// to (rate, burst) and is delayed by up to `w` conforms to (rate, burst + rate · w). So every
    /// request takes from a bucket that is smaller by the ticks that flow in `w`. A bucket too
    /// small for that stays as it is, and has no leases.
    pub fn leased(self, largest_cost: u64) -> Self {
        let spare = self
            .capacity
            .saturating_sub(self.charge(largest_cost.max(1)));
        let lease_us = LONGEST_LEASE_US.min((self.capacity / 4).min(spare) / self.ticks_per_us);
        if lease_us < SHORTEST_LEASE_US
            || self.burst() < LEASABLE_BURST.saturating_mul(largest_cost)
        {
            return self;
        }
        Self {
            reserve: lease_us * self.ticks_per_us,
            ..self
        }
    }

    /// This limit for requests that may wait for up to `advance_us` after they were charged: a
    /// bucket that is larger by what flows in meanwhile. [`Self::wait_us`] is how long a request
    /// has to wait then. A bucket with leases stays as it is.
    pub fn in_advance(self, advance_us: u64) -> Self {
        if self.reserve > 0 {
            return self;
        }
        let capacity = self
            .capacity
            .saturating_add(advance_us.saturating_mul(self.ticks_per_us));
        Self {
            capacity: capacity.min(MAX_TICKS - 1),
            ..self
        }
    }

    /// Microseconds until a bucket that is full in `full_in_us` lacks no more than all of its
    /// tokens: until then, a request that was charged [in advance](Self::in_advance) must wait.
    #[inline]
    pub fn wait_us(self, full_in_us: u64) -> u64 {
        full_in_us.saturating_sub(self.usable() / self.ticks_per_us)
    }

    /// The whole tokens of a bucket that is full in `full_in_us`.
    #[inline]
    pub fn tokens_left(self, full_in_us: u64) -> u64 {
        self.usable()
            .saturating_sub(full_in_us.saturating_mul(self.ticks_per_us))
            / self.emission
    }

    /// The part of this bucket that one of `nodes` equal nodes enforces: a `nodes`-th of the rate
    /// and of the burst. The time to fill stays the same, so a backlog means the same under every
    /// share.
    #[inline]
    pub fn shared_by(self, nodes: u32) -> Self {
        Self {
            emission: self.emission.saturating_mul(u64::from(nodes.max(1))),
            ..self
        }
    }

    /// This limit `times` over: as many times the rate and the burst, or a little less.
    #[inline]
    pub fn times(self, times: u32) -> Self {
        Self {
            emission: self.emission.div_ceil(u64::from(times.max(1))),
            ..self
        }
    }

    /// The worth of its ticks.
    #[inline]
    pub fn tick_rate(self) -> TickRate {
        TickRate {
            emission: self.emission,
            ticks_per_us: self.ticks_per_us,
        }
    }

    /// Ticks in a microsecond.
    #[inline]
    pub fn ticks_per_us(self) -> u64 {
        self.ticks_per_us
    }

    /// Ticks that one token takes to come back.
    #[inline]
    pub fn emission(self) -> u64 {
        self.emission
    }

    /// Ticks that an empty bucket takes to fill.
    #[inline]
    pub fn capacity(self) -> u64 {
        self.capacity
    }

    /// Ticks of the capacity that no request may use.
    #[inline]
    pub fn reserve(self) -> u64 {
        self.reserve
    }

    /// The largest backlog that taking may lead to.
    #[inline]
    pub fn usable(self) -> u64 {
        self.capacity - self.reserve
    }

    /// Microseconds from the moment it was asked for that a token taken ahead may be spent; 0: none
    /// may be.
    #[inline]
    pub fn lease_us(self) -> u64 {
        self.reserve / self.ticks_per_us
    }

    /// Tokens in a full bucket.
    #[inline]
    pub fn burst(self) -> u64 {
        self.capacity / self.emission
    }

    /// Ticks that a charge of `cost` tokens adds to the backlog.
    #[inline]
    pub fn charge(self, cost: u64) -> u64 {
        self.emission.saturating_mul(cost)
    }

    /// Whole microseconds, rounded up.
    #[inline]
    pub fn micros(self, ticks: u64) -> u64 {
        self.tick_rate().micros(ticks)
    }
}

impl TickRate {
    /// From two numbers that were stored. `None`: one of them is 0.
    pub fn new(emission: u64, ticks_per_us: u64) -> Option<Self> {
        (emission > 0 && ticks_per_us > 0).then_some(Self {
            emission,
            ticks_per_us,
        })
    }

    /// Whole microseconds, rounded up.
    #[inline]
    pub fn micros(self, ticks: u64) -> u64 {
        ticks.div_ceil(self.ticks_per_us)
    }

    /// Ticks that flow off in `micros` microseconds.
    #[inline]
    pub fn ticks(self, micros: u64) -> u64 {
        micros.saturating_mul(self.ticks_per_us)
    }

    /// Whether tokens come back sooner than at the `other` rate.
    #[inline]
    pub fn is_faster_than(self, other: Self) -> bool {
        u128::from(self.emission) * u128::from(other.ticks_per_us)
            < u128::from(other.emission) * u128::from(self.ticks_per_us)
    }
}

/// How many of `units` requests of `cost` tokens each fit. None when the cost is over the burst.
#[inline]
pub fn fitting(bucket: TokenBucket, backlog: u64, cost: u64, units: u32) -> u32 {
    let room = bucket.usable().saturating_sub(backlog);
    let count = room.checked_div(bucket.charge(cost)).unwrap_or(u64::MAX);
    u32::try_from(count).map_or(units, |count| count.min(units))
}

/// Charges `granted` of the `units` asked for. The caller made sure with [`fitting`] that they fit.
#[inline]
pub fn charge(
    bucket: TokenBucket,
    backlog: u64,
    cost: u64,
    granted: u32,
    units: u32,
) -> ChargeOutcome {
    let charge = bucket.charge(cost);
    let backlog = backlog.saturating_add(charge.saturating_mul(u64::from(granted)));
    let missing = backlog
        .saturating_add(charge)
        .saturating_sub(bucket.usable());
    ChargeOutcome {
        granted,
        backlog,
        remaining: bucket.usable().saturating_sub(backlog) / bucket.emission,
        retry_after_us: if granted < units {
            bucket.micros(missing)
        } else {
            0
        },
        reset_after_us: bucket.micros(backlog),
    }
}

/// Takes as many of `units` requests of `cost` tokens each as fit, from a bucket that is `backlog`
/// ticks from full.
#[inline]
pub fn take(bucket: TokenBucket, backlog: u64, cost: u64, units: u32) -> ChargeOutcome {
    charge(
        bucket,
        backlog,
        cost,
        fitting(bucket, backlog, cost, units),
        units,
    )
}

/// Charges a debt: tokens that were admitted without asking, `age_us` microseconds ago. All of them
/// count, also beyond the capacity: what is cut off would be admitted twice. Tokens that flowed in
/// since then pay for it where the bucket was full: that is all the time if nothing is missing now,
/// and none of it otherwise.
#[inline]
pub fn charge_debt(backlog: u64, ticks: u64, rate: TickRate, age_us: u64) -> u64 {
    let paid = if backlog == 0 { rate.ticks(age_us) } else { 0 };
    backlog
        .saturating_add(ticks.min(MAX_TICKS).saturating_sub(paid))
        .min(MAX_TICKS)
}

/// Refunds a charge of `ticks` for tokens that were not spent, `held_us` after it was made. Ticks
/// that flowed in meanwhile are not refunded: the bucket may have been full before the charge, and
/// then had no room for them.
#[inline]
pub fn refund(bucket: TokenBucket, backlog: u64, ticks: u64, held_us: u64) -> u64 {
    backlog.saturating_sub(ticks.saturating_sub(held_us.saturating_mul(bucket.ticks_per_us)))
}

/// How long a reservation that was made `held_us` microseconds ago keeps all of its unspent tokens,
/// when `spent` ticks of it were spent. The rest is refunded as by [`refund`], counted from that
/// much later.
///
/// Think of every tick of a backlog as belonging to one request. Time takes ticks away, and the
/// arithmetic may choose whose, as long as none goes twice. Spent ticks are removed by time alone.
/// Spent ticks of any window of length t are thus at most those still there, a full bucket, and
/// those that t took away. The bound holds exactly as long as no request is refunded more than is
/// left of its own. A request may let its own spent ticks go first. But it cannot know whether
/// ticks of others went before them: they may have been refunded meanwhile, or taken just now. So
/// all that flowed in counts as its own. Hence nothing is lost while no more flowed in than was
/// spent. A large reservation that is held for long is refunded in part or not at all, though an
/// empty bucket might have had room for it; to refund more, the bucket would have to keep
/// reservations apart.
#[inline]
pub fn covered_us(bucket: TokenBucket, spent: u64, held_us: u64) -> u64 {
    (spent / bucket.ticks_per_us).min(held_us)
}

/// Converts a backlog to ticks of another rate: the same tokens, rounded up, however few the new
/// limit has. At most [`MAX_TICKS`].
#[inline]
pub fn convert(backlog: u64, old: TickRate, new: TickRate) -> u64 {
    // Nearly always: a limit meets what it stored itself.
    if old.emission == new.emission {
        return backlog.min(MAX_TICKS);
    }
    let scaled =
        (u128::from(backlog) * u128::from(new.emission)).div_ceil(u128::from(old.emission.max(1)));
    u64::try_from(scaled).map_or(MAX_TICKS, |ticks| ticks.min(MAX_TICKS))
}

/// Converts the room that a backlog leaves: like [`convert`], but rounded down.
#[inline]
pub fn convert_room(room: u64, old: TickRate, new: TickRate) -> u64 {
    let scaled = u128::from(room) * u128::from(new.emission) / u128::from(old.emission.max(1));
    u64::try_from(scaled).map_or(MAX_TICKS, |ticks| ticks.min(MAX_TICKS))
}

impl From<ChargeOutcome> for Level {
    #[inline]
    fn from(outcome: ChargeOutcome) -> Self {
        Self {
            remaining: outcome.remaining,
            retry_after_us: outcome.retry_after_us,
            reset_after_us: outcome.reset_after_us,
        }
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
