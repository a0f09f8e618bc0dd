//! Runs one scenario over nodes of this process and judges it.

use std::sync::Arc;

use tollgate_limiter::clock;

use crate::drive::load::OfferedLoad;
use crate::drive::node::Backing;
use crate::drive::progress::{self, Progress};
use crate::error::Error;
use crate::faults::fleet::{FaultyFleet, FleetResult};
use crate::plan::RunPlan;
use crate::report::RunReport;
use crate::scenario::Scenario;

/// Runs one scenario over nodes of this process and judges it. Takes the plan's duration, and a little to start and end.
///
/// # Errors
/// When it could not be run. A broken promise is no error: the report says so.
pub fn run_nodes(
    plan: &RunPlan,
    scenario: Scenario,
    backing: &Backing,
    report: &mut dyn FnMut(Progress),
) -> Result<RunReport, Error> {
    let plan = &scenario.adapt(plan);
    let clients = plan.nodes.get().saturating_mul(plan.workers.get()).saturating_mul(plan.clients.get());
    let load = Arc::new(OfferedLoad::new(plan, scenario, clients));
    let mut fleet = FaultyFleet::start(plan, scenario, backing, &load)?;
    let calls_before = fleet.calls();
    fleet.go(clock::monotonic_micros());
    progress::wait(plan.duration, &load, report, &mut |now_us| fleet.step(now_us))?;
    let FleetResult { observations, calls, concessions } = fleet.stop(clock::monotonic_micros())?;
    let calls = (calls.0 - calls_before.0, calls.1 - calls_before.1);
    let least_percent = scenario.least_percent();
    Ok(RunReport::new(scenario.name(), &plan.limit, &observations, &concessions, least_percent).with_calls(calls))
}
