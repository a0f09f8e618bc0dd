use std::num::NonZeroU64;

use super::*;
use crate::algorithm::calendar::Period;
use crate::algorithm::held_back::{HeldBack, Reserve};
use crate::algorithm::level::Level;

const SECOND: u64 = 1_000_000;

/// Three tokens per second: a microsecond has three ticks.
fn bucket(burst: u64) -> Quota {
    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }
    TokenBucket::new(nonzero(3), nonzero(SECOND), nonzero(burst))
        .unwrap()
        .into()
}

/// Twelve tokens per minute.
fn window() -> Quota {
    Window::fixed(12, Period::every(60 * SECOND))
        .unwrap()
        .into()
}

#[test]
fn a_debt_comes_back_by_and_by_to_a_bucket_and_at_once_to_a_window() {
    let within = |quota: Quota| {
        let charge = quota.charge(6);
        [0, SECOND, 9 * SECOND].map(|left_us| quota.charge_within(charge, left_us))
    };
    let token = bucket(12).charge(1);
    assert_eq!(within(bucket(12)), [0, 3 * token, 6 * token]);
    assert_eq!(within(window()), [0, 6, 6]);
}

#[test]
fn tokens_of_a_bucket_take_time_one_by_one_and_those_of_a_window_together() {
    let times = |quota: Quota| {
        (
            quota.fill_us(),
            quota.spare_us(6),
            quota.flow_us(6),
            quota.dearer_us(6),
        )
    };
    assert_eq!(
        times(bucket(12)),
        (4 * SECOND, 2 * SECOND, 2 * SECOND, 2 * SECOND)
    );
    assert_eq!(times(window()), (60 * SECOND, 0, 0, 0));
    assert_eq!(
        (bucket(12).pace_us(6), window().pace_us(6)),
        (2 * SECOND, 30 * SECOND)
    );
    assert_eq!(window().shared_by(2).pace_us(3), 30 * SECOND);
}

#[test]
fn a_request_larger_than_the_limit_or_its_share_never_fits() {
    for quota in [bucket(12), window()] {
        assert_eq!(
            (quota.burst(), quota.holds(12), quota.holds(13)),
            (12, true, false)
        );
        let third = quota.shared_by(3);
        assert_eq!((third.holds(4), third.holds(5)), (true, false));
    }
}

#[test]
fn a_denial_by_a_whole_limit_that_is_held_back_lasts_as_long_as_that() {
    let reserve = Reserve {
        part: HeldBack::Whole,
        left_us: 12 * SECOND,
    };
    let told = |quota: Quota, retry_after_us| {
        let level = Level {
            retry_after_us,
            ..Level::default()
        };
        let level = quota.level_holding_back(reserve, 1, level, retry_after_us);
        level.retry_after_us
    };
    for quota in [bucket(1), window()] {
        assert_eq!(told(quota, 2 * SECOND), 12 * SECOND);
        assert_eq!(told(quota, 0), 0, "nothing was denied");
    }
    assert_eq!(told(window(), 20 * SECOND), 20 * SECOND);
}

#[test]
fn a_script_is_told_the_numbers_of_its_algorithm() {
    let told = |quota: Quota| (quota.script().letter(), quota.script_numbers(0));
    assert_eq!(
        told(bucket(60).leased(1)),
        ("b", [SECOND, 60 * SECOND, 3, 150_000])
    );
    assert_eq!(
        told(Window::sliding(200, 64 * SECOND).unwrap().into()),
        ("s", [200, 64 * SECOND, SECOND, 0])
    );
    assert_eq!(told(window()), ("f", [12, 60 * SECOND, 0, 0]));
}

#[test]
#[cfg(feature = "calendar")]
fn the_script_of_a_calendar_window_is_told_this_window_and_the_end_of_the_next() {
    use crate::algorithm::calendar::CalendarUnit;

    const DAY: u64 = 86_400 * SECOND;
    let daily = Quota::from(
        Window::fixed(12, Period::calendar(CalendarUnit::Day, "UTC").unwrap()).unwrap(),
    );
    assert_eq!(daily.script_numbers(DAY + 1), [12, DAY, 2 * DAY, 3 * DAY]);
}
