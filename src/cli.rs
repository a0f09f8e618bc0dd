//! The command line: what can be asked, and the words that teach it.

pub mod ask;
pub mod bucket;
pub mod check;
pub mod explain;
pub mod health;

use std::io::Write as _;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use http::{HeaderName, Uri};

use crate::observe::logging::LogFormat;
use crate::rate_limit::algorithm::Rate;
use crate::rate_limit::policy::Consistency;
use crate::torture::Scenario;
use crate::units;

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
  tollgate explain localhost/hello      say what becomes of a request, and why
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
    Check(check::Check),
    Explain(explain::Explain),
    Bucket(bucket::Bucket),
    Health(health::Health),
    /// Print the JSON Schema of the configuration file, for editors.
    Schema,
    /// Hold a limit to its promise: drive a fleet, or any gateways, flat out and judge every window of what they admit.
    ///
    /// Without --target, nodes are started in this process, and scenarios make their lives hard. With --target, gateways
    /// that run already are driven over HTTP, whatever they are: 2xx counts as admitted, 429 and 503 as denied.
    /// Exit code 0: the promise was kept; 1: it was broken; 2: there is no verdict.
    Torture(Torture),
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
    /// What to log: error, warn, info, debug or trace, also by module. Without it RUST_LOG counts, then info.
    #[arg(long, value_name = "FILTER", env = "TOLLGATE_LOG")]
    pub log: Option<String>,
    /// How to write the log, which goes to standard error.
    #[arg(long, value_name = "FORMAT", default_value = "text", env = "TOLLGATE_LOG_FORMAT")]
    pub log_format: LogFormat,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate torture                                           one node, its own memory
  tollgate torture --redis redis://127.0.0.1:6379 --scenario all
  tollgate torture --redis redis://127.0.0.1:6379 --scenario crash --spawn
  tollgate torture --target http://127.0.0.1:8080/ --rate 100/s --burst 100 --duration 20s

docs/exactness.md says how the judgement is made and what it can see.")]
pub struct Torture {
    /// The Redis that the nodes share. Without it, one node keeps its own buckets.
    #[arg(long, value_name = "URL")]
    pub redis: Option<String>,
    /// Tokens per period.
    #[arg(long, value_name = "RATE", default_value = "1000/s", value_parser = rate)]
    pub rate: Rate,
    /// Tokens in a full bucket.
    #[arg(long, value_name = "TOKENS", default_value = "200")]
    pub burst: NonZeroU64,
    /// Whether Redis is asked for each request, or nodes take tokens of the limit ahead.
    #[arg(long, value_name = "WORD", default_value = "exact", value_parser = consistency())]
    pub consistency: Consistency,
    /// Tokens that each request takes.
    #[arg(long, value_name = "TOKENS", default_value = "1")]
    pub cost: NonZeroU64,
    /// Keys that the requests are spread over.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub keys: NonZeroU32,
    /// How long each scenario is driven.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub duration: Duration,
    /// Makes a run's random choices those of another.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub seed: u64,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,

    /// Nodes; 4 with --redis, otherwise 1.
    #[arg(long, value_name = "NUMBER", requires = "redis")]
    pub nodes: Option<NonZeroU32>,
    /// Threads of each node.
    #[arg(long, value_name = "NUMBER", default_value = "2")]
    pub workers: NonZeroU32,
    /// Requests in flight on each thread.
    #[arg(long, value_name = "NUMBER", default_value = "16")]
    pub clients: NonZeroU32,
    /// Requests offered, in multiples of the limit.
    #[arg(long, value_name = "FACTOR", default_value = "3x", value_parser = demand)]
    pub demand: f64,
    /// What happens meanwhile; several, or all.
    #[arg(long, value_name = "NAME", default_value = "steady", value_delimiter = ',')]
    pub scenario: Vec<Scenarios>,
    /// The longest a decision may wait for Redis.
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = duration)]
    pub store_timeout: Duration,
    /// Run crash also with gateways in processes of their own, killed with SIGKILL.
    #[arg(long, requires = "redis")]
    pub spawn: bool,

    /// Drive this gateway instead, http://host:port/path; several of them make a fleet.
    #[arg(long, value_name = "URL", conflicts_with_all = ["redis", "scenario", "spawn", "demand", "workers", "clients"])]
    pub target: Vec<Uri>,
    /// The field in which each request carries its key's number.
    #[arg(long, value_name = "NAME", requires = "target")]
    pub key_header: Option<HeaderName>,
    /// Connections to all targets together.
    #[arg(long, value_name = "NUMBER", default_value = "64", requires = "target")]
    pub concurrency: NonZeroU32,
}

/// One scenario, or every one.
#[derive(Clone, Copy, Debug)]
pub enum Scenarios {
    One(Scenario),
    All,
}

impl ValueEnum for Scenarios {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Scenarios; Scenario::ALL.len() + 1] = {
            let mut all = [Scenarios::All; Scenario::ALL.len() + 1];
            let mut index = 0;
            while index < Scenario::ALL.len() {
                all[index] = Scenarios::One(Scenario::ALL[index]);
                index += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::One(scenario) => scenario.to_possible_value(),
            Self::All => Some(PossibleValue::new("all").help("Each of them, one after the other")),
        }
    }
}

/// Ends the process over a mistake in the command line of the subcommand called `name` that its types could not rule
/// out.
fn refuse(name: &str, why: &str) -> ! {
    let mut cli = Cli::command();
    cli.build();
    let error = match cli.find_subcommand_mut(name) {
        Some(command) => command.error(ErrorKind::ArgumentConflict, why),
        None => cli.error(ErrorKind::ArgumentConflict, why),
    };
    error.exit()
}

/// Writes to standard output. A reader that has read enough, as `head` does, is no error.
///
/// # Errors
/// When standard output cannot be written to.
pub fn say(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    let (tokens, period_us) = units::parse_rate(text).ok_or_else(|| format!("a rate is {}", units::RATE_FORMS))?;
    Ok(Rate { tokens, period_us })
}

/// As `consistency` of a limit is written.
fn consistency() -> impl TypedValueParser<Value = Consistency> {
    PossibleValuesParser::new(["exact", "leased"]).map(|word| match word.as_str() {
        "leased" => Consistency::Leased,
        _ => Consistency::Exact,
    })
}

fn duration(text: &str) -> Result<Duration, String> {
    units::parse_duration(text)
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| format!("a duration is {}", units::DURATION_FORMS))
}

fn demand(text: &str) -> Result<f64, String> {
    let factor: Option<f64> = text.strip_suffix('x').unwrap_or(text).parse().ok();
    factor.filter(|factor| *factor > 0.0).ok_or_else(|| "a demand is a number of times: 3x or 0.5x".to_owned())
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
