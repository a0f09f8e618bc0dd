use std::num::NonZeroU64;

use super::*;
use crate::algorithm::token_bucket::TokenBucket;
use crate::algorithm::window::Window;

const AT: Timestamp = Timestamp { now_us: 1_000_000, expires_at_us: 4_000_000 };

fn bucket() -> Quota {
    let nonzero = |number| NonZeroU64::new(number).unwrap();
    TokenBucket::new(nonzero(10), nonzero(1_000_000), nonzero(20)).unwrap().into()
}

fn window() -> Quota {
    Window::sliding(20, 3_000_000).unwrap().into()
}

fn left(state: &QuotaState, quota: Quota) -> u64 {
    state.level(quota, 1).remaining
}

#[test]
fn another_algorithm_sees_the_tokens_that_were_consumed() {
    for (from, to) in [(bucket(), window()), (window(), bucket()), (window(), window()), (bucket(), bucket())] {
        let mut state = StoredState::full(from).read_as(from, AT);
        state.charge(from, 1, 7, 7);
        assert_eq!(left(&state.stored().read_as(to, AT), to), 13, "{from:?} to {to:?}");
    }
}

#[test]
fn grants_and_observed_levels_count_in_tokens() {
    for quota in [bucket(), window()] {
        let spent = StoredState::lacking(quota, 20, AT).read_as(quota, AT);
        assert_eq!(left(&spent.clone().grant(5), quota), 5);
        assert_eq!(left(&spent.clone().grant(u64::MAX), quota), 20);
        assert_eq!(left(&spent.full_by(0), quota), 20);
        let mut full = StoredState::full(quota).read_as(quota, AT);
        full.observe(&Level { remaining: 8, retry_after_us: 0, reset_after_us: 1_000_000 });
        assert_eq!(left(&full, quota), 8);
    }
}

#[test]
fn a_grant_shows_at_once_also_where_more_was_consumed_than_the_burst() {
    let spent = StoredState::lacking(bucket(), 90, AT).read_as(bucket(), AT);
    assert_eq!(left(&spent.grant(5), bucket()), 5);
}

#[test]
fn debts_and_refunds_change_what_is_stored() {
    for quota in [bucket(), window()] {
        let mut state = StoredState::full(quota).read_as(quota, AT);
        state.charge_debt(quota.charge(6), 0, AT.expires_at_us);
        assert!(state.is_changed());
        let mut state = state.stored().read_as(quota, AT);
        state.refund(quota.charge(4), AT.now_us, AT.expires_at_us);
        assert_eq!((left(&state, quota), state.is_changed()), (18, true));
    }
}
