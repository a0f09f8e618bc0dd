use std::num::NonZeroU64;

use proptest::prelude::*;

use super::*;
use crate::algorithm::share::Share;
use crate::algorithm::token_bucket::TokenBucket;
use crate::algorithm::window::Window;
use crate::store::fleet_share::NOTICE_US;
use crate::store::memory::MemoryStore;

const SECOND: u64 = 1_000_000;

const AT: Timestamp = Timestamp {
    now_us: 0,
    expires_at_us: 60 * SECOND,
    next_expiry_us: 60 * SECOND,
};

fn ask(key: &str, burst: u64) -> BucketCharge {
    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }
    let shape = TokenBucket::new(nonzero(10), nonzero(SECOND), nonzero(burst)).unwrap();
    BucketCharge {
        key: Key::from(key),
        quota: shape.into(),
        cost: 1,
        largest_cost: 1,
        local_us: u64::MAX,
    }
}

fn owed(debts: &Debts, now_us: u64) -> u64 {
    debts
        .collect(now_us, 10, |_| true)
        .iter()
        .map(|part| match part.change {
            Change::Charge { charge, .. } => charge / part.quota.charge(1),
            Change::Refund { .. } => 0,
        })
        .sum()
}

#[test]
fn a_debt_flows_off_at_this_nodes_part_of_the_rate_once_the_others_have_noticed() {
    let debts = Debts::new();
    let owed_after = |us| {
        (0..20).for_each(|_| debts.incur(&ask("k", 100), 2, 0, AT));
        owed(&debts, us)
    };
    assert_eq!([0, SECOND, NOTICE_US].map(owed_after), [20, 20, 20]);
    assert_eq!(
        [NOTICE_US + SECOND, NOTICE_US + 2 * SECOND].map(owed_after),
        [15, 10]
    );
    assert_eq!(owed(&debts, NOTICE_US), 0, "it was taken out");
}

#[test]
fn a_debt_that_has_flowed_off_is_gone_once_the_others_have_noticed() {
    let debts = Debts::new();
    (0..5).for_each(|_| debts.incur(&ask("k", 100), 2, 0, AT));
    assert_eq!(
        {
            debts.sweep(SECOND + NOTICE_US - 10);
            let left = debts.len();
            debts.sweep(SECOND + NOTICE_US);
            (left, debts.len())
        },
        (1, 0)
    );
}

#[test]
fn a_debt_that_little_is_added_to_owes_what_flowed_off_a_moment_ago() {
    let debts = Debts::new();
    for second in 0..60 {
        debts.incur(
            &ask("k", 100),
            2,
            0,
            Timestamp {
                now_us: second * SECOND,
                ..AT
            },
        );
    }
    let owed = owed(&debts, 60 * SECOND);
    assert!(
        (2..=4).contains(&owed),
        "{owed} of a token a second, for {NOTICE_US} us or twice that"
    );
}

#[test]
fn a_debt_flows_off_after_the_stores_level_and_counts_beyond_a_full_bucket() {
    let debts = Debts::new();
    (0..500).for_each(|_| debts.incur(&ask("k", 20), 1, 2 * SECOND, AT));
    assert_eq!(owed(&debts, 3 * SECOND + NOTICE_US), 490);
}

#[test]
fn a_charge_says_for_how_long_its_unsettled_part_flowed_off() {
    let debts = Debts::new();
    let key = ask("k", 20);
    let since_us = |known_us, now_us| {
        debts.incur(
            &BucketCharge {
                cost: 100,
                ..key.clone()
            },
            2,
            known_us,
            AT,
        );
        match debts.collect(now_us, 10, |_| true)[0].change {
            Change::Charge { since_us, .. } => since_us,
            Change::Refund { .. } => panic!("a debt"),
        }
    };
    assert_eq!(
        (since_us(0, SECOND), since_us(0, NOTICE_US + SECOND)),
        (0, SECOND)
    );
    assert_eq!(
        (since_us(SECOND, 2 * SECOND), since_us(3 * SECOND, SECOND)),
        (SECOND, 3 * SECOND)
    );
}

#[test]
fn tokens_of_a_window_are_owed_until_it_ends() {
    let debts = Debts::new();
    let window = BucketCharge {
        quota: Window::sliding(20, 60 * SECOND).unwrap().into(),
        ..ask("k", 20)
    };
    (0..8).for_each(|_| debts.incur(&window, 2, 0, AT));
    assert_eq!(owed(&debts, 59 * SECOND), 8);
    (0..30).for_each(|_| debts.incur(&window, 2, 0, AT));
    assert_eq!(owed(&debts, 60 * SECOND - 1), 30, "also beyond the quota");
    (0..8).for_each(|_| debts.incur(&window, 2, 0, AT));
    assert_eq!(owed(&debts, 60 * SECOND), 0);
}

#[test]
fn a_debt_by_another_algorithm_is_dropped() {
    let debts = Debts::new();
    let window = BucketCharge {
        quota: Window::sliding(20, 60 * SECOND).unwrap().into(),
        ..ask("k", 20)
    };
    for asks in [[&window, &ask("k", 20)], [&ask("k", 20), &window]] {
        debts.incur(asks[0], 1, 0, AT);
        debts.incur(asks[0], 1, 0, AT);
        debts.incur(asks[1], 1, 0, AT);
        assert_eq!(owed(&debts, 0), 1);
    }
}

#[test]
fn a_limit_that_shrinks_meanwhile_waives_nothing() {
    let debts = Debts::new();
    (0..80).for_each(|_| debts.incur(&ask("k", 100), 1, 0, AT));
    (0..5).for_each(|_| debts.incur(&ask("k", 20), 1, 0, AT));
    assert_eq!(owed(&debts, 0), 85);
}

#[test]
fn an_operator_waives_a_debt_or_the_part_beyond_a_level() {
    let debts = Debts::new();
    (0..8).for_each(|_| debts.incur(&ask("k", 20), 1, 0, AT));
    debts.lower(&Key::from("k"), 300_000, 0);
    assert_eq!(owed(&debts, 0), 3);
    (0..8).for_each(|_| debts.incur(&ask("k", 20), 1, SECOND, AT));
    debts.lower(&Key::from("k"), 0, 0);
    assert_eq!(owed(&debts, 0), 0);
}

#[test]
fn an_unspent_reservation_reduces_the_debt() {
    let debts = Debts::new();
    debts.incur(
        &BucketCharge {
            cost: 8,
            ..ask("k", 20)
        },
        1,
        0,
        AT,
    );
    let quota = ask("k", 20).quota;
    debts.reduce(&Key::from("k"), quota, quota.charge(5), 0, 0);
    debts.reduce(&Key::from("other"), quota, quota.charge(5), 0, 0);
    assert_eq!(owed(&debts, 0), 3);
}

#[test]
fn any_number_of_keys_takes_bounded_room_and_is_taken_out_in_parts() {
    let debts = Debts::new();
    for n in 0..100_000 {
        debts.incur(&ask(&n.to_string(), 20), 1, 0, AT);
    }
    let parts: Vec<_> = std::iter::repeat_with(|| debts.collect(0, 64, |_| true))
        .take_while(|part| !part.is_empty())
        .collect();
    let kept: usize = parts.iter().map(Vec::len).sum();
    assert!(kept > CAPACITY / 2 && kept <= CAPACITY, "{kept}");
    assert!(parts.iter().all(|part| part.len() < 64 + 8));
    assert_eq!(debts.len(), 0);
}

#[tokio::test]
async fn debts_that_nobody_wants_yet_stay_and_are_asked_for_again() {
    let debts = Debts::new();
    ["a", "b"]
        .iter()
        .for_each(|key| debts.incur(&ask(key, 20), 1, 0, AT));
    let taken = debts.collect(0, 10, |key| *key == Key::from("a"));
    assert_eq!(
        taken.iter().map(|one| &one.key).collect::<Vec<_>>(),
        [&Key::from("a")]
    );
    assert_eq!(debts.len(), 1);
    debts.until_owed().await;
    assert_eq!(owed(&debts, 0), 1);
    let waits = tokio::time::timeout(std::time::Duration::from_millis(1), debts.until_owed()).await;
    assert!(waits.is_err(), "there is none");
}

#[test]
fn an_operator_waives_what_is_not_settled_either() {
    let debts = Debts::new();
    (0..8).for_each(|_| debts.incur(&ask("k", 20), 1, 0, AT));
    debts.lower(&Key::from("k"), 500_000, 500_000);
    assert_eq!(owed(&debts, 500_000), 5);
    (0..8).for_each(|_| debts.incur(&ask("k", 20), 1, 0, AT));
    debts.lower(&Key::from("k"), 0, 500_000);
    assert_eq!(owed(&debts, 500_000), 0);
}

mod repayment;
