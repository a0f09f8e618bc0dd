//! Fixed and sliding windows: those that all nodes share are kept, others are found out.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tollgate_judge::plan::Counting;
use tollgate_judge::{self as torture, Backing, Case, RunPlan, Scenario, TestedLimit};
use tollgate_limiter::limit::algorithm::Rate;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_testing::redis::RedisServer;

use crate::leaky::Miser;
use crate::{assert_kept, by, custom, found, over, plan, short};

/// Windows, with no fault.
fn window(counting: Counting, plan: &RunPlan) -> Case {
    let limit = TestedLimit {
        rate: Rate {
            period_us: NonZeroU64::new(250_000).unwrap(),
            ..plan.limit.rate
        },
        ..plan.limit
    };
    let plan = RunPlan {
        counting,
        limit,
        ..plan.clone()
    };
    Case {
        faults: Scenario::Steady,
        ..Case::only(Scenario::Windows, &plan)
    }
}

const WINDOWS: [Counting; 2] = [Counting::FixedWindow, Counting::SlidingWindow];

#[test]
fn windows_that_all_nodes_share_are_kept_and_windows_of_each_node_are_found_out() {
    for counting in WINDOWS {
        let case = window(counting, &plan(2, 1_000));
        let shared = Arc::new(MemoryStore::new(10));
        let kept = torture::run_nodes(
            &case,
            &Backing::Custom(Arc::new(move |_| shared.clone())),
            &mut |_| {},
        )
        .unwrap();
        assert_kept(&kept);
        let backing = custom(|_| MemoryStore::new(10));
        let own = over(|| torture::run_nodes(&case, &backing, &mut |_| {}).unwrap());
        let worst = own.worst.unwrap();
        assert_eq!(worst.admitted - worst.allowed, own.over);
    }
}

#[test]
fn windows_that_withhold_tokens_are_found_out() {
    for counting in WINDOWS {
        let miser = Miser::default();
        let case = window(counting, &plan(1, 1_000));
        let backing = custom(move |_| miser.clone());
        short(|| torture::run_nodes(&case, &backing, &mut |_| {}).unwrap());
    }
}

#[test]
fn windows_in_redis_hold_under_skew_and_flapping() {
    let server = RedisServer::start();
    let spec = RedisSpec {
        expected_nodes: 2,
        timeout: Duration::from_millis(500),
        ..server.spec()
    };
    // The quota lasts for most of its window: an outage that fell in the rest, where denials are
    // known, would meet no call.
    let plan = RunPlan {
        demand: 1.5,
        ..plan(2, 2_500)
    };
    let backing = Backing::Redis(spec);
    for case in Case::variants(Scenario::Windows, &plan) {
        let run = || {
            let report = torture::run_nodes(&case, &backing, &mut |_| {}).unwrap();
            assert_kept(&report);
            report
        };
        found(run, |report| by(report, "local") > 0 || !report.fails_calls);
    }
}
