use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

fn try_bucket(tokens: u64, period_us: u64, burst: u64) -> Result<TokenBucket, TokenBucketError> {
    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }
    TokenBucket::new(nonzero(tokens), nonzero(period_us), nonzero(burst))
}

fn bucket(tokens: u64, period_us: u64, burst: u64) -> TokenBucket {
    try_bucket(tokens, period_us, burst).unwrap()
}

/// `emission / ticks_per_us` is `period / tokens`, not nearly but exactly.
fn is_exact(bucket: TokenBucket, tokens: u64, period_us: u64) -> bool {
    u128::from(bucket.emission) * u128::from(tokens)
        == u128::from(period_us) * u128::from(bucket.ticks_per_us)
}

#[test]
fn common_rates_are_exact() {
    for (tokens, period) in [
        (3, 3_600 * SECOND),
        (1, DAY),
        (50_000, SECOND),
        (7, SECOND),
        (1_000_000, SECOND),
        (10_000_000, SECOND),
    ] {
        let bucket = bucket(tokens, period, tokens.min(1_000));
        assert!(
            is_exact(bucket, tokens, period),
            "{tokens} per {period} us: {bucket:?}"
        );
    }
}

#[test]
fn an_inexact_rate_is_rounded_to_fewer_tokens() {
    let bucket = bucket(999_983, SECOND, 10);
    assert_eq!(bucket.ticks_per_us, 1_000);
    assert_eq!(bucket.emission, 1_001);
}

#[test]
fn a_fine_fraction_with_a_huge_capacity_falls_back_to_whole_microseconds() {
    let bucket = bucket(997, 997 * 31_000_001, 1_000_000);
    assert!(bucket.capacity < MAX_TICKS);
    let coarse = try_bucket(1_009, 1_009 * 30_000_000 + 1, 1_000_000).unwrap();
    assert_eq!((coarse.ticks_per_us, coarse.emission), (1, 30_000_001));
    let fine = try_bucket(999, 1 << 23, (1 << 29) - 1).unwrap();
    assert_eq!(
        (fine.ticks_per_us, fine.capacity),
        (999, MAX_TICKS - (1 << 23))
    );
    assert_eq!(
        try_bucket(999, 1 << 23, 1 << 29).unwrap().ticks_per_us,
        1,
        "the bound itself is too much"
    );
}

#[test]
fn bounds_are_refused_by_name() {
    assert_eq!(
        try_bucket(10_000_001, SECOND, 1),
        Err(TokenBucketError::TooFast)
    );
    assert_eq!(
        try_bucket(1, SECOND, MAX_BURST + 1),
        Err(TokenBucketError::BurstTooLarge)
    );
    assert_eq!(try_bucket(1, DAY, 367), Err(TokenBucketError::TooSlow));
    assert!(try_bucket(1, DAY, 366).is_ok());
    assert_eq!(
        try_bucket(u64::MAX, u64::MAX, u64::MAX),
        Err(TokenBucketError::BurstTooLarge)
    );
}

#[test]
fn three_per_hour_come_back_every_twenty_minutes() {
    let bucket = bucket(3, 3_600 * SECOND, 3);
    let all = take(bucket, 0, 1, 5);
    assert_eq!((all.granted, all.remaining), (3, 0));
    assert_eq!(all.retry_after_us, 1_200 * SECOND);
    assert_eq!(all.reset_after_us, 3_600 * SECOND);
    let early = all.backlog - (1_200 * SECOND - 1) * bucket.ticks_per_us;
    assert_eq!(take(bucket, early, 1, 1).retry_after_us, 1);
    assert_eq!(take(bucket, early - bucket.ticks_per_us, 1, 1).granted, 1);
}

#[test]
fn one_per_day_passes_once_a_day() {
    let bucket = bucket(1, DAY, 1);
    let first = take(bucket, 0, 1, 1);
    assert_eq!(
        (first.granted, first.retry_after_us, first.reset_after_us),
        (1, 0, DAY)
    );
    assert_eq!(take(bucket, first.backlog, 1, 1).retry_after_us, DAY);
}

#[test]
fn fifty_thousand_per_second_come_back_every_twenty_microseconds() {
    let bucket = bucket(50_000, SECOND, 1);
    assert_eq!(take(bucket, 0, 1, 2).retry_after_us, 20);
}

#[test]
fn a_request_may_cost_the_whole_burst() {
    let bucket = bucket(5, SECOND, 5);
    let first = take(bucket, 0, 5, 1);
    assert_eq!(
        (first.granted, first.remaining, first.retry_after_us),
        (1, 0, 0)
    );
    assert_eq!(take(bucket, first.backlog, 5, 1).retry_after_us, SECOND);
}

#[test]
fn a_request_over_the_burst_is_never_granted() {
    let bucket = bucket(5, SECOND, 5);
    assert_eq!(take(bucket, 0, 6, 1).granted, 0);
    assert_eq!(take(bucket, u64::MAX, u64::MAX, u32::MAX).granted, 0);
}

#[test]
fn a_backlog_over_the_capacity_leaves_nothing_until_it_has_flowed_off() {
    let bucket = bucket(1, SECOND, 2);
    let denied = take(bucket, bucket.capacity * 100, 1, 1);
    assert_eq!(
        (denied.granted, denied.remaining, denied.retry_after_us),
        (0, 0, 199 * SECOND)
    );
}

#[test]
fn a_changed_limit_keeps_the_tokens_consumed() {
    let per_second = bucket(10, SECOND, 20);
    let per_hour = bucket(10, 3_600 * SECOND, 20);
    let used = take(per_second, 0, 1, 7).backlog;
    assert_eq!(
        take(
            per_hour,
            convert(used, per_second.tick_rate(), per_hour.tick_rate()),
            1,
            20
        )
        .granted,
        13
    );
    let few = bucket(20, SECOND, 5);
    assert_eq!(
        convert(used, per_second.tick_rate(), few.tick_rate()),
        few.charge(7),
        "more than it can hold"
    );
}

#[test]
fn leases_keep_back_what_flows_in_while_a_token_lives() {
    let wide = bucket(1_000, SECOND, 1_000).leased(1);
    assert_eq!(
        (wide.lease_us(), take(wide, 0, 1, 2_000).granted),
        (50_000, 950)
    );
    assert_eq!(take(wide, 0, 1, 950).remaining, 0);
    assert_eq!(take(wide, wide.usable(), 1, 1).retry_after_us, 1_000);
    let narrow = bucket(1_000, SECOND, 100).leased(1);
    assert_eq!(
        (narrow.lease_us(), take(narrow, 0, 1, 2_000).granted),
        (25_000, 75)
    );
    let slow = bucket(1_000, 3_600 * SECOND, 1_000).leased(1);
    assert_eq!(
        (slow.lease_us(), take(slow, 0, 1, 2_000).granted),
        (50_000, 999)
    );
}

#[test]
fn a_bucket_too_small_for_leases_has_none() {
    for small in [
        bucket(1, 60 * SECOND, 1),
        bucket(10, SECOND, 20),
        bucket(50_000, SECOND, 150),
    ] {
        assert_eq!(small.leased(1), small);
    }
    assert_eq!(
        bucket(10_000, SECOND, 40).leased(1).lease_us(),
        1_000,
        "the shortest lease"
    );
    let dear = bucket(100, SECOND, 100);
    assert_eq!((dear.leased(2).lease_us(), dear.leased(3)), (50_000, dear));
}

#[test]
fn a_refund_returns_no_more_than_the_charge_still_weighs() {
    let bucket = bucket(1_000, SECOND, 100);
    let taken = take(bucket, 0, 1, 10).backlog;
    assert_eq!(refund(bucket, taken, taken, 0), 0);
    let later = taken - 4_000 * bucket.ticks_per_us;
    assert_eq!(refund(bucket, later, taken, 4_000), 0);
    let others = take(bucket, 0, 1, 5).backlog;
    assert_eq!(
        refund(bucket, others, taken, 10_000),
        others,
        "the charge had flowed off by then"
    );
}

#[test]
fn a_debt_counts_beyond_the_burst_from_the_time_it_was_admitted() {
    let rate = bucket(1_000, SECOND, 100).tick_rate();
    assert_eq!(
        charge_debt(90_000, 100_000, rate, 0),
        190_000,
        "the burst cuts nothing off"
    );
    assert_eq!(
        charge_debt(90_000, 100_000, rate, 30_000),
        190_000,
        "what flowed in since is gone already"
    );
    assert_eq!(charge_debt(0, 100_000, rate, 30_000), 70_000);
    assert_eq!(charge_debt(0, 100_000, rate, 100_001), 0);
    assert_eq!(charge_debt(5, u64::MAX, rate, 0), MAX_TICKS);
}

#[test]
fn a_reservation_keeps_its_unspent_tokens_while_no_more_flow_in_than_it_spent() {
    let bucket = bucket(3, SECOND, 12);
    let spent = bucket.charge(6);
    assert_eq!(
        [1, 2, 5].map(|seconds| covered_us(bucket, spent, seconds * SECOND)),
        [1, 2, 2].map(|s| s * SECOND)
    );
}

#[test]
fn a_share_fills_in_the_same_time() {
    let whole = bucket(10, SECOND, 10);
    let half = whole.shared_by(2);
    assert_eq!(take(half, 0, 1, 10).granted, 5);
    assert_eq!(
        take(half, 0, 1, 5).reset_after_us,
        take(whole, 0, 1, 10).reset_after_us
    );
}

fn any_policy() -> impl Strategy<Value = (u64, u64, u64)> {
    let period = prop_oneof![
        Just(SECOND),
        Just(60 * SECOND),
        Just(3_600 * SECOND),
        Just(DAY),
        1_u64..100 * SECOND
    ];
    (1_u64..20_000, period, 1_u64..500)
        .prop_filter("in bounds", |(t, p, b)| try_bucket(*t, *p, *b).is_ok())
}

proptest! {
    #[test]
    fn no_window_admits_more_than_burst_and_rate(
        (tokens, period, burst) in any_policy(),
        steps in prop::collection::vec((0_u64..100, 1_u64..4, 1_u32..5), 1..150),
    ) {
        let bucket = bucket(tokens, period, burst);
        let unit = (period / tokens).max(1);
        let mut now = 0_u64;
        let mut backlog = 0_u64;
        let mut admitted = Vec::new();
        for (wait, cost, units) in steps {
            let wait = wait * unit / 20;
            now += wait;
            backlog = backlog.saturating_sub(wait * bucket.ticks_per_us);
            let taken = take(bucket, backlog, cost, units);
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
    fn greedy_demand_gets_the_whole_rate((tokens, period, burst) in any_policy()) {
        let bucket = bucket(tokens, period, burst);
        let mut now = 0_u64;
        let mut backlog = 0_u64;
        let mut admitted = 0_u128;
        for _ in 0..300 {
            let taken = take(bucket, backlog, 1, u32::MAX);
            admitted += u128::from(taken.granted);
            now += taken.retry_after_us;
            backlog = taken.backlog.saturating_sub(taken.retry_after_us * bucket.ticks_per_us);
        }
        admitted += u128::from(take(bucket, backlog, 1, u32::MAX).granted);
        let due = u128::from(burst) * u128::from(period) + u128::from(tokens) * u128::from(now);
        prop_assert!(admitted * u128::from(period) * 100 >= due * 97 - u128::from(period) * 100);
    }

    #[test]
    fn a_conversion_keeps_every_token_however_often(
        (t1, p1, b1) in any_policy(), (t2, p2, b2) in any_policy(), used in 0_u32..600,
    ) {
        let old = bucket(t1, p1, b1);
        let new = bucket(t2, p2, b2);
        let before = take(old, 0, 1, used);
        let after = convert(before.backlog, old.tick_rate(), new.tick_rate());
        prop_assume!(after < MAX_TICKS);
        prop_assert_eq!(after, new.charge(before.granted.into()));
        let part = before.backlog / 3;
        let back = convert(convert(part, old.tick_rate(), new.tick_rate()), new.tick_rate(), old.tick_rate());
        prop_assert!(back >= part);
        prop_assert!(convert_room(convert(part, old.tick_rate(), new.tick_rate()), new.tick_rate(), old.tick_rate()) >= part);
    }
}
