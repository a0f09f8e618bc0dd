//! Requests that ask the same at the same time share a call.

use std::time::Duration;

use tollgate_limiter::clock;
use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::store::{BucketCharge, StoreError};

use super::manual_store::{Fixture, TIMEOUT};
use tollgate_testing::{HOUR, charge, decide, eventually, shape};

fn of_ten(cost: u64) -> [BucketCharge; 1] {
    [charge("k", shape(10, HOUR, 10), cost)]
}

#[tokio::test(start_paused = true)]
async fn requests_during_a_call_share_the_next_one_and_are_granted_in_order() {
    let mut fixture = Fixture::new();
    let charges = of_ten(3);
    let mut requests = Vec::new();
    for _ in 0..6 {
        requests.push(fixture.send(&charges).await);
    }
    let first = fixture.call().await;
    assert_eq!(first.units, 1);
    first.answer_from(&fixture.memory).await;
    let second = fixture.call().await;
    assert_eq!(second.units, 5);
    second.answer_from(&fixture.memory).await;
    let mut heard = Vec::new();
    for request in requests {
        let decision = request.await.unwrap();
        assert_eq!(decision.decided_by, DecidedBy::Redis);
        heard.push((
            decision.granted,
            decision.levels[0].remaining,
            decision.levels[0].retry_after_us > 0,
        ));
    }
    let denied = (false, 1, true);
    assert_eq!(
        heard,
        [
            (true, 7, false),
            (true, 4, false),
            (true, 1, false),
            denied,
            denied,
            denied
        ]
    );
    assert!(
        fixture.calls.try_recv().is_err(),
        "nobody waits, so nobody calls"
    );
}

#[tokio::test(start_paused = true)]
async fn each_request_of_a_batch_has_a_reset_time_of_its_own() {
    let mut fixture = Fixture::new();
    let charges = of_ten(2);
    let requests = [
        fixture.send(&charges).await,
        fixture.send(&charges).await,
        fixture.send(&charges).await,
    ];
    for _ in 0..2 {
        fixture.call().await.answer_from(&fixture.memory).await;
    }
    let mut resets = Vec::new();
    for request in requests {
        resets.push(request.await.unwrap().levels[0].reset_after_us);
    }
    assert_eq!(resets, [HOUR / 5, 2 * HOUR / 5, 3 * HOUR / 5]);
}

#[tokio::test(start_paused = true)]
async fn different_questions_are_not_batched() {
    let mut fixture = Fixture::new();
    let both = [
        of_ten(1)[0].clone(),
        charge("other", shape(10, HOUR, 10), 1),
    ];
    let requests = [
        fixture.send(&of_ten(1)).await,
        fixture.send(&of_ten(2)).await,
        fixture.send(&both).await,
    ];
    let mut asked = Vec::new();
    for _ in 0..3 {
        let call = fixture.call().await;
        asked.push((call.charges.len(), call.charges[0].cost, call.units));
        call.answer_from(&fixture.memory).await;
    }
    assert_eq!(asked, [(1, 1, 1), (1, 2, 1), (2, 1, 1)]);
    for request in requests {
        assert!(request.await.unwrap().granted);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_first_request_cancels_no_other() {
    let mut fixture = Fixture::new();
    let charges = of_ten(1);
    let first = fixture.send(&charges).await;
    let others = [fixture.send(&charges).await, fixture.send(&charges).await];
    let _unanswered = fixture.call().await;
    first.abort();
    let call = fixture.call().await;
    assert_eq!(call.units, 2);
    call.answer_from(&fixture.memory).await;
    for other in others {
        assert_eq!(other.await.unwrap().decided_by, DecidedBy::Redis);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_before_the_call_takes_no_units() {
    let mut fixture = Fixture::new();
    let charges = of_ten(1);
    let first = fixture.send(&charges).await;
    let leaving = fixture.send(&charges).await;
    let staying = fixture.send(&charges).await;
    leaving.abort();
    assert!(leaving.await.is_err());
    fixture.call().await.answer_from(&fixture.memory).await;
    let call = fixture.call().await;
    assert_eq!(call.units, 1);
    call.answer_from(&fixture.memory).await;
    assert!(first.await.unwrap().granted && staying.await.unwrap().granted);
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_longer_than_the_timeout_from_its_own_start() {
    let mut fixture = Fixture::new();
    let charges = of_ten(1);
    let mut requests = Vec::new();
    for _ in 0..4 {
        let limiter = fixture.limiter.clone();
        let charges = charges.clone();
        requests.push(tokio::spawn(async move {
            let started = clock::now();
            let decision = decide(&limiter, &charges).await;
            (started.elapsed(), decision.decided_by)
        }));
        tokio::time::advance(Duration::from_millis(4)).await;
    }
    for request in requests {
        let (took, by) = request.await.unwrap();
        assert!(took <= TIMEOUT + Duration::from_millis(2), "{took:?}");
        assert_eq!(by, DecidedBy::Local);
    }
    while fixture.calls.try_recv().is_ok() {}
    let after = fixture.send(&charges).await;
    fixture.call().await.answer_from(&fixture.memory).await;
    assert_eq!(
        after.await.unwrap().decided_by,
        DecidedBy::Redis,
        "nothing is left behind"
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_does_not_wait_for_a_slow_call() {
    let mut fixture = Fixture::new();
    let charges = of_ten(1);
    let slow = fixture.send(&charges).await;
    let slow_call = fixture.call().await;
    let boarded = [fixture.send(&charges).await, fixture.send(&charges).await];
    let call = fixture.call().await;
    assert_eq!(call.units, 2);
    call.answer_from(&fixture.memory).await;
    for request in boarded {
        assert_eq!(request.await.unwrap().decided_by, DecidedBy::Redis);
    }
    slow_call.answer_from(&fixture.memory).await;
    assert_eq!(slow.await.unwrap().decided_by, DecidedBy::Redis);
}

#[tokio::test(start_paused = true)]
async fn a_batch_behind_slow_calls_is_sent_after_a_quarter_of_the_timeout() {
    let mut fixture = Fixture::new();
    let charges = of_ten(1);
    let _slow = fixture.send(&charges).await;
    let _unanswered = fixture.call().await;
    for _ in 0..3 {
        let started = clock::now();
        let boarded = fixture.send(&charges).await;
        let call = fixture.call().await;
        assert!(
            started.elapsed() <= TIMEOUT / 4 + Duration::from_millis(1),
            "{:?}",
            started.elapsed()
        );
        call.answer_from(&fixture.memory).await;
        assert_eq!(boarded.await.unwrap().decided_by, DecidedBy::Redis);
    }
}

#[tokio::test(start_paused = true)]
async fn the_quarter_is_counted_from_the_first_request_of_the_batch() {
    let mut fixture = Fixture::new();
    let charges = of_ten(1);
    let requests = [fixture.send(&charges).await, fixture.send(&charges).await];
    fixture.call().await.answer_from(&fixture.memory).await;
    let _unanswered = fixture.call().await;
    tokio::time::advance(Duration::from_millis(3)).await;
    let started = clock::now();
    let boarded = fixture.send(&charges).await;
    let call = fixture.call().await;
    let waited = started.elapsed();
    assert!(
        waited >= TIMEOUT / 4 && waited <= TIMEOUT / 4 + Duration::from_millis(1),
        "{waited:?}"
    );
    call.answer_from(&fixture.memory).await;
    assert_eq!(boarded.await.unwrap().decided_by, DecidedBy::Redis);
    let [first, second] = requests;
    assert_eq!(first.await.unwrap().decided_by, DecidedBy::Redis);
    assert_eq!(
        second.await.unwrap().decided_by,
        DecidedBy::Local,
        "its call was never answered"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_counts_once_for_each_waiting_request() {
    let mut fixture = Fixture::new();
    let charges = of_ten(1);
    let mut requests = Vec::new();
    for _ in 0..6 {
        requests.push(fixture.send(&charges).await);
    }
    fixture.call().await.answer_from(&fixture.memory).await;
    fixture.call().await.answer(Err(StoreError::Io.into()));
    assert_eq!(
        requests.remove(0).await.unwrap().decided_by,
        DecidedBy::Redis
    );
    for request in requests {
        assert_eq!(request.await.unwrap().decided_by, DecidedBy::Local);
    }
    eventually("the breaker opens", || async { fixture.breaker.is_open() }).await;
}
