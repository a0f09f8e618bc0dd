//! The cost of requests in allocations, system calls, calls to the store and memory: not more than
//! today.
//!
//! Each number here is a bound that a change may lower and must not raise without a reason in its
//! commit. Both are counted, not timed: they are the same on every machine. Instructions are
//! counted by `make guard`, time by `make bench`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that lacks what it needs fails; figures worth reading"
)]

mod allocations;
mod client;
mod idle;
mod memory;
mod store_calls;
mod system_calls;

use std::alloc::System;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tollgate::app;
use tollgate_testing::redis::free_port;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The heap is everybody's, and so is the CPU.
static TURN: Mutex<()> = Mutex::const_new(());

/// The file that bench/guard.py counts instructions with, too.
const ROUTES: &str = include_str!("routes.yaml");

/// An access log, which only the last of these routes uses: the others have to pay nothing for it.
fn with_access_log(routes: &str) -> String {
    let quiet = routes.replace("upstream: up", "upstream: up, access_log: false");
    assert_eq!(quiet.matches("access_log: false").count(), 3);
    format!(
        "access_log: {{to: /dev/null}}\n{quiet}  - {{name: logged, match: {{path: /logged}}, upstream: up}}\n"
    )
}

/// A gateway's file and the address it listens on.
struct Setup {
    dir: TempDir,
    address: SocketAddr,
}

impl Setup {
    fn new(upstream: SocketAddr) -> Self {
        let setup = Self {
            dir: tempfile::tempdir().unwrap(),
            address: SocketAddr::from(([127, 0, 0, 1], free_port())),
        };
        let (listener, upstream) = (setup.address.to_string(), upstream.to_string());
        let text = with_access_log(ROUTES)
            .replace("\"LISTENER\"", &format!("\"{listener}\""))
            .replace("//UPSTREAM", &format!("//{upstream}"));
        std::fs::write(setup.file(), text).unwrap();
        setup
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("routes.yaml")
    }
}

/// The address of the one gateway that runs within this process, until that ends: nobody but a
/// signal would end it.
fn gateway() -> SocketAddr {
    static GATEWAY: OnceLock<Setup> = OnceLock::new();
    let start = || {
        let setup = Setup::new(client::upstream());
        let file = setup.file();
        thread::spawn(move || app::run(&file, false));
        setup
    };
    GATEWAY.get_or_init(start).address
}
