//! Unix sockets as listeners, with curl.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use tempfile::TempDir;
use tollgate_testing::PATIENCE;
use tollgate_testing::topology::CertificateAuthority;

use crate::process::{Gateway, curl, eventually};

/// A path for a socket, and keys of its listener.
struct Socket {
    folder: TempDir,
    keys: &'static str,
}

impl Socket {
    fn with(keys: &'static str) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            keys,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("http.sock")
    }

    fn routes(&self, more: &str) -> String {
        format!(
            "workers: 2
{more}
listeners: [{{address: 'unix:{}', {}}}]
admin: {{address: '127.0.0.1:0'}}
routes: [{{name: echo, echo: true}}]
",
            self.path().display(),
            self.keys
        )
    }

    /// The answer that curl gets over the socket.
    fn curl(&self, args: &[&str]) -> String {
        let path = self.path();
        curl(&[&["--unix-socket", path.to_str().unwrap()], args].concat())
    }

    /// All that comes back for `request`, until the gateway closes the connection.
    fn send(&self, request: &[u8]) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(self.path())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

fn is_from(answer: &str, client: &str) -> bool {
    answer.contains(&format!("\"client\": \"{client}\""))
}

#[test]
fn clients_of_a_unix_socket_are_served_in_every_version() {
    let socket = Socket::with("");
    let gateway = Gateway::start(&socket.routes(""));
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let answer = socket.curl(&[version, "http://a/"]);
        assert!(is_from(&answer, "127.0.0.1"), "{answer}");
    }
    let mode = std::fs::metadata(socket.path())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o660);
    // Many at once: both workers accept from the one queue.
    let open: Vec<_> = (0..50)
        .map(|_| UnixStream::connect(socket.path()).unwrap())
        .collect();
    eventually("all are accepted", || {
        (gateway.metric("tollgate_connections") >= 50.0).then_some(())
    });
    for mut stream in open {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[test]
fn tls_is_spoken_over_a_unix_socket() {
    let authority = CertificateAuthority::create();
    authority.issue("a", "DNS:a.example");
    let folder = authority.path("ca.pem").with_file_name("");
    let socket = Socket::with("tls: {certificates: [{cert: FOLDER/a.pem, key: FOLDER/a.key}]}");
    let _gateway = Gateway::start(
        &socket
            .routes("")
            .replace("FOLDER", folder.to_str().unwrap()),
    );
    let ca = authority.path("ca.pem");
    let answer = socket.curl(&[
        "--cacert",
        ca.to_str().unwrap(),
        "-w",
        "over %{http_version}",
        "https://a.example/",
    ]);
    assert!(
        is_from(&answer, "127.0.0.1") && answer.ends_with("over 2"),
        "{answer}"
    );
}

#[test]
fn whom_a_proxy_on_a_unix_socket_names_is_believed_if_unix_is_trusted() {
    let forwarded = ["-H", "X-Forwarded-For: 203.0.113.7", "http://a/"];
    for (trusted, client) in [("unix", "203.0.113.7"), ("127.0.0.1", "127.0.0.1")] {
        let socket = Socket::with("");
        let _gateway = Gateway::start(&socket.routes(&format!("trusted_proxies: [{trusted}]")));
        let answer = socket.curl(&forwarded);
        assert!(is_from(&answer, client), "{trusted}: {answer}");
    }
}

#[test]
fn the_proxy_protocol_comes_over_a_unix_socket_if_unix_is_trusted() {
    let request =
        b"PROXY TCP4 203.0.113.8 198.51.100.1 40000 443\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let socket = Socket::with("proxy_protocol: true");
    {
        let _gateway = Gateway::start(&socket.routes("trusted_proxies: [unix]"));
        let answer = socket.send(request).unwrap();
        assert!(is_from(&answer, "203.0.113.8"), "{answer}");
    }
    let gateway = Gateway::start(&socket.routes("trusted_proxies: [127.0.0.1]"));
    assert!(socket.send(request).unwrap_or_default().is_empty());
    let series = "tollgate_proxy_protocol_connections_total{outcome=\"untrusted\"}";
    assert_eq!(gateway.metric(series), 1.0);
}

#[test]
fn a_socket_that_is_served_is_left_alone_and_a_stale_one_replaced() {
    let socket = Socket::with("socket_mode: 0600");
    let mut running = Gateway::start(&socket.routes(""));
    let mut beside = Gateway::start_unready(&socket.routes(""));
    assert!(!beside.wait().success());
    eventually("it says why", || {
        beside
            .log()
            .contains("another process listens there")
            .then_some(())
    });
    assert!(is_from(&socket.curl(&["http://a/"]), "127.0.0.1"));
    running.signal("KILL");
    running.wait();
    assert!(socket.path().exists());
    let mut next = Gateway::start(&socket.routes(""));
    assert!(is_from(&socket.curl(&["http://a/"]), "127.0.0.1"));
    assert_eq!(
        std::fs::metadata(socket.path())
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    next.signal("TERM");
    assert!(next.wait().success());
    assert!(!socket.path().exists());
}

#[test]
fn a_file_that_is_no_socket_is_kept() {
    let socket = Socket::with("");
    std::fs::write(socket.path(), "notes").unwrap();
    let mut gateway = Gateway::start_unready(&socket.routes(""));
    assert!(!gateway.wait().success());
    eventually("it says why", || {
        gateway
            .log()
            .contains("the file there is no socket")
            .then_some(())
    });
    assert_eq!(std::fs::read_to_string(socket.path()).unwrap(), "notes");
}

/// Connects, asks and closes again and again, until told to stop. Says how often.
fn converse(path: &Path, stop: &AtomicBool, answered: &AtomicUsize) {
    while !stop.load(Ordering::Relaxed) {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_unix_socket_is_handed_over_and_its_file_stays() {
    let socket = Socket::with("");
    let handover = format!("handover: {}/handover.sock", socket.folder.path().display());
    let mut running = Gateway::start(&socket.routes(&handover));
    let (stop, answered) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (path, stop, answered) = (socket.path(), stop.clone(), answered.clone());
            thread::spawn(move || converse(&path, &stop, &answered))
        })
        .collect();
    let progress = || {
        let goal = answered.load(Ordering::Relaxed) + 100;
        let done = || {
            clients.iter().any(|client| client.is_finished())
                || answered.load(Ordering::Relaxed) >= goal
        };
        eventually("requests are answered", || done().then_some(()));
    };
    for _ in 0..3 {
        progress();
        let successor = Gateway::take_over(&socket.routes(&handover));
        assert!(running.wait().success());
        assert!(socket.path().exists());
        running = successor;
    }
    progress();
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    running.signal("TERM");
    assert!(running.wait().success());
    assert!(!socket.path().exists());
}

#[test]
fn a_unix_socket_of_systemd_outlives_the_process() {
    let socket = Socket::with("");
    let listener = UnixListener::bind(socket.path()).unwrap();
    for _ in 0..2 {
        let mut gateway = Gateway::start_as_service(&listener, &[], &socket.routes(""));
        assert!(
            gateway.log().contains("\"origin\":\"systemd\""),
            "{}",
            gateway.log()
        );
        assert!(is_from(&socket.curl(&["http://a/"]), "127.0.0.1"));
        gateway.signal("TERM");
        assert!(gateway.wait().success());
        assert!(socket.path().exists());
    }
}
