//! `tollgate run`: starts the gateway.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::app;
use tollgate_config::Mistakes;
use tollgate_gateway::observe::logging::{self, LogFormat};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate run --config routes.yaml
  tollgate run -c /etc/tollgate/routes.yaml --log-format json
  tollgate run --config routes.yaml --take-over
  tollgate run --log info,tollgate_proxy=debug")]
pub struct RunArgs {
    /// The configuration file.
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "routes.yaml",
        env = "TOLLGATE_CONFIG"
    )]
    config: PathBuf,
    /// Take over from the gateway that runs: serve on its sockets, and then let it drain. The file
    /// says where it is found (`handover`). Without one that runs, start as usual.
    #[arg(long)]
    take_over: bool,
    /// Messages to log: error, warn, info, debug or trace, also by module. Without it RUST_LOG
    /// counts, then info.
    #[arg(long, value_name = "FILTER", env = "TOLLGATE_LOG")]
    log: Option<String>,
    /// How to write the log, which goes to standard error.
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        env = "TOLLGATE_LOG_FORMAT"
    )]
    log_format: LogFormat,
}

/// Runs the gateway until a signal ends it.
///
/// # Errors
/// When it cannot start or go on. With `--log-format json` the failure goes to the log instead,
/// where machines read it.
pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    // Dropped before the caller writes to standard error itself.
    let _end = logging::install(args.log_format, args.log.as_deref())?;
    app::run(&args.config, args.take_over).or_else(|error| {
        match (args.log_format, error.downcast_ref::<Mistakes>()) {
            (LogFormat::Text, _) => return Err(error),
            (LogFormat::Json, Some(mistakes)) => mistakes.log(),
            (LogFormat::Json, None) => tracing::error!("{error:#}"),
        }
        Ok(ExitCode::FAILURE)
    })
}
