use std::num::NonZeroU64;

use super::*;
use crate::algorithm::calendar::Period;
use crate::algorithm::token_bucket::{TickRate, TokenBucket};
use crate::algorithm::window::Window;

const AT: Timestamp = Timestamp {
    now_us: 1_000_000,
    expires_at_us: 4_000_000,
    next_expiry_us: 4_000_000,
};

fn bucket() -> Quota {
    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }
    TokenBucket::new(nonzero(10), nonzero(1_000_000), nonzero(20))
        .unwrap()
        .into()
}

fn window() -> Quota {
    Window::sliding(20, 3_000_000).unwrap().into()
}

fn left(state: &QuotaState) -> u64 {
    state.level(1, 1).remaining
}

#[test]
fn another_version_of_a_limit_sees_the_tokens_that_were_consumed() {
    let fixed = Window::fixed(20, Period::every(60_000_000)).unwrap().into();
    for (from, to) in [
        (bucket(), bucket()),
        (window(), window()),
        (window(), fixed),
        (fixed, window()),
    ] {
        let mut state = StoredState::full(from).read_as(from, AT);
        state.charge(1, 1, 7, 7);
        assert_eq!(left(&state.stored().read_as(to, AT)), 13);
    }
}

#[test]
fn another_algorithm_begins_anew_and_its_first_charge_overwrites_the_old_state() {
    for (from, to) in [(bucket(), window()), (window(), bucket())] {
        let spent = StoredState::lacking(from, 20, AT);
        let mut state = spent.clone().read_as(to, AT);
        assert!(!state.is_changed());
        assert_eq!(state.charge(1, 1, 0, 1).remaining, 20);
        assert!(!state.is_changed(), "a denial writes nothing");
        state.charge(1, 1, 7, 7);
        assert_eq!(left(&state.stored().read_as(to, AT)), 13);
        assert!(state.is_changed());
    }
}

#[test]
fn debts_and_refunds_of_another_algorithm_are_dropped() {
    for (from, to) in [(bucket(), window()), (window(), bucket())] {
        let mut state = StoredState::lacking(from, 6, AT).read_as(to, AT);
        state.charge_debt(to.charge(3), 0, AT.expires_at_us);
        state.refund(to.charge(3), AT.now_us, AT.expires_at_us);
        assert_eq!((left(&state), state.is_changed()), (20, false));
    }
}

fn granted(state: &QuotaState, tokens: u64) -> u64 {
    let mut state = state.clone();
    state.grant(tokens);
    left(&state)
}

#[test]
fn grants_and_observed_levels_count_in_tokens() {
    for quota in [bucket(), window()] {
        let spent = StoredState::lacking(quota, 20, AT).read_as(quota, AT);
        assert_eq!(granted(&spent, 5), 5);
        assert_eq!(granted(&spent, u64::MAX), 20);
        let mut lowered = spent.clone();
        lowered.lower_to(0);
        assert_eq!(left(&lowered), 20);
        let mut full = StoredState::full(quota).read_as(quota, AT);
        full.observe(&Level {
            remaining: 8,
            retry_after_us: 0,
            reset_after_us: 1_000_000,
        });
        assert_eq!(left(&full), 8);
    }
}

#[test]
fn a_grant_shows_at_once_also_where_more_was_consumed_than_the_burst() {
    let spent = StoredState::lacking(bucket(), 90, AT).read_as(bucket(), AT);
    assert_eq!(granted(&spent, 5), 5);
}

#[test]
fn debts_and_refunds_change_what_is_stored() {
    for quota in [bucket(), window()] {
        let mut state = StoredState::full(quota).read_as(quota, AT);
        state.charge_debt(quota.charge(6), 0, AT.expires_at_us);
        assert!(state.is_changed());
        let mut state = state.stored().read_as(quota, AT);
        state.refund(quota.charge(4), AT.now_us, AT.expires_at_us);
        assert_eq!((left(&state), state.is_changed()), (18, true));
    }
}

#[test]
fn a_reply_of_the_store_is_read_by_the_algorithm_that_asked() {
    let read = |quota, numbers: &[u64]| StoredState::from_reply(quota, numbers, 1_000);
    for quota in [bucket(), window()] {
        assert_eq!(read(quota, &[]), Some(StoredState::full(quota)));
    }
    let backlog = Backlog {
        ticks: 70,
        tick_rate: TickRate::new(10, 3).unwrap(),
    };
    assert_eq!(
        read(bucket(), &[70, 10, 3]),
        Some(StoredState::TokenBucket(backlog))
    );
    let mut entries = WindowEntries::new(5, 1_020);
    entries.add(6, 1_030);
    assert_eq!(
        read(window(), &[20, 5, 30, 6]),
        Some(StoredState::Window(entries))
    );
}

#[test]
fn a_reply_that_no_algorithm_gives_is_refused() {
    for numbers in [
        &[70][..],
        &[70, 10],
        &[70, 0, 3],
        &[70, 10, 0],
        &[70, 10, 3, 0],
    ] {
        assert_eq!(
            StoredState::from_reply(bucket(), numbers, 0),
            None,
            "{numbers:?}"
        );
    }
    assert_eq!(StoredState::from_reply(window(), &[20, 5, 30], 0), None);
}

#[test]
fn a_denial_leaves_nothing_to_be_stored() {
    for quota in [bucket(), window()] {
        let mut state = StoredState::lacking(quota, 20, AT).read_as(quota, AT);
        assert_eq!(state.charge(1, 1, 0, 1).remaining, 0);
        assert!(!state.is_changed());
    }
}

#[test]
fn a_refund_of_a_charge_from_the_future_is_ignored() {
    for quota in [bucket(), window()] {
        let mut state = StoredState::lacking(quota, 6, AT).read_as(quota, AT);
        state.refund(quota.charge(4), AT.now_us + 1, AT.expires_at_us);
        assert_eq!(
            (left(&state), state.is_changed()),
            (14, false),
            "the clock stepped back"
        );
    }
}

#[test]
fn an_observed_level_that_is_known_already_changes_nothing() {
    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }
    let faster =
        Quota::from(TokenBucket::new(nonzero(100), nonzero(1_000_000), nonzero(20)).unwrap());
    let mut state = StoredState::lacking(faster, 6, AT).read_as(bucket(), AT);
    let known = state.clone();
    state.observe(&Level {
        remaining: 14,
        retry_after_us: 0,
        reset_after_us: 600_000,
    });
    assert_eq!(
        state, known,
        "tokens still flow back at the faster limit's rate"
    );
}

#[test]
fn an_observed_level_counts_at_least_for_the_moment() {
    let mut state = StoredState::full(window()).read_as(window(), AT);
    state.observe(&Level {
        remaining: 8,
        retry_after_us: 0,
        reset_after_us: 0,
    });
    assert_eq!(left(&state.stored().read_as(window(), AT)), 8);
}
