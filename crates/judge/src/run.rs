//! Runs a case over nodes of this process and judges it.

use std::sync::Arc;

use tollgate_limiter::clock;

use crate::case::Case;
use crate::drive::load::{OfferedLoad, key_name};
use crate::drive::node::Backing;
use crate::drive::progress::{self, Progress};
use crate::drive::redis_commands::clock_of;
use crate::error::Error;
use crate::faults::cluster::PausedMaster;
use crate::faults::fleet::{FaultyFleet, FleetResult};
use crate::judge::in_flight;
use crate::judge::server_clock::ServerClock;
use crate::plan::{Counting, LoadPattern};
use crate::report::observations::{AnswerKind, Observations};
use crate::report::{Requirement, RunReport, RunTerms, first_requests};

/// The least of the keys that an outage spares which Redis decides on, in per cent, and how often a
/// node's breaker may open for each outage.
const LEAST_BY_REDIS: f64 = 99.0;
const OPENINGS: usize = 2;

/// Runs a case over nodes of this process and judges it. Takes the plan's duration, and a little to
/// start and end.
///
/// # Errors
/// When it could not be run. A broken promise is no error: the report says so.
pub fn run_nodes(
    case: &Case,
    backing: &Backing,
    report: &mut dyn FnMut(Progress),
) -> Result<RunReport, Error> {
    let plan = &case.plan;
    let store_clock = store_clock(case, backing)?;
    let mut load = OfferedLoad::new(
        plan,
        case.scenario,
        plan.clients_in_all(),
        &plan.bound(store_clock),
    );
    let paused = match backing {
        Backing::Redis(spec) if case.faults.needs_cluster() => {
            Some(PausedMaster::choose(spec, plan, key_name)?)
        }
        _ => None,
    };
    load.spared = paused.as_ref().map_or_else(Vec::new, PausedMaster::spared);
    let load = Arc::new(load);
    let mut fleet = FaultyFleet::start(plan, case.faults, backing, &load)?.pausing(paused);
    let calls_before = fleet.calls();
    let begun_us = clock::monotonic_micros();
    fleet.go(begun_us);
    progress::wait(plan.duration, &load, report, &mut |now_us| {
        fleet.step(now_us)
    })?;
    let ended_us = clock::monotonic_micros();
    let FleetResult {
        mut observations,
        calls,
        concessions,
        openings,
        crashed_us,
    } = fleet.stop(ended_us)?;
    if let (Counting::InFlight, LoadPattern::Queued { .. }) = (plan.counting, plan.pattern) {
        // All permits are in use all the time, where requests wait for them.
        let used = in_flight::use_of_permits(&observations.held, plan.burst(), begun_us, ended_us);
        observations.expected = (observations.held.len() as f64 / used.max(f64::EPSILON)) as u64;
    }
    let calls = (calls.0 - calls_before.0, calls.1 - calls_before.1);
    let store_clock = store_clock.or(self::store_clock(case, backing)?);
    let mut requirements = first_requests::requirements(&observations, crashed_us);
    if !load.spared.is_empty() {
        requirements = spared_requirements(&observations, openings.0, openings.1);
    }
    let spared = load.spared.clone();
    let terms = RunTerms {
        concessions,
        spared,
        requirements,
        ..RunTerms::new(case, store_clock)
    };
    Ok(RunReport::new(&terms, &observations).with_calls(calls.0, calls.1))
}

/// The demands of an outage that spares some keys: by the nodes' own word, since only they know who
/// decided.
fn spared_requirements(observed: &Observations, outages: usize, opened: u64) -> Vec<Requirement> {
    let all: u64 = observed.of_spared.values().sum();
    let local = observed
        .of_spared
        .get(&AnswerKind::Local)
        .copied()
        .unwrap_or_default();
    let by_redis = (all - local) as f64 * 100.0 / all.max(1) as f64;
    let name = "per cent of the other masters' keys decided by Redis".to_owned();
    let spared = Requirement {
        name,
        found: by_redis,
        least: LEAST_BY_REDIS,
        most: 100.0,
    };
    let name = "times that a breaker opened at most".to_owned();
    vec![
        spared,
        Requirement {
            name,
            found: opened as f64,
            least: 0.0,
            most: (OPENINGS * outages) as f64,
        },
    ]
}

/// The store's clock: that of Redis, or of this machine where windows begin by it.
fn store_clock(case: &Case, backing: &Backing) -> Result<ServerClock, Error> {
    let is_needed = case.plan.counting == Counting::FixedWindow;
    match backing {
        Backing::Redis(spec) => match clock_of(&spec.url)? {
            Some(clock) => Ok(clock),
            None if is_needed => Err(Error::NoProxy),
            None => Ok(ServerClock::default()),
        },
        _ if !is_needed => Ok(ServerClock::default()),
        Backing::Memory | Backing::Custom(_) => {
            let asked_us = clock::monotonic_micros();
            let server_us = clock::unix_micros();
            let answered_us = clock::monotonic_micros() + 1;
            Ok(ServerClock::new(server_us, asked_us, answered_us))
        }
    }
}
