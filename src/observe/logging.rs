//! The program's own log, on standard error. A panic is logged like everything else.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal};
use std::panic::{self, PanicHookInfo};

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// How the program's own log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts the program's own log. `filter` is a level or a list such as `info,tollgate::proxy=debug`.
pub fn install(format: LogFormat, filter: &str) -> anyhow::Result<()> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(filter).with_context(|| format!("{filter:?} does not say what to log"))?)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    let installed = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    installed.map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))?;
    panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// A panic is told where everything else is, in its format; with a backtrace where `RUST_BACKTRACE` asks for one.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| tracing::field::display(backtrace));
    let place = panic.location().map(tracing::field::display);
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    tracing::error!(place, backtrace, "panic: {}", text.unwrap_or("without a message"));
}
