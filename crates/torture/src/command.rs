//! The command: from what was typed to runs, and from outcomes to what is printed.

use std::io::{IsTerminal, Write};
use std::num::NonZeroU32;
use std::time::Duration;

use tollgate_limiter::clock::{self, Instant};
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_limiter::store::redis::tls::TlsSpec;

use crate::arguments::{Arguments, Scenarios};
use crate::report::{self, Outcome};
use crate::{Backing, Error, Limit, Plan, Progress, Scenario, Targets, address};

/// Nodes that share a Redis, unless told otherwise.
const NODES: u32 = 4;

/// Between two changes of the progress line.
const REDRAW: Duration = Duration::from_millis(200);

/// Where a single Redis is by its URL, a link can stand before it.
const LINKABLE: &str = "redis://host:port";

/// What to print, and whether a promise was broken.
#[derive(Debug)]
pub struct Verdict {
    pub text: String,
    pub broken: bool,
}

/// Does what was typed. How far it is goes to `watcher`: a line that changes on a terminal, a line per run elsewhere.
///
/// # Errors
/// When there is no verdict.
pub fn run(torture: &Arguments, watcher: &mut (impl Write + IsTerminal)) -> Result<Verdict, Error> {
    let outcomes = if torture.target.is_empty() { nodes(torture, watcher)? } else { vec![targets(torture, watcher)?] };
    let heading = heading(torture);
    let text = if torture.json {
        format!("{}\n", serde_json::to_string_pretty(&outcomes).map_err(std::io::Error::from)?)
    } else {
        report::table(&heading, &outcomes)
    };
    Ok(Verdict { text, broken: outcomes.iter().any(Outcome::is_broken) })
}

/// What all rows of the table have in common.
fn heading(torture: &Arguments) -> String {
    let plan = plan(torture);
    let Plan { limit, nodes, workers, .. } = &plan;
    let driven = match (torture.target.as_slice(), &torture.redis) {
        ([], Some(_)) => format!("{nodes} nodes of {workers} workers share a Redis"),
        ([], None) => format!("{workers} workers share the memory of a node"),
        (targets, _) => targets.iter().map(|target| target.to_string()).collect::<Vec<_>>().join(", "),
    };
    format!("{limit}, {}; {driven}; {:?} each", plan.consistency_word(), torture.duration)
}

/// What the command line itself cannot refuse.
fn check(torture: &Arguments, scenarios: &[Scenario]) -> Result<(), Error> {
    if torture.cost > torture.burst {
        return Err(Error::Plan("a request must not cost more than the burst, or none is ever admitted"));
    }
    if torture.redis.is_none() && scenarios.iter().any(|scenario| scenario.needs_redis()) {
        return Err(Error::Plan("skew, reorder, crash and flap are about buckets in Redis: they need --redis"));
    }
    if !takes_link(torture) && scenarios.iter().any(|scenario| scenario.needs_link()) {
        return Err(Error::NoLink);
    }
    if torture.spawn && !scenarios.contains(&Scenario::Crash) {
        return Err(Error::Plan("--spawn is about crashes: it needs --scenario crash"));
    }
    Ok(())
}

fn nodes(torture: &Arguments, watcher: &mut (impl Write + IsTerminal)) -> Result<Vec<Outcome>, Error> {
    let (plan, scenarios) = (plan(torture), scenarios(torture));
    check(torture, &scenarios)?;
    tell_what_is_left_out(torture, watcher);
    let mut outcomes = Vec::new();
    for scenario in scenarios {
        let redis = redis(torture, &plan, scenario.name());
        let backing = redis.clone().map_or(Backing::Memory, Backing::Redis);
        let mut line = Line::begin(watcher, scenario.name());
        let mut watch = |progress| line.show(progress);
        outcomes.push(crate::run(&plan, scenario, &backing, &mut watch)?);
        line.end();
        if let Some(redis) = redis.filter(|_| torture.spawn && scenario == Scenario::Crash) {
            let mut line = Line::begin(watcher, "crash, with processes");
            outcomes.push(crate::spawned(&plan, &redis, &mut |progress| line.show(progress))?);
            line.end();
        }
    }
    Ok(outcomes)
}

fn targets(torture: &Arguments, watcher: &mut (impl Write + IsTerminal)) -> Result<Outcome, Error> {
    let (urls, key_header) = (torture.target.clone(), torture.key_header.clone());
    let targets = Targets { urls, key_header, concurrency: torture.concurrency };
    let mut line = Line::begin(watcher, "targets");
    let outcome = crate::target(&plan(torture), &targets, &mut |progress| line.show(progress));
    line.end();
    outcome
}

fn plan(torture: &Arguments) -> Plan {
    let nodes = NonZeroU32::new(if torture.redis.is_some() { NODES } else { 1 }).unwrap_or(NonZeroU32::MIN);
    Plan {
        limit: Limit { rate: torture.rate, burst: torture.burst },
        consistency: torture.consistency,
        cost: torture.cost,
        keys: torture.keys,
        demand: torture.demand,
        duration: torture.duration,
        nodes: torture.nodes.unwrap_or(nodes),
        workers: torture.workers,
        clients: torture.clients,
        seed: torture.seed,
    }
}

/// `all` leaves out those that cannot be run here.
fn scenarios(torture: &Arguments) -> Vec<Scenario> {
    let chosen = torture.scenario.iter().flat_map(|chosen| match chosen {
        Scenarios::One(one) => vec![*one],
        Scenarios::All => Scenario::ALL.into_iter().filter(|scenario| can_run(torture, *scenario)).collect(),
    });
    chosen.collect()
}

fn can_run(torture: &Arguments, scenario: Scenario) -> bool {
    (torture.redis.is_some() || !scenario.needs_redis()) && (takes_link(torture) || !scenario.needs_link())
}

/// Whether a link can stand before the Redis that was named.
fn takes_link(torture: &Arguments) -> bool {
    torture.redis.as_deref().is_none_or(address::takes_link)
}

fn tell_what_is_left_out(torture: &Arguments, watcher: &mut impl Write) {
    let all = torture.scenario.iter().any(|chosen| matches!(chosen, Scenarios::All));
    let names = Scenario::ALL.into_iter().filter(|scenario| all && !can_run(torture, *scenario)).map(Scenario::name);
    let names: Vec<_> = names.collect();
    if !names.is_empty() {
        let needed = if torture.redis.is_some() { LINKABLE } else { "--redis" };
        // Nobody has to see it.
        let _ = writeln!(watcher, "left out, for they need {needed}: {}", names.join(", "));
    }
}

/// Keys of its own for each scenario, so that none starts with what another has used. They expire by themselves.
fn redis(torture: &Arguments, plan: &Plan, scenario: &str) -> Option<RedisSpec> {
    let url = torture.redis.as_deref()?;
    Some(RedisSpec {
        url: url.into(),
        tls: TlsSpec::default(),
        timeout: torture.store_timeout,
        key_prefix: format!("torture-{:08x}:{scenario}:", fastrand::u32(..)).into(),
        expected_nodes: plan.nodes.get(),
    })
}

/// Tells how far a run is.
struct Line<'a, W> {
    out: &'a mut W,
    name: &'a str,
    terminal: bool,
    shown: Option<Instant>,
}

impl<'a, W: Write + IsTerminal> Line<'a, W> {
    fn begin(out: &'a mut W, name: &'a str) -> Self {
        let terminal = out.is_terminal();
        let mut line = Self { out, name, terminal, shown: None };
        if !terminal {
            line.write(format_args!("{name} …\n"));
        }
        line
    }

    fn show(&mut self, progress: Progress) {
        let now = clock::now();
        if !self.terminal || self.shown.is_some_and(|shown| now.saturating_duration_since(shown) < REDRAW) {
            return;
        }
        self.shown = Some(now);
        let Progress { passed, of, asked } = progress;
        let (name, passed, of) = (self.name, passed.as_secs_f64(), of.as_secs_f64());
        self.write(format_args!("\r\x1b[K{name}: {passed:.0} of {of:.0} s, {asked} requests"));
    }

    fn end(self) {
        if self.terminal {
            let mut line = self;
            line.write(format_args!("\r\x1b[K"));
        }
    }

    /// Nobody has to see it.
    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(text).and_then(|()| self.out.flush());
    }
}
