//! A denied key is not asked for again before it can pass.

use std::time::Duration;

use tollgate_limiter::algorithm::concurrency::{ConcurrencyLimit, Scope};
use tollgate_limiter::decide::check::PermitCheck;
use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::limit::definition::OnOutage;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::node::permits::PermitNeed;
use tollgate_limiter::store::BucketCharge;

use super::manual_store::Fixture;
use tollgate_testing::{SECOND, charge, checks, decide_locally, shape};

const WAIT: Duration = Duration::from_millis(100);

/// A token every [`WAIT`], three at once.
fn of_three(cost: u64) -> [BucketCharge; 1] {
    [charge("k", shape(10, SECOND, 3), cost)]
}

/// A fixture whose bucket is empty, and the node knows.
async fn spent() -> Fixture {
    let mut fixture = Fixture::new();
    for _ in 0..3 {
        assert!(fixture.decide(&of_three(1)).await.0.granted);
    }
    let (denied, called) = fixture.decide(&of_three(1)).await;
    assert_eq!(
        (denied.granted, denied.decided_by, called),
        (false, DecidedBy::Redis, true)
    );
    fixture
}

#[tokio::test(start_paused = true)]
async fn a_denied_key_costs_no_calls_until_its_wait_is_over() {
    let mut fixture = spent().await;
    for left in (1..=100).rev() {
        let decision = decide_locally(&fixture.limiter, &of_three(1)).unwrap();
        assert_eq!(
            (decision.granted, decision.decided_by),
            (false, DecidedBy::DenialCache)
        );
        assert_eq!(decision.levels[0].retry_after_us, left * 1_000);
        tokio::time::advance(WAIT / 100).await;
    }
    assert!(fixture.calls.try_recv().is_err());
    let (decision, called) = fixture.decide(&of_three(1)).await;
    assert!(
        decision.granted && called,
        "as soon as it may pass, it does"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cheaper_request_is_not_denied_from_the_cache() {
    let mut fixture = Fixture::new();
    assert!(fixture.decide(&of_three(2)).await.0.granted);
    assert!(!fixture.decide(&of_three(2)).await.0.granted);
    assert!(decide_locally(&fixture.limiter, &of_three(3)).is_some());
    assert!(fixture.decide(&of_three(1)).await.0.granted);
}

#[tokio::test(start_paused = true)]
async fn a_cached_denial_of_one_limit_reveals_nothing_of_the_others() {
    let mut fixture = spent().await;
    let both = [
        charge("other", shape(5, SECOND, 5), 1),
        of_three(1)[0].clone(),
    ];
    let (decision, called) = fixture.decide(&both).await;
    assert!(!decision.granted && !called);
    let known: Vec<bool> = decision
        .levels
        .iter()
        .map(|level| decision.knows(level))
        .collect();
    assert_eq!(known, [false, true]);
    assert!(
        fixture.decide(&both[..1]).await.0.levels[0].remaining == 4,
        "the other was not charged"
    );
}

#[tokio::test(start_paused = true)]
async fn a_changed_limit_and_a_reset_clear_the_cached_denial() {
    let fixture = spent().await;
    assert!(decide_locally(&fixture.limiter, &[charge("k", shape(10, SECOND, 4), 1)]).is_none());
    fixture.limiter.forget(&Key::from("k"));
    assert!(decide_locally(&fixture.limiter, &of_three(1)).is_none());
}

#[tokio::test(start_paused = true)]
async fn only_the_limits_that_denied_are_cached() {
    for wide in [shape(10, SECOND, 50), shape(1_000, SECOND, 1_000).leased(1)] {
        let mut fixture = Fixture::new();
        let both = [charge("wide", wide, 1), of_three(1)[0].clone()];
        for _ in 0..4 {
            fixture.decide(&both).await;
        }
        assert!(decide_locally(&fixture.limiter, &of_three(1)).is_some());
        assert!(
            decide_locally(&fixture.limiter, &both[..1]).is_none_or(|decision| decision.granted)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_known_denial_of_an_exact_limit_spares_the_call_beside_a_leased_one() {
    let fixture = spent().await;
    let both = [
        charge("leased", shape(1_000, SECOND, 1_000).leased(1), 1),
        of_three(1)[0].clone(),
    ];
    let decision = decide_locally(&fixture.limiter, &both).unwrap();
    assert_eq!(
        (decision.granted, decision.decided_by),
        (false, DecidedBy::DenialCache)
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_known_to_lack_tokens_claims_no_permit() {
    let fixture = spent().await;
    let mut checks = checks(&of_three(1));
    let limit = ConcurrencyLimit::new(10, Scope::Fleet);
    let need = PermitNeed {
        key: Key::from("in flight"),
        limit,
        cost: 1,
    };
    checks.permits.push(PermitCheck {
        need,
        largest_cost: 1,
        on_outage: OnOutage::Local,
    });
    let decision = fixture.limiter.decide(&checks).done().unwrap();
    assert_eq!(
        (decision.granted, decision.decided_by),
        (false, DecidedBy::DenialCache)
    );
}
