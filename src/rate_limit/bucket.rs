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
pub struct Shape {
    ticks_per_us: u64,
    emission: u64,
    capacity: u64,
    /// Ticks of the capacity that nobody may use: the price of leases.
    reserve: u64,
}

/// What a tick of a backlog is worth, in time and in tokens: the rate of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    emission: u64,
    ticks_per_us: u64,
}

/// Why a rate and burst cannot be a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    #[error("the rate is over 10000000 tokens per second")]
    TooFast,
    #[error("the burst is over 1000000000 tokens")]
    BurstTooLarge,
    #[error("an empty bucket would take over 366 days to fill")]
    TooSlow,
}

/// What taking from a bucket came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
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

impl Shape {
    /// `tokens` every `period_us` microseconds, `burst` of them at once. Exact when the reduced fraction has at most 1000
    /// tokens (and nearly always does); otherwise the rate is rounded down by less than a tick per token.
    ///
    /// # Errors
    /// When the rate, the burst or the time to fill is out of bounds.
    pub fn new(tokens: NonZeroU64, period_us: NonZeroU64, burst: NonZeroU64) -> Result<Self, ShapeError> {
        let (tokens, period, burst) = (u128::from(tokens.get()), u128::from(period_us.get()), u128::from(burst.get()));
        if tokens * 1_000_000 > period * u128::from(MAX_TOKENS_PER_SECOND) {
            return Err(ShapeError::TooFast);
        }
        if burst > u128::from(MAX_BURST) {
            return Err(ShapeError::BurstTooLarge);
        }
        if burst * period > MAX_FILL_US * tokens {
            return Err(ShapeError::TooSlow);
        }
        let reduced = tokens / gcd(tokens, period);
        let exact = (reduced <= u128::from(FINE_TICKS)).then_some(reduced);
        exact
            .into_iter()
            .chain([u128::from(FINE_TICKS), 1])
            .find_map(|ticks| Self::with_ticks(ticks, (period * ticks).div_ceil(tokens), burst))
            .ok_or(ShapeError::TooSlow)
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
    pub fn pace(self) -> Pace {
        Pace { emission: self.emission, ticks_per_us: self.ticks_per_us }
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
        self.pace().micros(ticks)
    }
}

impl Pace {
    /// As it was stored somewhere. `None`: these are not numbers of a pace.
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
pub fn grants(shape: Shape, backlog: u64, cost: u64, units: u32) -> u32 {
    let room = shape.usable().saturating_sub(backlog);
    let fitting = room.checked_div(shape.charge(cost)).unwrap_or(u64::MAX);
    u32::try_from(fitting).map_or(units, |fitting| fitting.min(units))
}

/// Charges `granted` of the `units` asked for. The caller made sure with [`grants`] that they fit.
pub fn settle(shape: Shape, backlog: u64, cost: u64, granted: u32, units: u32) -> Taken {
    let charge = shape.charge(cost);
    let backlog = backlog.saturating_add(charge.saturating_mul(u64::from(granted)));
    let missing = backlog.saturating_add(charge).saturating_sub(shape.usable());
    Taken {
        granted,
        backlog,
        remaining: shape.usable().saturating_sub(backlog) / shape.emission,
        retry_after_us: if granted < units { shape.micros(missing) } else { 0 },
        reset_after_us: shape.micros(backlog),
    }
}

/// Takes as many of `units` requests of `cost` tokens each as fit, from a bucket that is `backlog` ticks from full.
pub fn take(shape: Shape, backlog: u64, cost: u64, units: u32) -> Taken {
    settle(shape, backlog, cost, grants(shape, backlog, cost, units), units)
}

/// Charges a debt: tokens that were admitted without asking. That makes a bucket owe at most its capacity or the debt, if
/// that is more, so nobody is locked out; and never less than before.
pub fn owe(backlog: u64, ticks: u64, capacity: u64) -> u64 {
    backlog.saturating_add(ticks).min(capacity.max(ticks)).max(backlog).min(MAX_TICKS)
}

/// Gives back a charge of `ticks` for tokens that were not spent, `held_us` after it was made. What flowed in meanwhile is
/// not given back: the bucket may have been full before the charge, and then had no room for it.
pub fn give_back(shape: Shape, backlog: u64, ticks: u64, held_us: u64) -> u64 {
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
pub fn covered_us(shape: Shape, spent: u64, held_us: u64) -> u64 {
    (spent / shape.ticks_per_us).min(held_us)
}

/// Carries a backlog over to another pace: the same tokens, rounded up, however few the new limit has. At most [`MAX_TICKS`].
pub fn convert(backlog: u64, old: Pace, new: Pace) -> u64 {
    let scaled = (u128::from(backlog) * u128::from(new.emission)).div_ceil(u128::from(old.emission.max(1)));
    u64::try_from(scaled).map_or(MAX_TICKS, |ticks| ticks.min(MAX_TICKS))
}

/// The same rounded down: what a backlog may still be.
pub fn convert_room(room: u64, old: Pace, new: Pace) -> u64 {
    let scaled = u128::from(room) * u128::from(new.emission) / u128::from(old.emission.max(1));
    u64::try_from(scaled).map_or(MAX_TICKS, |ticks| ticks.min(MAX_TICKS))
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000;
    const DAY: u64 = 86_400 * SECOND;

    fn try_shape(tokens: u64, period_us: u64, burst: u64) -> Result<Shape, ShapeError> {
        let nonzero = |n| NonZeroU64::new(n).unwrap();
        Shape::new(nonzero(tokens), nonzero(period_us), nonzero(burst))
    }

    fn shape(tokens: u64, period_us: u64, burst: u64) -> Shape {
        try_shape(tokens, period_us, burst).unwrap()
    }

    /// `emission / ticks_per_us` is `period / tokens`, not nearly but exactly.
    fn is_exact(shape: Shape, tokens: u64, period_us: u64) -> bool {
        u128::from(shape.emission) * u128::from(tokens) == u128::from(period_us) * u128::from(shape.ticks_per_us)
    }

    #[test]
    fn common_rates_are_exact() {
        for (tokens, period) in
            [(3, 3_600 * SECOND), (1, DAY), (50_000, SECOND), (7, SECOND), (1_000_000, SECOND), (10_000_000, SECOND)]
        {
            let shape = shape(tokens, period, tokens.min(1_000));
            assert!(is_exact(shape, tokens, period), "{tokens} per {period} us: {shape:?}");
        }
    }

    #[test]
    fn an_inexact_rate_is_rounded_to_fewer_tokens() {
        let shape = shape(999_983, SECOND, 10);
        assert_eq!(shape.ticks_per_us, 1_000);
        assert_eq!(shape.emission, 1_001);
    }

    #[test]
    fn a_fine_fraction_with_a_huge_capacity_falls_back_to_whole_microseconds() {
        let shape = shape(997, 997 * 31_000_001, 1_000_000);
        assert!(shape.capacity < MAX_TICKS);
        let coarse = try_shape(1_009, 1_009 * 30_000_000 + 1, 1_000_000).unwrap();
        assert_eq!((coarse.ticks_per_us, coarse.emission), (1, 30_000_001));
    }

    #[test]
    fn bounds_are_refused_by_name() {
        assert_eq!(try_shape(10_000_001, SECOND, 1), Err(ShapeError::TooFast));
        assert_eq!(try_shape(1, SECOND, MAX_BURST + 1), Err(ShapeError::BurstTooLarge));
        assert_eq!(try_shape(1, DAY, 367), Err(ShapeError::TooSlow));
        assert!(try_shape(1, DAY, 366).is_ok());
        assert_eq!(try_shape(u64::MAX, u64::MAX, u64::MAX), Err(ShapeError::BurstTooLarge));
    }

    #[test]
    fn three_per_hour_come_back_every_twenty_minutes() {
        let shape = shape(3, 3_600 * SECOND, 3);
        let all = take(shape, 0, 1, 5);
        assert_eq!((all.granted, all.remaining), (3, 0));
        assert_eq!(all.retry_after_us, 1_200 * SECOND);
        assert_eq!(all.reset_after_us, 3_600 * SECOND);
        let early = all.backlog - (1_200 * SECOND - 1) * shape.ticks_per_us;
        assert_eq!(take(shape, early, 1, 1).retry_after_us, 1);
        assert_eq!(take(shape, early - shape.ticks_per_us, 1, 1).granted, 1);
    }

    #[test]
    fn one_per_day_passes_once_a_day() {
        let shape = shape(1, DAY, 1);
        let first = take(shape, 0, 1, 1);
        assert_eq!((first.granted, first.retry_after_us, first.reset_after_us), (1, 0, DAY));
        assert_eq!(take(shape, first.backlog, 1, 1).retry_after_us, DAY);
    }

    #[test]
    fn fifty_thousand_per_second_come_back_every_twenty_microseconds() {
        let shape = shape(50_000, SECOND, 1);
        assert_eq!(take(shape, 0, 1, 2).retry_after_us, 20);
    }

    #[test]
    fn a_request_may_cost_the_whole_burst() {
        let shape = shape(5, SECOND, 5);
        let first = take(shape, 0, 5, 1);
        assert_eq!((first.granted, first.remaining, first.retry_after_us), (1, 0, 0));
        assert_eq!(take(shape, first.backlog, 5, 1).retry_after_us, SECOND);
    }

    #[test]
    fn a_request_over_the_burst_is_never_granted() {
        let shape = shape(5, SECOND, 5);
        assert_eq!(take(shape, 0, 6, 1).granted, 0);
        assert_eq!(take(shape, u64::MAX, u64::MAX, u32::MAX).granted, 0);
    }

    #[test]
    fn a_backlog_over_the_capacity_leaves_nothing_until_it_has_flowed_off() {
        let shape = shape(1, SECOND, 2);
        let denied = take(shape, shape.capacity * 100, 1, 1);
        assert_eq!((denied.granted, denied.remaining, denied.retry_after_us), (0, 0, 199 * SECOND));
    }

    #[test]
    fn a_changed_limit_keeps_the_tokens_consumed() {
        let (per_second, per_hour) = (shape(10, SECOND, 20), shape(10, 3_600 * SECOND, 20));
        let used = take(per_second, 0, 1, 7).backlog;
        assert_eq!(take(per_hour, convert(used, per_second.pace(), per_hour.pace()), 1, 20).granted, 13);
        let few = shape(20, SECOND, 5);
        assert_eq!(convert(used, per_second.pace(), few.pace()), few.charge(7), "more than it can hold");
    }

    #[test]
    fn leases_keep_back_what_flows_in_while_a_token_lives() {
        let wide = shape(1_000, SECOND, 1_000).leased(1);
        assert_eq!((wide.lease_us(), take(wide, 0, 1, 2_000).granted), (50_000, 950));
        assert_eq!(take(wide, 0, 1, 950).remaining, 0);
        assert_eq!(take(wide, wide.usable(), 1, 1).retry_after_us, 1_000);
        let narrow = shape(1_000, SECOND, 100).leased(1);
        assert_eq!((narrow.lease_us(), take(narrow, 0, 1, 2_000).granted), (25_000, 75));
        let slow = shape(1_000, 3_600 * SECOND, 1_000).leased(1);
        assert_eq!((slow.lease_us(), take(slow, 0, 1, 2_000).granted), (50_000, 999));
    }

    #[test]
    fn a_bucket_too_small_for_leases_has_none() {
        for small in [shape(1, 60 * SECOND, 1), shape(10, SECOND, 20), shape(50_000, SECOND, 150)] {
            assert_eq!(small.leased(1), small);
        }
        let dear = shape(100, SECOND, 100);
        assert_eq!((dear.leased(2).lease_us(), dear.leased(3)), (50_000, dear));
    }

    #[test]
    fn giving_back_returns_no_more_than_the_charge_still_weighs() {
        let shape = shape(1_000, SECOND, 100);
        let taken = take(shape, 0, 1, 10).backlog;
        assert_eq!(give_back(shape, taken, taken, 0), 0);
        let later = taken - 4_000 * shape.ticks_per_us;
        assert_eq!(give_back(shape, later, taken, 4_000), 0);
        let others = take(shape, 0, 1, 5).backlog;
        assert_eq!(give_back(shape, others, taken, 10_000), others, "the charge had flowed off by then");
        assert_eq!(owe(others, shape.capacity, shape.capacity), shape.capacity);
        assert_eq!(owe(2 * shape.capacity, 1, shape.capacity), 2 * shape.capacity, "of a larger limit, and still owed");
        assert_eq!(owe(others, u64::MAX, shape.capacity), MAX_TICKS);
    }

    #[test]
    fn a_share_fills_in_the_same_time() {
        let whole = shape(10, SECOND, 10);
        let half = whole.shared_by(2);
        assert_eq!(take(half, 0, 1, 10).granted, 5);
        assert_eq!(take(half, 0, 1, 5).reset_after_us, take(whole, 0, 1, 10).reset_after_us);
    }

    fn any_policy() -> impl Strategy<Value = (u64, u64, u64)> {
        let period = prop_oneof![Just(SECOND), Just(60 * SECOND), Just(3_600 * SECOND), Just(DAY), 1_u64..100 * SECOND];
        (1_u64..20_000, period, 1_u64..500).prop_filter("in bounds", |(t, p, b)| try_shape(*t, *p, *b).is_ok())
    }

    proptest! {
        #[test]
        fn no_window_admits_more_than_burst_and_rate(
            (tokens, period, burst) in any_policy(),
            steps in prop::collection::vec((0_u64..100, 1_u64..4, 1_u32..5), 1..150),
        ) {
            let shape = shape(tokens, period, burst);
            let unit = (period / tokens).max(1);
            let (mut now, mut backlog, mut admitted) = (0_u64, 0_u64, Vec::new());
            for (wait, cost, units) in steps {
                let wait = wait * unit / 20;
                now += wait;
                backlog = backlog.saturating_sub(wait * shape.ticks_per_us);
                let taken = take(shape, backlog, cost, units);
                backlog = taken.backlog;
                admitted.push((now, u64::from(taken.granted) * cost));
            }
            for from in 0..admitted.len() {
                let mut sum = 0_u128;
                for (at, amount) in &admitted[from..] {
                    sum += u128::from(*amount);
                    let bound = u128::from(burst) * u128::from(period)
                        + u128::from(tokens) * u128::from(at - admitted[from].0);
                    prop_assert!(sum * u128::from(period) <= bound);
                }
            }
        }

        #[test]
        fn greedy_demand_gets_what_it_is_due((tokens, period, burst) in any_policy()) {
            let shape = shape(tokens, period, burst);
            let (mut now, mut backlog, mut admitted) = (0_u64, 0_u64, 0_u128);
            for _ in 0..300 {
                let taken = take(shape, backlog, 1, u32::MAX);
                admitted += u128::from(taken.granted);
                now += taken.retry_after_us;
                backlog = taken.backlog.saturating_sub(taken.retry_after_us * shape.ticks_per_us);
            }
            admitted += u128::from(take(shape, backlog, 1, u32::MAX).granted);
            let due = u128::from(burst) * u128::from(period) + u128::from(tokens) * u128::from(now);
            prop_assert!(admitted * u128::from(period) * 100 >= due * 97 - u128::from(period) * 100);
        }

        #[test]
        fn a_conversion_keeps_every_token_however_often(
            (t1, p1, b1) in any_policy(), (t2, p2, b2) in any_policy(), used in 0_u32..600,
        ) {
            let (old, new) = (shape(t1, p1, b1), shape(t2, p2, b2));
            let before = take(old, 0, 1, used);
            let after = convert(before.backlog, old.pace(), new.pace());
            prop_assume!(after < MAX_TICKS);
            prop_assert_eq!(after, new.charge(before.granted.into()));
            let part = before.backlog / 3;
            let back = convert(convert(part, old.pace(), new.pace()), new.pace(), old.pace());
            prop_assert!(back >= part);
            prop_assert!(convert_room(convert(part, old.pace(), new.pace()), new.pace(), old.pace()) >= part);
        }
    }
}
