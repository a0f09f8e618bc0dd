//! Gateways in processes of their own, killed with SIGKILL or stopped with SIGSTOP while they are
//! driven.
//!
//! Guarantees that no process and no file outlives the run. The gateways are this very program,
//! driven over HTTP.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fastrand::Rng;
use http::{HeaderName, Uri};
use rustix::process::{Pid, Signal, kill_process};
use tollgate_limiter::clock;
use tollgate_limiter::store::redis::spec::RedisSpec;

use crate::case::Case;
use crate::drive::http::{Targets, drive};
use crate::drive::progress::Progress;
use crate::drive::redis_commands::clock_of;
use crate::error::Error;
use crate::plan::RunPlan;
use crate::report::{RunReport, RunTerms, first_requests};
use crate::scenario::Scenario;

const KEY_HEADER: &str = "x-torture-client";

/// Between two kills.
const KILL_EVERY_US: u64 = 2_000_000;

/// Until the first process is stopped, between two of them, and for how long: longer than any lease
/// lives, and than a heartbeat may be missed.
const STOP_FIRST_US: u64 = 2_000_000;
const STOP_EVERY_US: u64 = 6_000_000;
const STOP_FOR_US: u64 = 3_000_000;

/// The longest that a gateway takes until it accepts connections.
const START: Duration = Duration::from_secs(10);

/// A gateway process and its configuration file.
struct GatewayProcess {
    address: SocketAddr,
    file: PathBuf,
    child: Option<Child>,
}

/// The faults of the processes: when the next comes, and which process is stopped until when.
struct ProcessFaults {
    scenario: Scenario,
    /// Whether one process is killed, and none takes its place.
    is_lone: bool,
    rng: Rng,
    next_us: u64,
    ends_us: u64,
    stopped: Option<(usize, u64)>,
    /// When the last one had been killed.
    killed_us: Option<u64>,
}

/// Runs the nodes of `case` as processes, kills or stops one of them again and again, and judges
/// what was admitted. Admitting too little is no broken promise: tokens in flight die with a
/// process, and leases with their time.
///
/// # Errors
/// When a gateway does not start.
pub fn run_processes(
    case: &Case,
    redis: &RedisSpec,
    report: &mut dyn FnMut(Progress),
) -> Result<RunReport, Error> {
    let plan = &case.plan;
    let mut gateways = (0..plan.nodes.get())
        .map(|_| GatewayProcess::start(plan, redis))
        .collect::<Result<Vec<_>, _>>()?;
    let urls = gateways
        .iter()
        .map(GatewayProcess::url)
        .collect::<Result<Vec<_>, _>>()?;
    let per_node = plan.workers.saturating_mul(plan.clients);
    let targets = Targets {
        urls,
        key_header: Some(HeaderName::from_static(KEY_HEADER)),
        concurrency: NonZeroU32::MIN.max(per_node.saturating_mul(plan.nodes)),
    };
    let mut faults = ProcessFaults::new(case, clock::monotonic_micros());
    let clock = clock_of(&redis.url)?.unwrap_or_default();
    let observed = drive(plan, &targets, report, &mut |now_us| {
        faults.step(&mut gateways, now_us)
    })?;
    let clock = clock.or(clock_of(&redis.url)?.unwrap_or_default());
    let name = match case.scenario {
        Scenario::Suspended => case.name(),
        _ => format!("{} (kill -9)", case.name()),
    };
    Ok(RunReport::new(
        &RunTerms {
            scenario: name,
            requirements: first_requests::requirements(&observed, faults.killed_us),
            ..RunTerms::new(case, clock)
        },
        &observed,
    ))
}

impl ProcessFaults {
    fn new(case: &Case, now_us: u64) -> Self {
        let first_us = if case.scenario == Scenario::Suspended {
            STOP_FIRST_US
        } else {
            KILL_EVERY_US / 2
        };
        let duration_us = u64::try_from(case.plan.duration.as_micros()).unwrap_or(u64::MAX);
        Self {
            scenario: case.scenario,
            is_lone: case.plan.has_fresh_keys(),
            rng: Rng::with_seed(case.plan.seed),
            next_us: now_us + first_us,
            ends_us: now_us.saturating_add(duration_us),
            stopped: None,
            killed_us: None,
        }
    }

    /// Does what is planned by `now_us`.
    fn step(&mut self, gateways: &mut [GatewayProcess], now_us: u64) -> Result<(), Error> {
        if let Some((index, _)) = self.stopped.filter(|(_, until_us)| now_us >= *until_us) {
            self.stopped = None;
            gateways[index].signal(Signal::CONT)?;
        }
        // A process that is stopped goes on before the run ends.
        let is_over = self.scenario == Scenario::Suspended
            && now_us + STOP_FOR_US + STOP_FOR_US / 6 > self.ends_us;
        if now_us < self.next_us || is_over {
            return Ok(());
        }
        let index = self.rng.usize(0..gateways.len());
        if self.scenario == Scenario::Suspended {
            self.next_us += STOP_EVERY_US;
            self.stopped = Some((index, now_us + STOP_FOR_US));
            gateways[index].signal(Signal::STOP)
        } else {
            self.next_us += KILL_EVERY_US;
            gateways[index].kill();
            self.killed_us = Some(clock::monotonic_micros());
            if self.is_lone {
                self.next_us = u64::MAX;
                return Ok(());
            }
            gateways[index].launch()
        }
    }
}

impl GatewayProcess {
    fn start(plan: &RunPlan, redis: &RedisSpec) -> Result<Self, Error> {
        let address = free_address()?;
        let file = std::env::temp_dir().join(format!(
            "tollgate-judge-{}-{}.yaml",
            std::process::id(),
            address.port()
        ));
        // The file holds the URL of Redis, perhaps with a password.
        let mut open = OpenOptions::new();
        open.write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file)?
            .write_all(configuration(plan, redis, address).as_bytes())?;
        let mut gateway = Self {
            address,
            file,
            child: None,
        };
        gateway.launch()?;
        gateway.wait_until_up()?;
        Ok(gateway)
    }

    fn launch(&mut self) -> Result<(), Error> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["run", "--log", "off", "--config"])
            .arg(&self.file)
            .stdin(Stdio::null());
        self.child = Some(command.stdout(Stdio::null()).spawn()?);
        Ok(())
    }

    fn wait_until_up(&mut self) -> Result<(), Error> {
        let begun = clock::now();
        while TcpStream::connect(self.address).is_err() {
            let ended = self
                .child
                .as_mut()
                .and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(Error::Gateway(format!("it ended with {status}")));
            }
            if clock::now().saturating_duration_since(begun) > START {
                return Err(Error::Gateway(format!(
                    "nothing listens on {}",
                    self.address
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn url(&self) -> Result<Uri, Error> {
        let url = format!("http://{}/", self.address);
        url.parse().map_err(|_| Error::Target(url))
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        let child = self
            .child
            .as_ref()
            .ok_or_else(|| Error::Gateway("it has ended".to_owned()))?;
        kill_process(Pid::from_child(child), signal).map_err(|errno| Error::Io(errno.into()))
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(&self.file);
    }
}

/// A free port below those that systems hand out by themselves: a gateway that was killed must find
/// its own free again.
fn free_address() -> Result<SocketAddr, Error> {
    let ports = std::iter::repeat_with(|| fastrand::u16(10_000..32_000)).take(100);
    let free = ports
        .map(|port| TcpListener::bind(("127.0.0.1", port)))
        .find_map(Result::ok);
    let listener = free.ok_or_else(|| Error::Gateway("no port is free".to_owned()))?;
    Ok(listener.local_addr()?)
}

/// A configuration with one limit and one route that answers by itself. It is JSON, which is YAML
/// and quotes what needs it.
fn configuration(plan: &RunPlan, redis: &RedisSpec, address: SocketAddr) -> String {
    let rate = format!(
        "{}/{}s",
        plan.limit.rate.tokens,
        plan.limit.rate.period_us.get() / 1_000_000
    );
    let store = serde_json::json!({
        "redis": &*redis.url,
        "timeout": format!("{}ms", redis.timeout.as_millis()),
        "key_prefix": &*redis.key_prefix,
        "expected_nodes": plan.nodes,
    });
    let limit = serde_json::json!({
        "key": {"header": KEY_HEADER},
        "rate": rate,
        "burst": plan.limit.burst,
        "consistency": plan.consistency_word(),
    });
    let route = serde_json::json!({
        "name": "torture",
        "match": {"path": "/*"},
        "respond": {"status": 200, "body": "admitted\n"},
        "limits": [{"limit": "torture", "cost": plan.cost}],
    });
    let file = serde_json::json!({
        "workers": plan.workers,
        "admin": "off",
        "listeners": [{"address": address}],
        "store": store,
        "limits": {"torture": limit},
        "routes": [route],
    });
    file.to_string()
}
