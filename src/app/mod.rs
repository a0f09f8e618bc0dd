//! From a configuration to a running gateway, through its reloads, to its end. Knows every other
//! room.
//!
//! `start` goes from a file to running threads. `assemble` turns a configuration into a
//! [`Gateway`]; `kept_routes` has the routes that go on with the next one. `workers` are the data
//! plane, and `control` is the control plane: `signals` and changed files lead to a `reload`, and
//! the `exporter` renders the metrics. `shared` is the state that both planes use. `optional`
//! has the parts for people, which a build may lack. `listeners` opens sockets, and `restart` has
//! the sockets that another process opened.

mod assemble;
mod control;
mod descriptors;
mod exporter;
pub mod files;
mod kept_routes;
mod listeners;
mod node_report;
mod optional;
mod reload;
mod restart;
mod shared;
mod signals;
mod start;
#[cfg(test)]
mod tests;
mod workers;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use files::maintenance::MaintenanceFiles;
use restart::systemd;
use signals::Signals;
use start::{FirstConfig, OpenSockets};
use tollgate_limiter::limit::algorithm::QuotaError;

use tollgate_config::Config;
use tollgate_gateway::Gateway;
use tollgate_gateway::observe::logging::background;
use tollgate_gateway::observe::metrics;

/// Runs the gateway on the file at `path` until a signal ends it or another process takes over.
/// With `take_over`, takes over from the process that runs, if one does.
///
/// # Errors
/// When the file has mistakes, an address can't be bound, or a thread can't be started.
pub fn run(path: &Path, take_over: bool) -> anyhow::Result<ExitCode> {
    // Before there is another thread: this changes the environment.
    let systemd = systemd::inherited_sockets();
    background::start_writer().context("cannot start the log")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let signals = {
        let _inside = runtime.enter();
        Signals::install().context("cannot listen to signals")?
    };
    let first = FirstConfig::read(path, &runtime)?;
    let metrics = metrics::install().context("cannot start the metrics")?;
    let reloader = first.reloader(path)?;
    // Late: everything that is likely to fail has been done.
    let sockets = OpenSockets::open(&reloader, systemd, take_over)?;
    let control = sockets.start(reloader, signals, metrics)?;
    let ended = runtime.block_on(control.run());
    // A thread of the runtime may still wait for workers that drain, and the operator may have said
    // not to wait for them.
    runtime.shutdown_background();
    ended
}

/// The gateway that `config` describes, without anything that runs: to ask what it would do.
///
/// # Errors
/// When a limit's rate or burst is out of bounds, which those of a checked configuration are not.
pub fn for_explaining(config: &Config) -> Result<Gateway, QuotaError> {
    let gateway = assemble::gateway(config, None, None)?;
    // Each route is under maintenance as its file has it now.
    drop(MaintenanceFiles::new(&gateway));
    Ok(gateway)
}
