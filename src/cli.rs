//! The command line: what can be asked, and the words that teach it.

pub mod ask;
pub mod bucket;
pub mod explain;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::telemetry::LogFormat;

/// An HTTP gateway whose rate limit is a promise.
///
/// Tollgate forwards HTTP requests to upstreams and holds each route to its limits: for every key and every window of
/// t seconds, it admits at most burst + rate x t, across the whole fleet, with Redis as the shared memory, and each
/// node its share of that while Redis is away.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "\
First steps:
  tollgate check routes.yaml            say what is wrong with a file, all of it at once
  tollgate run --config routes.yaml     start the gateway
  curl -i localhost:8080/               send a request through it
  curl localhost:9901/metrics           see what it counted
  tollgate explain http://localhost/    say what becomes of a request, and why
  tollgate bucket peek per-client --client-ip 127.0.0.1
                                        say how much is left

A change of the file is taken over while running, as is a SIGHUP; a file with mistakes changes nothing.
SIGTERM stops taking connections and lets requests in flight end.")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the gateway.
    Run(Run),
    /// Say what is wrong with a configuration file, all of it at once.
    ///
    /// Prints each mistake with file, line, column, YAML path and a hint. Exit code 0: the file is fine; 1: it is not.
    Check {
        /// The file to check.
        #[arg(value_name = "FILE", default_value = "routes.yaml")]
        file: PathBuf,
    },
    Explain(explain::Explain),
    Bucket(bucket::Bucket),
    /// Print the JSON Schema of the configuration file, for editors.
    Schema,
    /// Hold a limit to its promise: drive a fleet, or any gateways, flat out and judge every window of what they admit.
    ///
    /// Without --target, nodes are started in this process, and scenarios make their lives hard. With --target, gateways
    /// that run already are driven over HTTP, whatever they are: 2xx counts as admitted, 429 and 503 as denied.
    /// Exit code 0: the promise was kept; 1: it was broken; 2: there is no verdict.
    Torture(tollgate_torture::Arguments),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate run --config routes.yaml
  tollgate run -c /etc/tollgate/routes.yaml --log-format json
  tollgate run --log info,tollgate::proxy=debug")]
pub struct Run {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", default_value = "routes.yaml", env = "TOLLGATE_CONFIG")]
    pub config: PathBuf,
    /// What to log: error, warn, info, debug or trace, also by module.
    #[arg(long, value_name = "FILTER", default_value = "info", env = "TOLLGATE_LOG")]
    pub log: String,
    /// How to write the log, which goes to standard error.
    #[arg(long, value_name = "FORMAT", default_value = "text", env = "TOLLGATE_LOG_FORMAT")]
    pub log_format: LogFormat,
}

/// Seconds for people.
fn span(seconds: f64) -> String {
    match seconds {
        short if short < 1.0 => format!("{:.0} ms", (short * 1_000.0).ceil()),
        middle if middle < 120.0 => format!("{middle:.1} s"),
        long if long < 7_200.0 => format!("{:.0} min", long / 60.0),
        longer => format!("{:.1} h", longer / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_span_is_told_in_the_unit_that_fits() {
        for (seconds, told) in [(0.0004, "1 ms"), (1.25, "1.2 s"), (1_200.0, "20 min"), (90_000.0, "25.0 h")] {
            assert_eq!(span(seconds), told);
        }
    }
}
