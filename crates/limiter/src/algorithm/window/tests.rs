use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000;

fn minute(quota: u64) -> Window {
    Window::fixed(quota, Period::every(60 * SECOND)).unwrap()
}

fn take(
    entries: &mut WindowEntries,
    window: Window,
    cost: u64,
    units: u32,
    now_us: u64,
) -> ChargeOutcome {
    let (at, _) = entries.read_at(window.span().timestamp(now_us, 0));
    let granted = entries.fitting(window, cost, units);
    entries.charge(window, cost, granted, at)
}

#[test]
fn a_fixed_window_starts_anew_at_its_end() {
    let mut entries = WindowEntries::default();
    let all = take(&mut entries, minute(3), 1, 5, 59 * SECOND);
    assert_eq!(
        (
            all.granted,
            all.remaining,
            all.retry_after_us,
            all.reset_after_us
        ),
        (3, 0, SECOND, SECOND)
    );
    assert_eq!(
        take(&mut entries, minute(3), 1, 1, 60 * SECOND - 1).granted,
        0
    );
    assert_eq!(take(&mut entries, minute(3), 1, 5, 60 * SECOND).granted, 3);
}

#[test]
fn a_sliding_window_gives_each_token_back_when_it_is_a_window_old() {
    let window = Window::sliding(3, 60 * SECOND).unwrap();
    let mut entries = WindowEntries::default();
    take(&mut entries, window, 1, 1, 10 * SECOND);
    take(&mut entries, window, 2, 1, 20 * SECOND);
    let denied = take(&mut entries, window, 1, 1, 30 * SECOND);
    assert_eq!(
        (denied.granted, denied.retry_after_us, denied.reset_after_us),
        (0, 40 * SECOND, 50 * SECOND)
    );
    assert_eq!(
        take(&mut entries, window, 2, 1, 30 * SECOND).retry_after_us,
        50 * SECOND
    );
    assert_eq!(take(&mut entries, window, 1, 1, 70 * SECOND).granted, 1);
}

#[test]
fn a_shorter_window_and_a_clock_that_stepped_back_lock_nobody_out() {
    let mut entries = WindowEntries::new(3, 3_600 * SECOND);
    assert_eq!(
        take(&mut entries, minute(3), 1, 1, 0).retry_after_us,
        60 * SECOND
    );
    assert_eq!(take(&mut entries, minute(3), 1, 1, 61 * SECOND).granted, 1);
}

#[test]
fn a_clock_that_steps_back_over_the_beginning_of_a_window_goes_on_with_that_window() {
    let window = minute(3);
    let step = 71_000;
    let mut entries = WindowEntries::default();
    take(&mut entries, window, 1, 3, 50 * SECOND);
    assert_eq!(take(&mut entries, window, 1, 2, 60 * SECOND).granted, 2);
    let again = take(&mut entries, window, 1, 5, 60 * SECOND - step);
    assert_eq!(
        (again.granted, again.retry_after_us),
        (1, 60 * SECOND + step)
    );
    assert_eq!(
        take(&mut entries, window, 1, 5, 60 * SECOND + step).granted,
        0,
        "the clock passes the end twice"
    );
    assert_eq!(take(&mut entries, window, 1, 5, 120 * SECOND).granted, 3);
}

#[test]
fn a_clock_that_steps_back_far_makes_nobody_wait_for_longer_than_a_window() {
    for step in [11, 61, 3_600] {
        let mut entries = WindowEntries::default();
        take(&mut entries, minute(3), 1, 3, 7_200 * SECOND);
        let denied = take(&mut entries, minute(3), 1, 1, (7_200 - step) * SECOND);
        assert!(
            denied.granted == 0 && denied.retry_after_us <= 60 * SECOND,
            "{denied:?}"
        );
    }
}

#[test]
fn a_share_takes_more_of_the_quota_for_each_token() {
    let mut entries = WindowEntries::default();
    let taken = take(&mut entries, minute(10).shared_by(3), 1, 9, 0);
    assert_eq!(
        (taken.granted, taken.remaining, entries.tokens_out()),
        (3, 0, 9)
    );
}

#[test]
fn a_refund_goes_to_the_window_that_was_charged() {
    let mut entries = WindowEntries::default();
    take(&mut entries, minute(10), 4, 1, 59 * SECOND);
    entries.refund(3, 60 * SECOND);
    assert_eq!(entries.tokens_out(), 1);
    entries.refund(1, 120 * SECOND);
    assert_eq!(entries.tokens_out(), 1, "that window has not begun");
}

#[test]
fn a_debt_counts_beyond_the_quota_until_it_expires() {
    let mut entries = WindowEntries::new(4, 60);
    entries.charge_debt(9, 70, 50);
    assert_eq!(entries.tokens_out(), 13);
    entries.charge_debt(5, 50, 50);
    assert_eq!(entries.tokens_out(), 13, "it has expired");
    entries.charge_debt(u64::MAX, 70, 50);
    assert_eq!(entries.tokens_out(), MAX_TICKS);
}

#[test]
fn beyond_their_bound_the_two_entries_that_expire_first_become_one() {
    let mut entries = WindowEntries::default();
    (0..MAX_ENTRIES as u64).for_each(|until_us| entries.add(1, until_us));
    assert_eq!(
        (entries.entries.len(), entries.entries[0]),
        (
            MAX_ENTRIES,
            WindowEntry {
                until_us: 0,
                tokens: 1
            }
        )
    );
    entries.add(1, MAX_ENTRIES as u64);
    assert_eq!(
        (entries.entries.len(), entries.entries[0]),
        (
            MAX_ENTRIES,
            WindowEntry {
                until_us: 1,
                tokens: 2
            }
        )
    );
}

#[test]
fn bounds_are_refused_by_name() {
    assert_eq!(
        Window::sliding(MAX_QUOTA + 1, SECOND),
        Err(WindowError::QuotaTooLarge)
    );
    assert_eq!(
        Window::sliding(1, MAX_WIDTH_US + 1),
        Err(WindowError::TooLong)
    );
    assert!(Window::sliding(MAX_QUOTA, MAX_WIDTH_US).is_ok());
}

proptest! {
    #[test]
    fn any_stretch_of_a_sliding_window_admits_at_most_the_quota(
        quota in 1_u64..200, width in 1_u64..2_000, steps in prop::collection::vec((0_u64..300, 0_u32..40), 1..120),
    ) {
        let window = Window::sliding(quota, width).unwrap();
        let mut entries = WindowEntries::default();
        let mut now = 1_000;
        let mut passed = Vec::new();
        for (wait, units) in steps {
            now += wait;
            passed.push((now, u64::from(take(&mut entries, window, 1, units, now).granted)));
            prop_assert!(entries.entries.len() <= MAX_ENTRIES);
        }
        for (from, _) in &passed {
            let inside = passed.iter().filter(|(at, _)| at >= from && *at < from + width);
            prop_assert!(inside.map(|(_, units)| units).sum::<u64>() <= quota);
        }
    }

    #[test]
    fn a_busy_sliding_window_admits_its_quota_again_within_a_64th_more_than_its_width(quota in 1_u64..500) {
        let width = 6_400;
        let window = Window::sliding(quota, width).unwrap();
        let mut entries = WindowEntries::default();
        let admitted = (0..20 * width).step_by(10);
        let admitted: u64 = admitted.map(|now| u64::from(take(&mut entries, window, 1, 1_000, now).granted)).sum();
        prop_assert!(admitted * 100 >= quota * 20 * 97, "{} of {}", admitted, quota * 20);
    }
}
