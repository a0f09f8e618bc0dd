//! System calls per request, as `strace` sees a gateway make them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tollgate_testing::answer_of;

use super::client::{self, BlockingClient};
use super::{Setup, TURN};

/// At the same time: each has a request under way, as clients of a busy gateway do.
const CLIENTS: usize = 16;
const ROUNDS: usize = 20;

const READS: [&str; 5] = ["read", "readv", "recv", "recvfrom", "recvmsg"];
const WRITES: [&str; 6] = ["write", "writev", "send", "sendto", "sendmsg", "sendmmsg"];

/// A gateway that writes down what it asks of the kernel. Killed when dropped.
struct Traced {
    gateway: Child,
    log: PathBuf,
}

impl Traced {
    fn start(setup: &Setup) -> Self {
        let log = setup.dir.path().join("strace.log");
        // Daemonized: the child is the gateway, and strace ends with it.
        let mut command = Command::new("strace");
        command
            .args([
                "--daemonize",
                "--follow-forks",
                "--string-limit=16",
                "--output",
            ])
            .arg(&log);
        command
            .args([env!("CARGO_BIN_EXE_tollgate"), "run", "--config"])
            .arg(setup.file());
        let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let gateway = started
            .inspect_err(|error| println!("strace: {error}; `scripts/require strace` gets it"))
            .unwrap();
        Self { gateway, log }
    }

    /// All that it did until now, when it is ended and has told it.
    fn end(mut self) -> Vec<String> {
        let id = self.gateway.id();
        self.gateway.kill().unwrap();
        self.gateway.wait().unwrap();
        answer_of("strace has told the end", || {
            let log = read(&self.log);
            let has_ended = log
                .iter()
                .any(|line| line.starts_with(&format!("{id} ")) && line.contains("+++ killed by"));
            has_ended.then_some(log)
        })
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.gateway.kill();
        let _ = self.gateway.wait();
    }
}

fn read(log: &Path) -> Vec<String> {
    String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default())
        .lines()
        .map(str::to_owned)
        .collect()
}

/// The most that one request may take.
struct Bound {
    reads: f64,
    writes: f64,
    /// Waiting for events, waking others, and whatever else there is.
    others: f64,
}

#[test]
fn a_request_asks_the_kernel_no_more_than_it_did() {
    let _turn = TURN.blocking_lock();
    let setup = Setup::new(client::upstream());
    let traced = Traced::start(&setup);
    let mut clients: Vec<BlockingClient> = (0..CLIENTS)
        .map(|_| BlockingClient::connect(setup.address))
        .collect();
    let forwarded = Bound {
        reads: 2.0,
        writes: 2.0,
        others: 1.0,
    };
    let denied = Bound {
        reads: 1.0,
        writes: 1.0,
        others: 1.0,
    };
    // A line may wake the log's thread. Its writes are that thread's.
    let logged = Bound {
        others: 2.0,
        ..forwarded
    };
    let cases = [
        ("forwarded", "/", 200, &forwarded),
        ("limited", "/limited", 200, &forwarded),
        ("denied", "/denied", 429, &denied),
        ("logged", "/logged", 200, &logged),
    ];
    for (what, path, status, _) in cases {
        run(&mut clients, what, &client::request(path), status);
    }
    let log = traced.end();
    for (what, _, _, bound) in cases {
        check(what, &calls(&log, what), bound);
    }
}

/// Between two requests that show in the log.
fn run(clients: &mut [BlockingClient], what: &str, request: &[u8], status: u16) {
    // The first are those that open connections to the upstream.
    (0..3).for_each(|_| _ = round(clients, request, status));
    clients[0].ask(&client::request(&format!("/+{what}")));
    for _ in 0..ROUNDS {
        assert_eq!(round(clients, request, status), CLIENTS, "{what}");
    }
    clients[0].ask(&client::request(&format!("/-{what}")));
}

/// How many were answered so.
fn round(clients: &mut [BlockingClient], request: &[u8], status: u16) -> usize {
    clients.iter_mut().for_each(|client| client.send(request));
    clients
        .iter_mut()
        .map(BlockingClient::receive)
        .filter(|&received| received == status)
        .count()
}

/// How often each call was made between the two.
fn calls(log: &[String], what: &str) -> BTreeMap<String, usize> {
    let begun = log
        .iter()
        .position(|line| line.contains(&format!("GET /+{what}")))
        .unwrap();
    let ended = log
        .iter()
        .position(|line| line.contains(&format!("GET /-{what}")))
        .unwrap();
    let mut calls = BTreeMap::new();
    // The thread of the log works beside that of the requests.
    let worker = log[begun]
        .split_inclusive(' ')
        .next()
        .filter(|_| what == "logged")
        .unwrap_or_default();
    for name in log[begun + 1..ended]
        .iter()
        .filter(|line| line.starts_with(worker))
        .filter_map(|line| name(line))
    {
        *calls.entry(name.to_owned()).or_default() += 1;
    }
    calls
}

/// `4711 recvfrom(9, …`; nothing where a call goes on that another thread's interrupted in the log.
fn name(line: &str) -> Option<&str> {
    let call = line.split_once(' ')?.1.trim_start();
    call.split_once('(')
        .map(|(name, _)| name)
        .filter(|name| name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()))
}

fn check(what: &str, calls: &BTreeMap<String, usize>, bound: &Bound) {
    let of = |names: &[&str]| {
        names
            .iter()
            .filter_map(|&name| calls.get(name))
            .sum::<usize>()
    };
    let (reads, writes, all) = (of(&READS), of(&WRITES), calls.values().sum::<usize>());
    println!("{what}: {calls:?} for {} requests", CLIENTS * ROUNDS);
    for (kind, made, most) in [
        ("reads", reads, bound.reads),
        ("writes", writes, bound.writes),
        ("other calls", all - reads - writes, bound.others),
    ] {
        let each = made as f64 / (CLIENTS * ROUNDS) as f64;
        // A request more stands between the two that are looked for, and a timer may have its turn.
        assert!(
            each <= most + 0.05,
            "a {what} request takes {each:.2} {kind}, and may take {most}: {calls:?}"
        );
    }
    assert!(
        reads >= CLIENTS * ROUNDS,
        "{what}: fewer reads than requests? look at what is counted: {calls:?}"
    );
}
