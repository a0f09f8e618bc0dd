//! Runs a case over nodes of this process and judges it.

use std::sync::Arc;

use tollgate_limiter::clock;

use crate::case::Case;
use crate::drive::load::OfferedLoad;
use crate::drive::node::Backing;
use crate::drive::progress::{self, Progress};
use crate::drive::redis_commands::{RedisCommands, servers_of};
use crate::error::Error;
use crate::faults::fleet::{FaultyFleet, FleetResult};
use crate::judge::in_flight;
use crate::judge::server_clock::ServerClock;
use crate::plan::{Counting, LoadPattern};
use crate::report::{RunReport, RunTerms};

/// Runs a case over nodes of this process and judges it. Takes the plan's duration, and a little to start and end.
///
/// # Errors
/// When it could not be run. A broken promise is no error: the report says so.
pub fn run_nodes(case: &Case, backing: &Backing, report: &mut dyn FnMut(Progress)) -> Result<RunReport, Error> {
    let plan = &case.plan;
    let store_clock = store_clock(case, backing)?;
    let load = Arc::new(OfferedLoad::new(plan, case.scenario, plan.clients_in_all(), &plan.bound(store_clock)));
    let mut fleet = FaultyFleet::start(plan, case.faults, backing, &load)?;
    let calls_before = fleet.calls();
    let begun_us = clock::monotonic_micros();
    fleet.go(begun_us);
    progress::wait(plan.duration, &load, report, &mut |now_us| fleet.step(now_us))?;
    let ended_us = clock::monotonic_micros();
    let FleetResult { mut observations, calls, concessions } = fleet.stop(ended_us)?;
    if let (Counting::InFlight, LoadPattern::Queued { .. }) = (plan.counting, plan.pattern) {
        // All permits are in use all the time, where requests wait for them.
        let used = in_flight::use_of_permits(&observations.held, plan.burst(), (begun_us, ended_us));
        observations.expected = (observations.held.len() as f64 / used.max(f64::EPSILON)) as u64;
    }
    let calls = (calls.0 - calls_before.0, calls.1 - calls_before.1);
    let bound = plan.bound(store_clock.or(self::store_clock(case, backing)?));
    let terms = RunTerms { bound, concessions, ..RunTerms::of(case) };
    Ok(RunReport::new(&terms, &observations).with_calls(calls))
}

/// The store's clock, where windows begin by it: that of Redis, or of this machine without one.
fn store_clock(case: &Case, backing: &Backing) -> Result<ServerClock, Error> {
    match backing {
        _ if case.plan.counting != Counting::FixedWindow => Ok(ServerClock::default()),
        Backing::Redis(spec) => {
            let (servers, login) = servers_of(&spec.url).ok_or(Error::NoProxy)?;
            RedisCommands::connect(servers.first().ok_or(Error::NoRedis)?, &login)?.clock()
        }
        Backing::Memory | Backing::Custom(_) => {
            let asked_us = clock::monotonic_micros();
            let told_us = clock::unix_micros();
            Ok(ServerClock::told(told_us, (asked_us, clock::monotonic_micros() + 1)))
        }
    }
}
