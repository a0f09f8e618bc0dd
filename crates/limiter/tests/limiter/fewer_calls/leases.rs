//! Tokens taken ahead, as requests meet them.

use std::time::Duration;

use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::store::BucketCharge;
use tollgate_limiter::store::adjustment::Change;
use tollgate_limiter::store::inspect::CacheListener as _;

use super::manual_store::Fixture;
use tollgate_testing::{HOUR, SECOND, charge, decide_locally, shape};

fn leased(tokens: u64, period_us: u64, burst: u64) -> [BucketCharge; 1] {
    [charge("k", shape(tokens, period_us, burst).leased(1), 1)]
}

/// Asks once a millisecond; says how many were granted, and how many calls were made.
async fn drive(fixture: &mut Fixture, charges: &[BucketCharge], requests: u32) -> (u32, u32) {
    let mut granted = 0;
    let mut calls = 0;
    for _ in 0..requests {
        let request = fixture.send(charges).await;
        tokio::task::yield_now().await;
        while let Ok(call) = fixture.calls.try_recv() {
            calls += 1;
            call.answer_from(&fixture.memory).await;
        }
        granted += u32::from(request.await.unwrap().granted);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    (granted, calls)
}

#[tokio::test(start_paused = true)]
async fn a_leased_busy_key_needs_few_calls_and_loses_no_tokens() {
    let mut fixture = Fixture::new();
    let charges = leased(100_000, HOUR, 10_000);
    let (granted, calls) = drive(&mut fixture, &charges, 1_000).await;
    assert_eq!(granted, 1_000);
    assert!(calls < 120, "{calls}");
    // Let what is left come back.
    for _ in 0..100 {
        tokio::time::advance(Duration::from_millis(1)).await;
        tokio::task::yield_now().await;
        while let Ok(adjustments) = fixture.adjusted.try_recv() {
            fixture
                .memory
                .adjust_at(&adjustments, tollgate_limiter::clock::monotonic_micros());
        }
    }
    let left = fixture
        .memory
        .take_at(
            &charges,
            0,
            tollgate_limiter::clock::monotonic_micros(),
            WHOLE,
        )
        .levels[0]
        .remaining;
    assert!((8_995..=9_030).contains(&left), "{left}");
}

const WHOLE: tollgate_limiter::algorithm::share::Share =
    tollgate_limiter::algorithm::share::Share::WHOLE;

#[tokio::test(start_paused = true)]
async fn a_quiet_key_takes_nothing_ahead() {
    let mut fixture = Fixture::new();
    let charges = leased(100_000, HOUR, 10_000);
    for _ in 0..20 {
        let (decision, called) = fixture.decide(&charges).await;
        assert!(decision.granted && called && decision.decided_by == DecidedBy::Redis);
        tokio::time::advance(Duration::from_millis(200)).await;
    }
    assert!(fixture.adjusted.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_low_limit_is_asked_for_each_time_and_never_starves() {
    let mut fixture = Fixture::new();
    let charges = leased(1, 60 * SECOND, 1);
    for _ in 0..5 {
        let (decision, called) = fixture.decide(&charges).await;
        assert!(decision.granted && called);
        assert!(!fixture.decide(&charges).await.0.granted);
        tokio::time::advance(Duration::from_secs(60)).await;
    }
}

/// A fixture with tokens in stock for `charges`.
async fn stocked(charges: &[BucketCharge]) -> Fixture {
    let mut fixture = Fixture::new();
    // Whenever in the process this test begins, its first request is the first for long.
    tollgate_limiter::clock::monotonic_micros();
    tokio::time::advance(Duration::from_secs(3_600)).await;
    drive(&mut fixture, charges, 60).await;
    let decision = decide_locally(&fixture.limiter, charges).unwrap();
    assert_eq!(
        (decision.granted, decision.decided_by),
        (true, DecidedBy::Lease)
    );
    fixture
}

#[tokio::test(start_paused = true)]
async fn remaining_counts_leased_tokens_and_the_bucket_together() {
    let charges = leased(100_000, HOUR, 10_000);
    let fixture = stocked(&charges).await;
    let level = decide_locally(&fixture.limiter, &charges).unwrap().levels[0];
    assert!((9_930..9_945).contains(&level.remaining), "{level:?}");
    assert_eq!(level.retry_after_us, 0);
}

#[tokio::test(start_paused = true)]
async fn an_operators_change_drops_leased_tokens_for_good() {
    let charges = leased(100_000, HOUR, 10_000);
    let mut fixture = stocked(&charges).await;
    while fixture.adjusted.try_recv().is_ok() {}
    fixture.node.lower(
        &charges[0].key,
        charges[0].quota,
        0,
        tollgate_limiter::clock::monotonic_micros(),
    );
    assert!(
        decide_locally(&fixture.limiter, &charges).is_none(),
        "the store is asked again"
    );
    for _ in 0..60 {
        tokio::time::advance(Duration::from_millis(1)).await;
        tokio::task::yield_now().await;
    }
    assert!(
        fixture.adjusted.try_recv().is_err(),
        "a full bucket would get more than full"
    );
}

#[tokio::test(start_paused = true)]
async fn unspent_leased_tokens_are_given_back_before_the_lease_ends() {
    let charges = leased(100_000, HOUR, 10_000);
    let mut fixture = stocked(&charges).await;
    let mut back = 0;
    for _ in 0..50 {
        tokio::time::advance(Duration::from_millis(1)).await;
        tokio::task::yield_now().await;
        while let Ok(adjustments) = fixture.adjusted.try_recv() {
            let Change::Refund {
                charge,
                taken_at_us,
            } = adjustments[0].change
            else {
                panic!("{adjustments:?}")
            };
            back += charge / charges[0].quota.charge(1);
            let held_us = tollgate_limiter::clock::monotonic_micros() - taken_at_us;
            assert!(
                (37_500..=39_500).contains(&held_us),
                "three quarters of the lease, and not {held_us}"
            );
        }
    }
    assert!(back > 0);
    assert!(
        decide_locally(&fixture.limiter, &charges).is_none(),
        "nothing is left in stock"
    );
}

#[tokio::test(start_paused = true)]
async fn leased_tokens_are_spent_only_if_the_exact_limit_passes() {
    let stock = leased(100_000, HOUR, 10_000);
    let mut fixture = stocked(&stock).await;
    let both = [stock[0].clone(), charge("exact", shape(2, HOUR, 2), 1)];
    let before = decide_locally(&fixture.limiter, &stock).unwrap().levels[0].remaining;
    for left in [1, 0] {
        let request = fixture.send(&both).await;
        let call = fixture.calls.recv().await.unwrap();
        assert_eq!(
            call.charges,
            both[1..],
            "the store is asked for the exact one alone"
        );
        call.answer_from(&fixture.memory).await;
        let decision = request.await.unwrap();
        assert!(decision.granted && decision.levels[1].remaining == left);
    }
    let (denied, called) = fixture.decide(&both).await;
    assert!(!denied.granted && called && denied.levels[0].retry_after_us == 0);
    let dropped = fixture
        .send(&[stock[0].clone(), charge("another", shape(2, HOUR, 2), 1)])
        .await;
    dropped.abort();
    assert!(dropped.await.is_err());
    let after = decide_locally(&fixture.limiter, &stock).unwrap().levels[0].remaining;
    assert_eq!(before - after, 3, "two that passed, and the one that looks");
}

#[tokio::test(start_paused = true)]
async fn without_leased_tokens_all_limits_are_asked_in_one_call() {
    let mut fixture = Fixture::new();
    let both = [
        leased(100_000, HOUR, 10_000)[0].clone(),
        charge("exact", shape(2, HOUR, 2), 1),
    ];
    let (decision, _) = fixture.decide(&both).await;
    assert!(decision.granted);
    assert_eq!(
        (decision.levels[0].remaining, decision.levels[1].remaining),
        (9_997, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_leased_limit_beside_an_exact_one_takes_tokens_ahead_as_well() {
    let mut fixture = Fixture::new();
    let both = [
        leased(100_000, HOUR, 10_000)[0].clone(),
        charge("exact", shape(10_000, HOUR, 10_000), 1),
    ];
    let mut of_the_exact_alone = 0;
    for _ in 0..60 {
        let request = fixture.send(&both).await;
        tokio::task::yield_now().await;
        while let Ok(call) = fixture.calls.try_recv() {
            of_the_exact_alone += u32::from(call.charges == both[1..]);
            call.answer_from(&fixture.memory).await;
        }
        assert!(request.await.unwrap().granted);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert!(
        of_the_exact_alone > 0,
        "the leased limit is paid from its lease"
    );
}
