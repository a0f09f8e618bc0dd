//! The program's own log, on standard error, written in the `background`. Panics are logged, too. A
//! `line_budget` bounds the lines that others cause.

pub mod background;
pub mod line_budget;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal};
use std::panic::{self, PanicHookInfo};

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::background::{BackgroundLog, LogEnd};
use self::line_budget::LineBudget;

/// The format of the program's own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// A JSON object per line.
    Json,
}

/// The default filter.
const DEFAULT_FILTER: &str = "info";

/// The beginning of every filter, which may override it. The Redis client logs each connection in
/// its own words, and the gateway logs what an operator needs of that. The codecs of HTTP/2, TLS
/// and DNS warn of input that any peer can send as fast as it likes.
const QUIET: &str =
    "fred=off,h2=error,rustls=error,hickory_net=error,hickory_proto=error,hickory_resolver=error";

/// Starts the program's own log. `filter` is a level or a list such as
/// `info,tollgate_proxy=debug`; without it the environment variable `RUST_LOG` counts, then
/// `info`. Nothing is written before the [writer is started](background::start_writer); the drop of
/// the result writes the remaining lines.
///
/// # Errors
/// `filter` does not say what to log, or there is a log already.
pub fn install(format: LogFormat, filter: Option<&str>) -> anyhow::Result<LogEnd> {
    let rust_log = std::env::var("RUST_LOG").ok();
    let (filter, ignored) = choose_filter(filter, rust_log.as_deref())?;
    let log = BackgroundLog::global().clone();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(log);
    let budget = LineBudget::global();
    let installed = match format {
        LogFormat::Text => builder.with_target(false).finish().with(budget).try_init(),
        LogFormat::Json => {
            let lines = builder.json().flatten_event(true).finish();
            lines.with(budget).try_init()
        }
    };
    installed.map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))?;
    panic::set_hook(Box::new(log_panic));
    if let Some(rust_log) = ignored {
        tracing::warn!("RUST_LOG is ignored: {rust_log:?} does not say what to log");
    }
    Ok(LogEnd::new())
}

/// The filter to use, and a `RUST_LOG` that was ignored because it is invalid. `RUST_LOG` is for
/// any program, so a mistake in it keeps no gateway from starting. Empty counts as absent.
fn choose_filter<'a>(
    option: Option<&str>,
    rust_log: Option<&'a str>,
) -> anyhow::Result<(EnvFilter, Option<&'a str>)> {
    if let Some(option) = option
        && !option.is_empty()
    {
        let filter =
            filter(option).with_context(|| format!("{option:?} does not say what to log"))?;
        return Ok((filter, None));
    }
    let Some(rust_log) = rust_log.filter(|text| !text.is_empty()) else {
        return Ok((filter(DEFAULT_FILTER)?, None));
    };
    match filter(rust_log) {
        Ok(filter) => Ok((filter, None)),
        Err(_) => Ok((filter(DEFAULT_FILTER)?, Some(rust_log))),
    }
}

fn filter(text: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::try_new(format!("{QUIET},{text}"))
}

/// Logs a panic in the log's format, with a backtrace where `RUST_BACKTRACE` asks for one.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured)
        .then(|| tracing::field::display(backtrace));
    let place = panic.location().map(tracing::field::display);
    let payload = panic.payload();
    let text = if let Some(text) = payload.downcast_ref::<&str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.as_str()
    } else {
        "without a message"
    };
    tracing::error!(place, backtrace, "panic: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_wins_over_rust_log_and_that_over_the_default() {
        let chosen = |option, rust_log| {
            let (filter, ignored) = choose_filter(option, rust_log).unwrap();
            (filter.to_string(), ignored)
        };
        assert_eq!(
            chosen(Some("warn"), Some("debug")),
            (
                "hickory_resolver=error,hickory_proto=error,hickory_net=error,rustls=error,fred=off,h2=error,warn"
                    .to_owned(),
                None
            )
        );
        assert_eq!(
            chosen(None, Some("debug")),
            (
                "hickory_resolver=error,hickory_proto=error,hickory_net=error,rustls=error,fred=off,h2=error,debug"
                    .to_owned(),
                None
            )
        );
        assert_eq!(
            chosen(Some(""), Some("")),
            (
                "hickory_resolver=error,hickory_proto=error,hickory_net=error,rustls=error,fred=off,h2=error,info"
                    .to_owned(),
                None
            )
        );
        assert_eq!(
            chosen(None, None),
            (
                "hickory_resolver=error,hickory_proto=error,hickory_net=error,rustls=error,fred=off,h2=error,info"
                    .to_owned(),
                None
            )
        );
        assert_eq!(
            chosen(None, Some("a=b=c")),
            (
                "hickory_resolver=error,hickory_proto=error,hickory_net=error,rustls=error,fred=off,h2=error,info"
                    .to_owned(),
                Some("a=b=c")
            )
        );
        assert!(choose_filter(Some("a=b=c"), Some("info")).is_err());
    }

    #[test]
    fn the_log_of_the_redis_client_can_be_switched_on() {
        let (filter, _) = choose_filter(Some("info,fred=debug"), None).unwrap();
        assert_eq!(
            filter.to_string(),
            "hickory_resolver=error,hickory_proto=error,hickory_net=error,rustls=error,fred=debug,h2=error,info"
        );
    }
}
