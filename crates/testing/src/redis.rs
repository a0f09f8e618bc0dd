//! A redis-server of a test's own, and the faults it can suffer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixSocketAddr, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use tollgate_limiter::store::redis::spec::{AUTONOMY, RedisSpec};
use tollgate_limiter::store::redis::tls::TlsSpec;

use crate::poll::answer_of;

const SERVER: &str = "/usr/bin/redis-server";

/// Tries to start a server: another test may take its port first.
const MOST_STARTS: usize = 5;

/// Killed when dropped.
pub struct RedisServer {
    child: Child,
    port: u16,
    dir: TempDir,
    arguments: Vec<String>,
}

impl RedisServer {
    /// Starts one that keeps nothing on disk, and waits until it answers. Another test may take the
    /// port first: then on another.
    pub fn start() -> Self {
        Self::start_with(&|_, _| Vec::new())
    }

    /// Like `start`, on a port of the caller's choice. A connection of another test may have it for
    /// a moment.
    pub fn start_at(port: u16) -> Self {
        answer_of(&format!("port {port} is given back"), || {
            Self::try_start_at(port)
        })
    }

    /// Starts a server with more arguments than the basic ones, which may name its directory.
    pub fn start_with(more: &dyn Fn(u16, &Path) -> Vec<String>) -> Self {
        for _ in 0..MOST_STARTS {
            let port = free_port();
            let dir = tempfile::tempdir().unwrap();
            let mut arguments = basic_arguments(port, dir.path());
            arguments.extend(more(port, dir.path()));
            if let Some(server) = Self::launch(port, arguments, dir) {
                return server;
            }
        }
        panic!("{SERVER} does not start on any of {MOST_STARTS} ports");
    }

    fn try_start_at(port: u16) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        Self::launch(port, basic_arguments(port, dir.path()), dir)
    }

    /// Starts a server with these arguments. `None`: it did not come up.
    pub fn launch(port: u16, arguments: Vec<String>, dir: TempDir) -> Option<Self> {
        let mut server = Self {
            child: spawn(&arguments),
            port,
            dir,
            arguments,
        };
        server.comes_up().then_some(server)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A store on this server, with a time limit that a busy machine keeps.
    pub fn spec(&self) -> RedisSpec {
        spec_at(self.port)
    }

    /// Ends it as a crash would.
    pub fn kill9(&mut self) {
        signal("KILL", &self.child);
        self.child.wait().unwrap();
    }

    /// Starts it again, empty, on the same port. It must have been killed.
    pub fn restart(&mut self) {
        self.child = spawn(&self.arguments);
        assert!(
            self.comes_up(),
            "{SERVER} does not start again: is its port {} taken?",
            self.port
        );
    }

    /// Suspends the server: it keeps its connections and answers nothing.
    pub fn stop(&self) {
        signal("STOP", &self.child);
    }

    pub fn cont(&self) {
        signal("CONT", &self.child);
    }

    /// Sends a command over a connection of its own. A reply of several parts is returned as its
    /// header only.
    pub fn command(&self, parts: &[&str]) -> String {
        self.try_command(parts).unwrap()
    }

    /// Creates the user `gate` with the password `hunter2`, who may use keys that start with `t:`,
    /// and these commands.
    pub fn add_user(&self, rights: &[&str]) {
        let user = ["ACL", "SETUSER", "gate", "reset", "on", ">hunter2", "~t:*"];
        assert_eq!(self.command(&[&user, rights].concat()), "+OK");
    }

    /// The server's clock, in microseconds. A system that sets its clock slews it against the
    /// monotonic one of a test.
    pub fn clock_us(&self) -> u64 {
        let script = "local now = redis.call('TIME') return now[1] * 1000000 + now[2]";
        self.command(&["EVAL", script, "0"])[1..].parse().unwrap()
    }

    /// Scripts run by their hash since the server started.
    pub fn script_calls(&self) -> u64 {
        let stats = self.command(&["INFO", "commandstats"]);
        let Some((_, calls)) = stats.split_once("cmdstat_evalsha:calls=") else {
            return 0;
        };
        let (calls, _) = calls.split_once(',').unwrap();
        calls.parse().unwrap()
    }

    fn try_command(&self, parts: &[&str]) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut request = format!("*{}\r\n", parts.len());
        for part in parts {
            request.push_str(&format!("${}\r\n{part}\r\n", part.len()));
        }
        stream.write_all(request.as_bytes())?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_owned();
        let length = line.strip_prefix('$').unwrap_or_default();
        let Ok(length) = length.parse::<usize>() else {
            return Ok(line);
        };
        let mut bulk = vec![0; length];
        reader.read_exact(&mut bulk)?;
        Ok(String::from_utf8_lossy(&bulk).into_owned())
    }

    /// Whether the server answers, and does not end at once.
    fn comes_up(&mut self) -> bool {
        let runs = answer_of(&format!("{SERVER} answers"), || {
            if self.child.try_wait().unwrap().is_some() {
                return Some(false);
            }
            let answer = self.try_command(&["PING"]).ok()?;
            (answer == "+PONG").then_some(true)
        });
        if !runs {
            return false;
        }
        // Another server on that port would answer as well, while this one is about to end.
        self.command(&["INFO", "server"])
            .contains(&format!("process_id:{}\r", self.child.id()))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // Ended already when the test killed it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago, and below those that the system hands out by itself: while a
/// server is away, its port could otherwise go to any other socket of the machine, and the server
/// could not return to it.
pub fn free_port() -> u16 {
    std::iter::repeat_with(|| fastrand::u16(10_000..32_000))
        .find(|port| reserve_port(*port))
        .unwrap()
}

/// Whether `port` is free and of no other test of this machine, which may be about to open it: no
/// other gets it until this process ends. A socket in the abstract namespace stands for each port.
pub fn reserve_port(port: u16) -> bool {
    static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let name = UnixSocketAddr::from_abstract_name(format!("tollgate-test-port-{port}")).unwrap();
    let Ok(reservation) = UnixListener::bind_addr(&name) else {
        return false;
    };
    let is_free = TcpListener::bind(("127.0.0.1", port)).is_ok();
    if is_free {
        let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
        reserved.push(reservation);
    }
    is_free
}

/// A store on a port of this machine.
pub fn spec_at(port: u16) -> RedisSpec {
    RedisSpec {
        url: format!("redis://127.0.0.1:{port}").into(),
        tls: TlsSpec::default(),
        timeout: Duration::from_secs(2),
        key_prefix: "t:".into(),
        expected_nodes: 1,
        autonomy: AUTONOMY,
    }
}

/// The rights of a user in Redis, as docs/configuration/store.md lists them for operators.
pub fn documented_rights() -> Vec<&'static str> {
    let page = include_str!("../../../docs/configuration/store.md");
    let (_, rights) = page.split_once("and these commands:").unwrap();
    let (rights, _) = rights.split_once("| form of").unwrap();
    let words = rights.split(|c: char| c.is_whitespace() || c == '`');
    words.filter(|word| word.starts_with('+')).collect()
}

/// The arguments of a server that keeps nothing on disk.
pub(crate) fn basic_arguments(port: u16, dir: &Path) -> Vec<String> {
    let port = port.to_string();
    let dir = dir.display().to_string();
    let words = [
        "--port",
        &port,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        &dir,
    ];
    words.map(str::to_owned).into()
}

fn spawn(arguments: &[String]) -> Child {
    Command::new(SERVER)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("{SERVER} is needed ({error}): install the package redis-server")
        })
}

fn signal(name: &str, child: &Child) {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}
