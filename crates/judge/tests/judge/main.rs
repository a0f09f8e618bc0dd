//! The judge of the promise: it lets pass what keeps it, and finds what does not.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that lacks what it needs fails"
)]

mod cluster;
mod leaky;
mod requests_in_flight;
mod windows;

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leaky::{Miser, OwnClock};
use tollgate_judge as torture;
use tollgate_judge::plan::{Counting, LoadPattern};
use tollgate_judge::report::RunReport;
use tollgate_judge::{Backing, Case, RunPlan, Scenario, TestedLimit};
use tollgate_limiter::clock;
use tollgate_limiter::limit::algorithm::Rate;
use tollgate_limiter::limit::definition::Consistency;
use tollgate_limiter::store::Store;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_testing::PATIENCE;
use tollgate_testing::redis::RedisServer;

fn plan(nodes: u32, millis: u64) -> RunPlan {
    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }
    let few = |number| NonZeroU32::new(number).unwrap();
    RunPlan {
        limit: TestedLimit {
            rate: Rate {
                tokens: nonzero(500),
                period_us: nonzero(1_000_000),
            },
            burst: nonzero(50),
        },
        counting: Counting::TokenBucket,
        pattern: LoadPattern::Paced,
        consistency: Consistency::Exact,
        cost: nonzero(1),
        keys: few(1),
        demand: 3.0,
        duration: Duration::from_millis(millis),
        nodes: few(nodes),
        workers: few(1),
        clients: few(8),
        seed: 7,
    }
}

fn run(plan: &RunPlan, scenario: Scenario, backing: &Backing) -> RunReport {
    torture::run_nodes(&Case::only(scenario, plan), backing, &mut |_| {}).unwrap()
}

fn custom<S: Store>(make: impl Fn(u32) -> S + Send + Sync + 'static) -> Backing {
    Backing::Custom(Arc::new(move |node| Arc::new(make(node))))
}

/// Runs that share the machine make each other's calls late, which nodes take for outages: those
/// over a real Redis run one after another.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const BOTH: [Consistency; 2] = [Consistency::Exact, Consistency::Leased];

fn by(outcome: &RunReport, who: &str) -> u64 {
    outcome.answers.get(who).copied().unwrap_or_default()
}

/// No more was admitted than promised. A busy machine sends too little for what is due: what a
/// limiter wastes is judged where time is paused.
#[track_caller]
fn assert_kept(outcome: &RunReport) {
    assert!(
        outcome.over_terms == 0 && outcome.admitted > 0,
        "{outcome:#?}"
    );
}

/// The first report of runs that says that more was admitted than promised. A machine that is held
/// up sends too little in some.
fn over(run: impl Fn() -> RunReport) -> RunReport {
    found(run, |report| {
        report.over_terms > 0 && report.verdict().starts_with("OVER")
    })
}

/// Runs until a report says that less was admitted than is due.
fn short(run: impl Fn() -> RunReport) {
    found(run, |report| report.verdict() == "SHORT");
}

/// The first report of runs in which nodes decided with the store and without it. All are kept. On
/// a busy machine, a fault may fall into a time without calls.
fn with_faults(run: impl Fn() -> RunReport) -> RunReport {
    let run = || {
        let report = run();
        assert_kept(&report);
        report
    };
    found(run, |report| {
        by(report, "local") > 0 && by(report, "redis") > 0
    })
}

/// The first report of runs for which `is_it` holds.
fn found(run: impl Fn() -> RunReport, is_it: impl Fn(&RunReport) -> bool) -> RunReport {
    let started = clock::now();
    loop {
        let report = run();
        if is_it(&report) {
            return report;
        }
        assert!(started.elapsed() < PATIENCE, "{report:#?}");
    }
}

#[test]
fn one_node_keeps_its_promise_from_its_own_memory() {
    let plan = RunPlan {
        workers: NonZeroU32::new(2).unwrap(),
        ..plan(1, 800)
    };
    for scenario in [Scenario::Steady, Scenario::HotKey] {
        let outcome = run(&plan, scenario, &Backing::Memory);
        assert_kept(&outcome);
        assert_eq!(
            (outcome.store_calls, outcome.answers["local"]),
            (Some(0), outcome.requests)
        );
    }
}

#[test]
fn nodes_that_share_redis_keep_the_promise_together() {
    let _turn = turn();
    let server = RedisServer::start();
    for consistency in BOTH {
        for scenario in [
            Scenario::Steady,
            Scenario::HotKey,
            Scenario::Reorder,
            Scenario::Skew,
        ] {
            let mut spec = server.spec();
            spec.key_prefix = format!("{}-{consistency:?}", scenario.name()).into();
            let outcome = run(
                &RunPlan {
                    consistency,
                    ..plan(3, 600)
                },
                scenario,
                &Backing::Redis(spec),
            );
            assert_kept(&outcome);
            assert!(outcome.store_calls > Some(0), "{outcome:#?}");
            // Where calls take too long for it, nothing is taken ahead.
            assert!(
                by(&outcome, "lease") == 0 || consistency == Consistency::Leased,
                "{outcome:#?}"
            );
        }
    }
}

#[test]
fn a_node_that_crashes_with_calls_in_flight_frees_no_tokens() {
    let _turn = turn();
    let server = RedisServer::start();
    assert_kept(&run(
        &plan(2, 1_500),
        Scenario::Crash,
        &Backing::Redis(server.spec()),
    ));
}

#[test]
fn a_node_that_crashes_with_tokens_taken_ahead_frees_none_of_them() {
    let _turn = turn();
    let server = RedisServer::start();
    let plan = RunPlan {
        consistency: Consistency::Leased,
        ..plan(2, 3_500)
    };
    let backing = Backing::Redis(server.spec());
    let crash = || {
        let outcome = run(&plan, Scenario::Crash, &backing);
        assert_kept(&outcome);
        assert_eq!(outcome.over, 0, "{outcome:#?}");
        outcome
    };
    // On a busy machine calls may take too long for tokens to be taken ahead.
    found(crash, |outcome| by(outcome, "lease") > 0);
}

/// A busy machine may make live nodes silent: what the others deny meanwhile is judged by made-up
/// answers.
#[test]
fn a_node_that_crashes_alone_frees_no_tokens_of_fresh_keys() {
    let _turn = turn();
    let server = RedisServer::start();
    let mut spec = server.spec();
    spec.timeout = Duration::from_secs(5);
    let cases = Case::variants(Scenario::Crash, &plan(4, 1_000));
    let lone = cases.last().unwrap();
    let outcome = torture::run_nodes(lone, &Backing::Redis(spec), &mut |_| {}).unwrap();
    assert_kept(&outcome);
    assert!(
        outcome.scenario == "crash (lone, small bursts)" && outcome.requirements[0].is_met(),
        "{outcome:#?}"
    );
}

#[test]
fn a_limit_that_changes_on_one_node_after_the_other_keeps_to_the_larger_version() {
    let _turn = turn();
    let server = RedisServer::start();
    let outcome = run(
        &plan(2, 3_300),
        Scenario::Reload,
        &Backing::Redis(server.spec()),
    );
    assert_kept(&outcome);
    assert_eq!(outcome.over, 0, "{outcome:#?}");
}

#[test]
fn an_outage_admits_no_more_than_one_burst_over() {
    let _turn = turn();
    // Much less flows in until all nodes notice the end of an outage than a burst.
    let slow = TestedLimit {
        rate: Rate {
            tokens: NonZeroU64::new(50).unwrap(),
            ..plan(2, 3_000).limit.rate
        },
        ..plan(2, 3_000).limit
    };
    let server = RedisServer::start();
    for consistency in BOTH {
        let mut spec = server.spec();
        spec.key_prefix = format!("{consistency:?}").into();
        spec.timeout = Duration::from_millis(500);
        spec.expected_nodes = 2;
        let plan = RunPlan {
            consistency,
            limit: slow,
            ..plan(2, 3_000)
        };
        let backing = Backing::Redis(spec);
        let outcome = with_faults(|| run(&plan, Scenario::Flap, &backing));
        assert!(outcome.store_calls_failed > Some(0), "{outcome:#?}");
    }
}

/// Of two nodes, one is cut off for seven seconds of ten. It goes on with its half, which the other
/// holds back.
#[test]
fn a_node_cut_off_admits_no_more_over_than_until_the_other_notices() {
    let _turn = turn();
    let server = RedisServer::start();
    let spec = RedisSpec {
        expected_nodes: 2,
        timeout: Duration::from_secs(1),
        ..server.spec()
    };
    let backing = Backing::Redis(spec);
    with_faults(|| run(&plan(2, 9_500), Scenario::Partition, &backing));
}

#[test]
fn a_store_that_refills_by_its_callers_clocks_is_found_out() {
    let bucket = OwnClock::default();
    let backing = custom(move |node| bucket.of_node(node));
    let outcome = over(|| run(&plan(2, 600), Scenario::Steady, &backing));
    let worst = outcome.worst.unwrap();
    assert_eq!(worst.admitted - worst.allowed, outcome.over);
}

#[test]
fn the_same_store_with_clocks_that_agree_is_not_accused() {
    let bucket = OwnClock::default();
    assert_kept(&run(
        &plan(1, 600),
        Scenario::Steady,
        &custom(move |_| bucket.of_node(0)),
    ));
}

#[test]
fn a_store_that_withholds_tokens_is_found_out() {
    let miser = Miser::default();
    let backing = custom(move |_| miser.clone());
    short(|| run(&plan(1, 600), Scenario::Steady, &backing));
}

#[test]
fn each_of_many_keys_is_judged_by_itself() {
    let plan = RunPlan {
        keys: NonZeroU32::new(2_000).unwrap(),
        ..plan(1, 600)
    };
    let outcome = run(&plan, Scenario::ManyKeys, &Backing::Memory);
    assert_kept(&outcome);
    // One bucket would admit 350.
    assert!(outcome.admitted > 350, "{outcome:#?}");
}

/// A run of each variant of a scenario.
fn variants(plan: &RunPlan, scenario: Scenario, backing: &Backing) -> Vec<RunReport> {
    Case::variants(scenario, plan)
        .iter()
        .map(|case| torture::run_nodes(case, backing, &mut |_| {}).unwrap())
        .collect()
}
