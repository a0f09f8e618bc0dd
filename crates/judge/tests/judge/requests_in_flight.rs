//! Limits of requests in flight, and queues: those that all nodes share are kept, others are found
//! out.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use tollgate_judge::plan::Counting;
use tollgate_judge::{Backing, Case, RunPlan, Scenario, TestedLimit};
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_testing::redis::RedisServer;

use crate::leaky::Miser;
use crate::{assert_kept, custom, over, plan, short, variants};

fn small(nodes: u32, millis: u64) -> RunPlan {
    let plan = plan(nodes, millis);
    RunPlan {
        limit: TestedLimit {
            burst: NonZeroU64::new(20).unwrap(),
            ..plan.limit
        },
        ..plan
    }
}

#[test]
fn bursts_on_nodes_that_share_a_limit_are_kept_and_those_with_a_limit_each_are_found_out() {
    let shared = Arc::new(MemoryStore::new(10));
    let shared = Backing::Custom(Arc::new(move |_| shared.clone()));
    for report in variants(&small(2, 1_700), Scenario::ColdConcurrency, &shared) {
        assert!(report.over == 0 && report.admitted > 0, "{report:#?}");
    }
    let own = custom(|_| MemoryStore::new(10));
    for case in Case::variants(Scenario::ColdConcurrency, &small(2, 1_700)) {
        let report = over(|| tollgate_judge::run_nodes(&case, &own, &mut |_| {}).unwrap());
        assert!(report.worst.is_some_and(|worst| worst.allowed == 20));
    }
}

#[test]
fn bursts_hold_to_a_limit_in_redis() {
    let server = RedisServer::start();
    let spec = RedisSpec {
        timeout: Duration::from_secs(1),
        expected_nodes: 2,
        ..server.spec()
    };
    for report in variants(
        &small(2, 1_700),
        Scenario::ColdConcurrency,
        &Backing::Redis(spec),
    ) {
        assert!(report.over == 0 && report.admitted > 0, "{report:#?}");
    }
}

#[test]
fn queues_keep_both_kinds_of_limits_at_work() {
    let server = RedisServer::start();
    let spec = RedisSpec {
        timeout: Duration::from_secs(1),
        expected_nodes: 2,
        ..server.spec()
    };
    for report in variants(&plan(2, 2_000), Scenario::Queue, &Backing::Redis(spec)) {
        assert!(report.over == 0 && report.admitted > 0, "{report:#?}");
    }
}

#[test]
fn a_queue_that_loses_tokens_is_found_out() {
    let miser = Miser::default();
    let plan = RunPlan {
        clients: NonZeroU32::new(32).unwrap(),
        ..plan(1, 1_500)
    };
    let backing = custom(move |_| miser.clone());
    short(|| variants_of(&plan, Counting::TokenBucket, &backing));
}

#[test]
fn a_queue_for_more_than_the_limit_in_flight_is_found_out() {
    let own = custom(|_| MemoryStore::new(10));
    over(|| variants_of(&plan(2, 1_000), Counting::InFlight, &own));
    let shared = Arc::new(MemoryStore::new(10));
    let shared = Backing::Custom(Arc::new(move |_| shared.clone()));
    let kept = variants_of(&plan(2, 1_000), Counting::InFlight, &shared);
    assert!(kept.over == 0 && kept.admitted > 0, "{kept:#?}");
}

/// The queue of such a limit, without a distance to the store.
fn variants_of(
    plan: &RunPlan,
    counting: Counting,
    backing: &Backing,
) -> tollgate_judge::report::RunReport {
    let cases = Case::variants(Scenario::Queue, plan);
    let case = cases
        .into_iter()
        .find(|case| case.plan.counting == counting)
        .unwrap();
    tollgate_judge::run_nodes(&case, backing, &mut |_| {}).unwrap()
}

#[test]
fn a_queue_that_all_nodes_share_is_kept() {
    let shared = Arc::new(MemoryStore::new(10));
    let plan = RunPlan {
        clients: NonZeroU32::new(32).unwrap(),
        ..plan(1, 1_500)
    };
    assert_kept(&variants_of(
        &plan,
        Counting::TokenBucket,
        &Backing::Custom(Arc::new(move |_| shared.clone())),
    ));
}
