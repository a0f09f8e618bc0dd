//! A gateway as its users run it: the binary, on free ports, with a file of its own.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;
use tollgate_testing::PATIENCE;
pub use tollgate_testing::answer_of as eventually;

pub struct Gateway {
    child: Child,
    folder: TempDir,
    log: Arc<Mutex<Vec<String>>>,
    /// The address of each listener, in the order of the file.
    pub listeners: Vec<SocketAddr>,
    pub admin: SocketAddr,
    /// Where probes and metrics are alone, if the file says so.
    pub probes: Option<SocketAddr>,
}

impl Gateway {
    /// Starts the gateway on `routes`, which listens on port 0 everywhere, and waits until it
    /// serves.
    pub fn start(routes: &str) -> Self {
        Self::start_as(Command::new(env!("CARGO_BIN_EXE_tollgate")), routes)
    }

    /// Like `start`, as the process that takes over from the one that runs.
    pub fn take_over(routes: &str) -> Self {
        let (mut gateway, lines) = Self::spawn_with(
            Command::new(env!("CARGO_BIN_EXE_tollgate")),
            routes,
            &["--take-over"],
        );
        gateway.learn_addresses(&lines);
        gateway
    }

    /// Like `start`, with the listening `socket` and the variables of a service that systemd
    /// starts.
    pub fn start_as_service(socket: &impl AsFd, variables: &[(&str, &str)], routes: &str) -> Self {
        let mut command = Command::new("sh");
        // The shell becomes the gateway, and keeps its process id.
        let script = "exec 3<&0 0</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" \"$@\"";
        command
            .args(["-c", script, env!("CARGO_BIN_EXE_tollgate")])
            .envs(variables.iter().copied());
        command.stdin(socket.as_fd().try_clone_to_owned().unwrap());
        Self::start_as(command, routes)
    }

    /// Like `start`, with its limits on descriptors set by `ulimit` with these options.
    pub fn start_with_limit(options: &str, routes: &str) -> Self {
        let mut command = Command::new("sh");
        let script = format!("ulimit {options} || exit; exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_tollgate")]);
        Self::start_as(command, routes)
    }

    /// Like `start_unready`, as the process that takes over.
    pub fn take_over_unready(routes: &str) -> Self {
        Self::spawn_with(
            Command::new(env!("CARGO_BIN_EXE_tollgate")),
            routes,
            &["--take-over"],
        )
        .0
    }

    /// Like `start`, with the system clock off by `offset`, such as `+1h`.
    pub fn start_with_clock(offset: &str, routes: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        // The wrapper `faketime` would set these. Started by it, the gateway would be its child and
        // outlive a test that kills it.
        command
            .env("LD_PRELOAD", faketime_library())
            .env("FAKETIME", offset);
        // Only the calendar is wrong on a node whose clock is off: monotonic clocks have no date.
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Self::start_as(command, routes)
    }

    /// Like `start`, but returns before it listens.
    pub fn start_unready(routes: &str) -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_tollgate")), routes).0
    }

    /// Like `start`, by this command.
    pub fn start_as(command: Command, routes: &str) -> Self {
        let (mut gateway, lines) = Self::spawn(command, routes);
        gateway.learn_addresses(&lines);
        gateway
    }

    fn spawn(command: Command, routes: &str) -> (Self, Receiver<String>) {
        Self::spawn_with(command, routes, &[])
    }

    fn spawn_with(
        mut command: Command,
        routes: &str,
        arguments: &[&str],
    ) -> (Self, Receiver<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.yaml");
        std::fs::write(&path, routes).unwrap();
        let program = command.get_program().to_owned();
        let mut child = command
            .args(["run", "--log-format", "json", "--config"])
            .arg(&path)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("cannot start {program:?}: {error}; `make test` installs what tests need")
            });
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = follow(child.stderr.take().unwrap(), log.clone());
        follow(child.stdout.take().unwrap(), log.clone());
        let admin = SocketAddr::from(([127, 0, 0, 1], 0));
        let gateway = Self {
            child,
            folder,
            log,
            listeners: Vec::new(),
            admin,
            probes: None,
        };
        (gateway, lines)
    }

    fn learn_addresses(&mut self, lines: &Receiver<String>) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            else {
                panic!("the gateway did not start:\n{}", self.log());
            };
            let Ok(entry) = serde_json::from_str::<serde_json::Value>(&line) else {
                continue;
            };
            let address = entry["address"].as_str().and_then(|text| text.parse().ok());
            match entry["message"].as_str() {
                // A Unix socket has none.
                Some("listening") => self.listeners.extend(address),
                Some("admin port open") => self.admin = address.unwrap(),
                Some("probe port open") => self.probes = address,
                Some("serving") => return,
                _ => {}
            }
        }
    }

    /// `http://…` of the first listener.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.listeners[0])
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has written so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Replaces the file as an editor does.
    pub fn rewrite(&self, routes: &str) {
        let next = self.folder.path().join("next");
        std::fs::write(&next, routes).unwrap();
        std::fs::rename(next, self.folder.path().join("routes.yaml")).unwrap();
    }

    /// Takes the file away.
    pub fn remove_file(&self) {
        std::fs::remove_file(self.folder.path().join("routes.yaml")).unwrap();
    }

    /// Sends `TERM`, `HUP`, `KILL`, `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let done = Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status()
            .unwrap();
        assert!(done.success());
    }

    /// Waits until it has ended by itself, and all that it wrote is read.
    pub fn wait(&mut self) -> ExitStatus {
        let status = eventually("the gateway ends", || self.child.try_wait().unwrap());
        // Those who follow its output have the log, too, until that ends.
        eventually("its log ends", || {
            (Arc::strong_count(&self.log) == 1).then_some(())
        });
        status
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// The bucket at `target` of the admin port. A busy machine may make the store's answer late, and
    /// the node then tells what it holds itself.
    pub fn bucket(&self, target: &str) -> Value {
        eventually("the store tells of its bucket", || {
            let view = curl(&["-g", &format!("http://{}{target}", self.admin)]);
            let view: Value = serde_json::from_str(&view).unwrap();
            view.get("store").is_none().then_some(view)
        })
    }

    /// The value of `series`, which must be there: a name that is misspelt would always read as 0.
    pub fn metric(&self, series: &str) -> f64 {
        self.find_metric(series)
            .unwrap_or_else(|| panic!("{series} is not on the page of metrics"))
    }

    /// The value of `series`, for one that appears with its first event.
    pub fn find_metric(&self, series: &str) -> Option<f64> {
        self.metrics()
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    /// The page of metrics. Tests read it again and again: a process for each time would be most of
    /// their work.
    pub fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        text
    }

    /// Memory of its own, in bytes: pages of the program file do not count.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- the gateway's log\n{}", self.log());
        }
    }
}

/// Where this system keeps libfaketime: its wrapper knows.
fn faketime_library() -> String {
    let output = Command::new("faketime")
        .args(["-f", "+0", "printenv", "LD_PRELOAD"])
        .output();
    let output = output
        .unwrap_or_else(|error| panic!("cannot start faketime: {error}; `make test` installs it"));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn follow(
    stream: impl std::io::Read + Send + 'static,
    log: Arc<Mutex<Vec<String>>>,
) -> Receiver<String> {
    let (lines, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            log.lock().unwrap().push(line.clone());
            let _ = lines.send(line);
        }
    });
    receiver
}

/// The output of `curl -sS`.
pub fn curl(args: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "60"])
        .args(args)
        .output()
        .unwrap_or_else(|error| {
            panic!("cannot start curl: {error}; `make test` installs what tests need")
        });
    assert!(
        output.status.success(),
        "curl {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The status code that curl gets.
pub fn status(args: &[&str]) -> u16 {
    let args: Vec<&str> = ["-o", "/dev/null", "-w", "%{http_code}"]
        .into_iter()
        .chain(args.iter().copied())
        .collect();
    curl(&args).parse().unwrap()
}
