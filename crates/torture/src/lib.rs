//! `tollgate torture`: the promise as a tool. Drives a fleet, or whatever gateways there are, against a limit, and judges
//! what was admitted by the bound that the limit is.
//!
//! Guarantees that the verdict comes from outside: from when requests were asked and answered, and not from what the
//! limiter says of itself. Refuses to know how the limiter works, but for how a node is put together (`node`).

mod address;
mod arguments;
pub mod command;
mod drive;
mod due;
mod faults;
pub mod judge;
mod link;
mod meters;
mod node;
mod plan;
pub mod report;
mod spawned;
mod tally;
mod target;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_limiter::algorithm::token_bucket::TokenBucketError;
use tollgate_limiter::clock;
use tollgate_limiter::store::redis::ConnectError;

pub use crate::arguments::Arguments;
use crate::drive::Demand;
use crate::faults::{Curtain, Stage};
pub use crate::node::Backing;
pub use crate::plan::{Limit, Plan, Scenario};
use crate::report::Outcome;
pub use crate::spawned::spawned;
pub use crate::target::{Targets, target};

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Plan(&'static str),
    #[error("the limit cannot be one: {0}")]
    Limit(#[from] TokenBucketError),
    #[error("{0}")]
    Store(#[from] ConnectError),
    #[error("no Redis decides at the address given")]
    Away,
    #[error(
        "skew, reorder and flap stand between the nodes and Redis, which they can for redis://host:port only: leave them out, \
         or name one server without TLS"
    )]
    NoLink,
    #[error("a target is http://host:port/path: {0:?} is not")]
    Target(String),
    #[error("no target answers at {0}")]
    NoTarget(String),
    #[error("a gateway does not start: {0}")]
    Gateway(String),
    #[error("cannot go on: {0}")]
    Io(#[from] std::io::Error),
    #[error("a thread panicked")]
    Panicked,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub passed: Duration,
    pub of: Duration,
    pub asked: u64,
}

/// Between two looks at what is due.
const STEP: Duration = Duration::from_millis(5);

/// Runs one scenario over nodes of this process and judges it. Takes the plan's duration, and a little to start and end.
///
/// # Errors
/// When it could not be run; a broken promise is an outcome.
pub fn run(
    plan: &Plan,
    scenario: Scenario,
    backing: &Backing,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, Error> {
    let plan = &scenario.adapt(plan);
    let clients = plan.nodes.get().saturating_mul(plan.workers.get()).saturating_mul(plan.clients.get());
    let demand = Arc::new(Demand::new(plan, scenario, clients));
    let mut stage = Stage::set(plan, scenario, backing, &demand)?;
    let calls_before = stage.calls();
    let begun = clock::monotonic_micros();
    stage.open(begun);
    wait(plan.duration, &demand, progress, &mut |now_us| stage.step(now_us))?;
    let Curtain { tally, calls, concessions } = stage.close(clock::monotonic_micros())?;
    let calls = (calls.0 - calls_before.0, calls.1 - calls_before.1);
    Ok(Outcome::of(scenario.name(), &plan.limit, &tally, &concessions, scenario.owes()).with_calls(calls))
}

/// Waits for `duration`, does what is due meanwhile, and tells how far it is.
fn wait(
    duration: Duration,
    demand: &Demand,
    progress: &mut dyn FnMut(Progress),
    step: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let begun = clock::now();
    loop {
        let passed = clock::now().saturating_duration_since(begun).min(duration);
        progress(Progress { passed, of: duration, asked: demand.asked.load(Ordering::Relaxed) });
        if passed == duration {
            return Ok(());
        }
        step(clock::monotonic_micros())?;
        std::thread::sleep(STEP.min(duration - passed));
    }
}
