//! What a request may cost in allocations and in system calls: not more than it does today.
//!
//! Each number here is a bound that a change may lower and must not raise without a reason in its commit. Both are counted,
//! not timed: they are the same on every machine. Instructions are counted by `make guard`, time by `make bench`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that lacks what it needs fails; figures worth reading"
)]

mod allocations;
mod client;
mod memory;
mod store_calls;
mod system_calls;

use std::alloc::System;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tempfile::TempDir;
use tokio::sync::Mutex;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The heap is everybody's, and so is the CPU.
static TURN: Mutex<()> = Mutex::const_new(());

/// A gateway's file: `/` is forwarded, `/limited` too under a limit that lets pass, `/denied` is over its limit.
struct Setup {
    dir: TempDir,
    address: SocketAddr,
}

impl Setup {
    fn new(upstream: SocketAddr) -> Self {
        let setup = Self { dir: tempfile::tempdir().unwrap(), address: free_address() };
        std::fs::write(setup.file(), setup.text(upstream)).unwrap();
        setup
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("routes.yaml")
    }

    fn text(&self, upstream: SocketAddr) -> String {
        format!(
            r#"
workers: 1
listeners: [{{address: "{}"}}]
admin: "off"
limits:
  wide: {{key: client_ip, rate: 1000000/s, burst: 1000000}}
  narrow: {{key: client_ip, rate: 1/h, burst: 1}}
upstreams: {{up: {{endpoints: ["http://{upstream}"]}}}}
routes:
  - {{name: plain, upstream: up}}
  - {{name: limited, match: {{path: /limited}}, upstream: up, limits: [wide]}}
  - {{name: denied, match: {{path: /denied}}, upstream: up, limits: [narrow]}}
"#,
            self.address
        )
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
