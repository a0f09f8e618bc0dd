//! Runs what the command line asks for, and prints the reports.

use std::io::{IsTerminal, Write};
use std::num::NonZeroU32;
use std::time::Duration;

use tollgate_limiter::clock::{self, Instant};
use tollgate_limiter::store::redis::spec::{AUTONOMY, RedisSpec};
use tollgate_limiter::store::redis::tls::TlsSpec;

use crate::arguments::{Arguments, Scenarios};
use crate::case::Case;
use crate::drive::http::{Targets, run_targets};
use crate::drive::node::Backing;
use crate::drive::process::run_processes;
use crate::drive::progress::Progress;
use crate::error::Error;
use crate::faults::redis_url;
use crate::limit::TestedLimit;
use crate::plan::{Counting, LoadPattern, RunPlan};
use crate::report::{self, RunReport};
use crate::run::run_nodes;
use crate::scenario::Scenario;

/// Nodes that share a Redis by default.
const NODES: u32 = 4;

/// Between two changes of the progress line.
const REDRAW: Duration = Duration::from_millis(200);

/// The form of URL that a proxy can stand before.
const URL_BEFORE_PROXY: &str = "redis://host:port";

/// How the URL of a cluster begins.
const CLUSTER_URL: &str = "redis-cluster://";

/// The text to print, and whether a promise was broken.
#[derive(Debug)]
pub struct Verdict {
    pub text: String,
    pub broken: bool,
}

/// Runs what `arguments` ask for. Progress goes to `watcher`: a line that changes on a terminal, a
/// line per run elsewhere.
///
/// # Errors
/// When there is no verdict.
pub fn run(
    arguments: &Arguments,
    watcher: &mut (impl Write + IsTerminal),
) -> Result<Verdict, Error> {
    let reports = if arguments.target.is_empty() {
        nodes(arguments, watcher)?
    } else {
        vec![targets(arguments, watcher)?]
    };
    let heading = heading(arguments);
    let text = if arguments.json {
        format!(
            "{}\n",
            serde_json::to_string_pretty(&reports).map_err(std::io::Error::from)?
        )
    } else {
        report::table(&heading, &reports)
    };
    Ok(Verdict {
        text,
        broken: reports.iter().any(RunReport::is_broken),
    })
}

/// The heading of the table: the limit, the nodes and the duration of all rows.
fn heading(arguments: &Arguments) -> String {
    let plan = plan(arguments);
    let RunPlan {
        limit,
        nodes,
        workers,
        ..
    } = &plan;
    let driven = match (arguments.target.as_slice(), &arguments.redis) {
        ([], Some(_)) => format!("{nodes} nodes of {workers} workers share a Redis"),
        ([], None) => format!("{workers} workers share the memory of a node"),
        (targets, _) => targets
            .iter()
            .map(|target| target.to_string())
            .collect::<Vec<_>>()
            .join(", "),
    };
    let consistency = if is_matrix(arguments) {
        "exact and leased"
    } else {
        plan.consistency_word()
    };
    format!(
        "{limit}, {consistency}; {driven}; {:?} each",
        arguments.duration
    )
}

/// Refuses combinations that the parser of the command line cannot.
fn check(arguments: &Arguments, scenarios: &[Scenario]) -> Result<(), Error> {
    if arguments.cost > arguments.burst {
        return Err(Error::Plan(
            "a request must not cost more than the burst, or none is ever admitted",
        ));
    }
    if arguments.redis.is_none() && scenarios.iter().any(|scenario| scenario.needs_redis()) {
        return Err(Error::Plan(
            "some of these scenarios are about buckets in Redis: they need --redis",
        ));
    }
    if !names_cluster(arguments) && scenarios.iter().any(|scenario| scenario.needs_cluster()) {
        return Err(Error::NoCluster);
    }
    if !takes_proxy(arguments) && scenarios.iter().any(|scenario| scenario.needs_proxy()) {
        return Err(Error::NoProxy);
    }
    if arguments.spawn && !scenarios.contains(&Scenario::Crash) {
        return Err(Error::Plan(
            "--spawn is about crashes: it needs --scenario crash",
        ));
    }
    Ok(())
}

fn nodes(
    arguments: &Arguments,
    watcher: &mut (impl Write + IsTerminal),
) -> Result<Vec<RunReport>, Error> {
    let plan = plan(arguments);
    let scenarios = scenarios(arguments);
    check(arguments, &scenarios)?;
    report_left_out(arguments, watcher);
    let mut reports = Vec::new();
    let cases = if is_matrix(arguments) {
        Case::matrix
    } else {
        Case::variants
    };
    let cases: Vec<Case> = scenarios
        .into_iter()
        .flat_map(|scenario| cases(scenario, &plan))
        .collect();
    for (number, case) in (1..).zip(&cases) {
        let redis = redis(arguments, &plan, case.scenario.name());
        let name = format!("{number} of {}: {}", cases.len(), case.name());
        let mut line = ProgressLine::begin(watcher, &name);
        match (&redis, case.scenario) {
            (Some(redis), Scenario::Suspended) => {
                reports.push(run_processes(case, redis, &mut |progress| {
                    line.show(progress)
                })?)
            }
            _ => {
                let backing = redis.clone().map_or(Backing::Memory, Backing::Redis);
                reports.push(run_nodes(case, &backing, &mut |progress| {
                    line.show(progress)
                })?);
            }
        }
        line.end();
        if arguments.spawn
            && case.scenario == Scenario::Crash
            && let Some(redis) = self::redis(arguments, &plan, case.scenario.name())
        {
            let name = format!("{}, with processes", case.name());
            let mut line = ProgressLine::begin(watcher, &name);
            reports.push(run_processes(case, &redis, &mut |progress| {
                line.show(progress)
            })?);
            line.end();
        }
    }
    Ok(reports)
}

fn targets(
    arguments: &Arguments,
    watcher: &mut (impl Write + IsTerminal),
) -> Result<RunReport, Error> {
    let urls = arguments.target.clone();
    let key_header = arguments.key_header.clone();
    let targets = Targets {
        urls,
        key_header,
        concurrency: arguments.concurrency,
    };
    let mut line = ProgressLine::begin(watcher, "targets");
    let report = run_targets(&plan(arguments), &targets, &mut |progress| {
        line.show(progress)
    });
    line.end();
    report
}

fn plan(arguments: &Arguments) -> RunPlan {
    let nodes = NonZeroU32::new(if arguments.redis.is_some() { NODES } else { 1 })
        .unwrap_or(NonZeroU32::MIN);
    RunPlan {
        limit: TestedLimit {
            rate: arguments.rate,
            burst: arguments.burst,
        },
        counting: Counting::TokenBucket,
        pattern: LoadPattern::Paced,
        consistency: arguments.consistency,
        cost: arguments.cost,
        keys: arguments.keys,
        demand: arguments.demand,
        duration: arguments.duration,
        nodes: arguments.nodes.unwrap_or(nodes),
        workers: arguments.workers,
        clients: arguments.clients,
        seed: arguments.seed,
    }
}

/// The scenarios to run. `all` leaves out those that cannot be run here.
fn scenarios(arguments: &Arguments) -> Vec<Scenario> {
    let chosen = arguments.scenario.iter().flat_map(|chosen| match chosen {
        Scenarios::One(one) => vec![*one],
        Scenarios::All | Scenarios::Matrix => Scenario::ALL
            .into_iter()
            .filter(|scenario| can_run(arguments, *scenario))
            .collect(),
    });
    chosen.collect()
}

fn can_run(arguments: &Arguments, scenario: Scenario) -> bool {
    (arguments.redis.is_some() || !scenario.needs_redis())
        && (takes_proxy(arguments) || !scenario.needs_proxy())
        && (names_cluster(arguments) || !scenario.needs_cluster())
}

fn is_matrix(arguments: &Arguments) -> bool {
    arguments.scenario.contains(&Scenarios::Matrix)
}

fn names_cluster(arguments: &Arguments) -> bool {
    arguments
        .redis
        .as_deref()
        .is_some_and(|url| url.starts_with(CLUSTER_URL))
}

/// Whether a proxy can stand before the Redis that was named.
fn takes_proxy(arguments: &Arguments) -> bool {
    arguments
        .redis
        .as_deref()
        .is_none_or(redis_url::takes_proxy)
}

fn report_left_out(arguments: &Arguments, watcher: &mut impl Write) {
    let all = arguments
        .scenario
        .iter()
        .any(|chosen| !matches!(chosen, Scenarios::One(_)));
    let left_out: Vec<_> = Scenario::ALL
        .into_iter()
        .filter(|scenario| all && !can_run(arguments, *scenario))
        .collect();
    for (needed, of_cluster) in [(URL_BEFORE_PROXY, false), (CLUSTER_URL, true)] {
        let names: Vec<_> = left_out
            .iter()
            .filter(|one| one.needs_cluster() == of_cluster)
            .map(|one| one.name())
            .collect();
        if !names.is_empty() {
            let needed = if arguments.redis.is_some() {
                needed
            } else {
                "--redis"
            };
            // A watcher that cannot be written to is no reason to stop.
            let _ = writeln!(
                watcher,
                "left out, for they need {needed}: {}",
                names.join(", ")
            );
        }
    }
}

/// The Redis for `scenario`, with keys of its own, so that none starts with buckets that another
/// has used. They expire.
fn redis(arguments: &Arguments, plan: &RunPlan, scenario: &str) -> Option<RedisSpec> {
    let url = arguments.redis.as_deref()?;
    Some(RedisSpec {
        url: url.into(),
        tls: TlsSpec::default(),
        timeout: arguments.store_timeout,
        key_prefix: format!("torture-{:08x}:{scenario}:", fastrand::u32(..)).into(),
        expected_nodes: plan.nodes.get(),
        autonomy: AUTONOMY,
    })
}

/// Shows how far a run is.
struct ProgressLine<'a, W> {
    out: &'a mut W,
    name: &'a str,
    terminal: bool,
    shown: Option<Instant>,
}

impl<'a, W: Write + IsTerminal> ProgressLine<'a, W> {
    fn begin(out: &'a mut W, name: &'a str) -> Self {
        let terminal = out.is_terminal();
        let mut line = Self {
            out,
            name,
            terminal,
            shown: None,
        };
        if !terminal {
            line.write(format_args!("{name} …\n"));
        }
        line
    }

    fn show(&mut self, progress: Progress) {
        let now = clock::now();
        if !self.terminal
            || self
                .shown
                .is_some_and(|shown| now.saturating_duration_since(shown) < REDRAW)
        {
            return;
        }
        self.shown = Some(now);
        let Progress { passed, of, asked } = progress;
        let name = self.name;
        let passed = passed.as_secs_f64();
        let of = of.as_secs_f64();
        self.write(format_args!(
            "\r\x1b[K{name}: {passed:.0} of {of:.0} s, {asked} requests"
        ));
    }

    fn end(self) {
        if self.terminal {
            let mut line = self;
            line.write(format_args!("\r\x1b[K"));
        }
    }

    /// A watcher that cannot be written to is no reason to stop.
    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(text).and_then(|()| self.out.flush());
    }
}
