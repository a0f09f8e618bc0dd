//! The gateway's own log, whose reader takes nothing.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::process::{eventually, status};

/// A gateway whose log the test reads, or does not.
struct Logging {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
    listener: SocketAddr,
}

impl Logging {
    fn start(filter: &str, routes: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.yaml");
        std::fs::write(&path, routes).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["run", "--log-format", "json", "--log", filter, "--config"])
            .arg(&path)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut listener = None;
        loop {
            let mut line = String::new();
            assert!(
                log.read_line(&mut line).unwrap() > 0,
                "the gateway did not start"
            );
            let entry: Value = serde_json::from_str(&line).unwrap();
            match entry["message"].as_str() {
                Some("listening") => {
                    listener = entry["address"].as_str().and_then(|text| text.parse().ok())
                }
                Some("serving") => {
                    return Self {
                        child,
                        log,
                        listener: listener.unwrap(),
                    };
                }
                _ => {}
            }
        }
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_reader_of_the_log_that_takes_nothing_keeps_neither_requests_nor_the_end() {
    let routes = "
workers: 1
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
routes: [{name: all, match: {path: '/*'}, respond: {status: 200}}]
";
    // Each frame of HTTP/2 has a line, so these requests fill the pipe of 64 KiB twice.
    let mut gateway = Logging::start("info,h2=trace", routes);
    for _ in 0..100 {
        assert_eq!(
            status(&[
                "--http2-prior-knowledge",
                &format!("http://{}/", gateway.listener)
            ]),
            200
        );
    }
    let pid = gateway.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    let ended = eventually("the gateway ends", || gateway.child.try_wait().unwrap());
    assert!(ended.success());
    let mut rest = String::new();
    gateway.log.read_to_string(&mut rest).unwrap();
    // No line is divided among its sixteen pages, of which the start has read one in part.
    let longest = rest.lines().map(str::len).max().unwrap() + 1;
    let full = 15 * (4_096 - longest);
    assert!(
        rest.len() > full,
        "{} of {full}: the pipe was full",
        rest.len()
    );
}
