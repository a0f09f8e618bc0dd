//! nginx as an upstream, on a port of a test's own.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tollgate_limiter::clock;

use crate::PATIENCE;
use crate::redis::free_port;

/// A running nginx. Stopped when dropped.
pub struct NginxServer {
    pub address: SocketAddr,
    process: Child,
    folder: TempDir,
}

impl NginxServer {
    /// Starts one whose server listens on its port with `options`, such as `ssl http2`, and has
    /// these `directives`.
    pub fn start(options: &str, directives: &str) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let folder = tempfile::tempdir().unwrap();
        let mut text =
            "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr warn;\nevents {}\n"
                .to_owned();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary = temporary
            .map(|kind| format!("{kind}_temp_path {kind};"))
            .join(" ");
        writeln!(
            text,
            "http {{ access_log off; {temporary}\nserver {{ listen {address} {options};\n{directives}\n}} }}"
        )
        .unwrap();
        std::fs::write(folder.path().join("nginx.conf"), text).unwrap();
        let process = spawn(&folder);
        let server = Self {
            address,
            process,
            folder,
        };
        server.wait();
        server
    }

    /// Ends it as an operator would, so that connections are told, and starts it again on its port.
    pub fn restart(&mut self) {
        self.signal("QUIT");
        self.process.wait().unwrap();
        self.process = spawn(&self.folder);
        self.wait();
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(
            Command::new("kill")
                .args([&format!("-{name}"), &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    fn wait(&self) {
        let started = clock::now();
        while TcpStream::connect(self.address).is_err() {
            assert!(
                started.elapsed() < PATIENCE,
                "nginx does not listen on {}",
                self.address
            );
            std::thread::yield_now();
        }
    }
}

fn spawn(folder: &TempDir) -> Child {
    let mut command = Command::new("nginx");
    command
        .arg("-p")
        .arg(folder.path())
        .args(["-c", "nginx.conf", "-e", "stderr"])
        .stderr(Stdio::null());
    command
        .spawn()
        .unwrap_or_else(|error| panic!("nginx is needed ({error}): install the package nginx"))
}

impl Drop for NginxServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
