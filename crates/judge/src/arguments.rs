//! The command line of `tollgate torture`.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use http::{HeaderName, Uri};
use tollgate_limiter::limit::algorithm::Rate;
use tollgate_limiter::limit::definition::Consistency;
use tollgate_limiter::limit::units;

use crate::scenario::Scenario;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate torture                                           one node, its own memory
  tollgate torture --redis redis://127.0.0.1:6379 --scenario all
  tollgate torture --redis redis://127.0.0.1:6379 --scenario crash --spawn
  tollgate torture --redis redis://127.0.0.1:6379 --scenario matrix --duration 60s
  tollgate torture --target http://127.0.0.1:8080/ --rate 100/s --burst 100 --duration 20s

docs/exactness.md says how the judgement is made and what it can see.")]
pub struct Arguments {
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
    /// Events during the run; several, all, or the matrix of all.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "steady",
        value_delimiter = ','
    )]
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
    /// The field in which each request carries its key, a new one for each run. Without it, nobody
    /// knows how full the bucket is at the beginning, and no burst is demanded.
    #[arg(long, value_name = "NAME", requires = "target")]
    pub key_header: Option<HeaderName>,
    /// Connections to all targets together.
    #[arg(long, value_name = "NUMBER", default_value = "64", requires = "target")]
    pub concurrency: NonZeroU32,
}

/// A scenario, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenarios {
    One(Scenario),
    All,
    /// All, with each consistency.
    Matrix,
}

impl ValueEnum for Scenarios {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Scenarios; Scenario::ALL.len() + 2] = {
            let mut all = [Scenarios::All; Scenario::ALL.len() + 2];
            all[Scenario::ALL.len()] = Scenarios::Matrix;
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
            Self::Matrix => Some(
                PossibleValue::new("matrix")
                    .help("Each of them, exact and leased where that differs"),
            ),
        }
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    let (tokens, period_us) =
        units::parse_rate(text).ok_or_else(|| format!("a rate is {}", units::RATE_FORMS))?;
    Ok(Rate { tokens, period_us })
}

/// The words that `consistency` of a limit takes in a configuration.
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
    factor
        .filter(|factor| *factor > 0.0)
        .ok_or_else(|| "a demand is a number of times: 3x or 0.5x".to_owned())
}
