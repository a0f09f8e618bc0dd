//! Restarts under load: the successor serves before the predecessor drains, and no request is lost.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::process::{Gateway, curl, eventually, status};
use tollgate_testing::PATIENCE;

/// A gateway that can be taken over from at a socket in `folder`.
fn routes(folder: &Path, workers: usize, more: &str) -> String {
    format!(
        "workers: {workers}
handover: {}/handover.sock
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
{more}
routes: [{{name: all, respond: {{body: \"{workers} workers\"}}}}]
",
        folder.display()
    )
}

/// Clients that send request after request, and stop at the first one without an answer.
struct ClosedLoop {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Result<(), String>>>,
}

impl ClosedLoop {
    fn start(address: SocketAddr, clients: usize) -> Self {
        let (stop, answered) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let clients = (0..clients).map(|index| {
            let (stop, answered) = (stop.clone(), answered.clone());
            // Every other client opens a connection for each request.
            let keeps = index % 2 == 0;
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    converse(address, keeps, &stop, &answered)
                        .map_err(|error| error.to_string())?;
                }
                Ok(())
            })
        });
        Self {
            clients: clients.collect(),
            stop,
            answered,
        }
    }

    /// Waits until so many more requests are answered.
    fn progress(&self, more: usize) {
        let goal = self.answered.load(Ordering::Relaxed) + more;
        eventually("requests are answered", || {
            let failed = self.clients.iter().any(JoinHandle::is_finished);
            (failed || self.answered.load(Ordering::Relaxed) >= goal).then_some(())
        });
    }

    /// Ends, and says how many requests were answered. All were.
    fn finish(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap().unwrap();
        }
        self.answered.load(Ordering::Relaxed)
    }
}

/// A connection, until the gateway says that it closes it.
fn converse(
    address: SocketAddr,
    keeps: bool,
    stop: &AtomicBool,
    answered: &AtomicUsize,
) -> std::io::Result<()> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(&stream);
    loop {
        (&stream).write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
        let closes = read_answer(&mut reader)?;
        answered.fetch_add(1, Ordering::Relaxed);
        if closes || !keeps || stop.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

/// Whether the connection closes after the answer.
fn read_answer(reader: &mut impl BufRead) -> std::io::Result<bool> {
    let (mut length, mut closes, mut first) = (0, false, true);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_ascii_lowercase();
        if std::mem::take(&mut first) && !line.starts_with("http/1.1 200") {
            return Err(std::io::Error::other(format!("the answer is {line:?}")));
        }
        if line.is_empty() {
            break;
        }
        closes |= line == "connection: close";
        length = line
            .strip_prefix("content-length: ")
            .map_or(length, |value| value.parse().unwrap());
    }
    let mut content = vec![0; length];
    reader.read_exact(&mut content)?;
    Ok(closes)
}

/// Sends requests over HTTP/2 until told to stop. A request that the gateway says it has not begun
/// is sent again, on another connection (RFC 9113 §6.8); any other failure is lost.
async fn converse_over_http2(address: SocketAddr, stop: Arc<AtomicBool>) -> Result<usize, String> {
    let mut answered = 0;
    while !stop.load(Ordering::Relaxed) {
        let stream = tokio::net::TcpStream::connect(address)
            .await
            .map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        loop {
            let request = Request::get("http://a/")
                .body(Empty::<Bytes>::new())
                .unwrap();
            match sender.send_request(request).await {
                Ok(response) if response.status() == 200 => answered += 1,
                Ok(response) => return Err(format!("the answer is {}", response.status())),
                Err(error) if was_not_begun(&error) => break,
                Err(error) => return Err(format!("{error:?}")),
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    Ok(answered)
}

fn was_not_begun(error: &hyper::Error) -> bool {
    let source =
        std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
    let is_graceful =
        |error: &h2::Error| error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
    error.is_canceled()
        || source.is_some_and(|error| {
            is_graceful(error) || error.reason() == Some(h2::Reason::REFUSED_STREAM)
        })
}

#[test]
fn no_request_over_http_2_is_lost_by_a_hand_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = Gateway::start(&routes(folder.path(), 2, ""));
    let (address, stop) = (running.listeners[0], Arc::new(AtomicBool::new(false)));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let clients: Vec<_> = (0..6)
        .map(|_| runtime.spawn(converse_over_http2(address, stop.clone())))
        .collect();
    let load = ClosedLoop::start(address, 2);
    for workers in [1, 3, 2] {
        load.progress(100);
        let successor = Gateway::take_over(&routes(folder.path(), workers, ""));
        assert!(running.wait().success());
        running = successor;
    }
    load.progress(100);
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(runtime.block_on(client).unwrap().unwrap() > 0);
    }
    load.finish();
}

#[test]
fn a_gateway_is_taken_over_from_again_and_again_without_a_failed_request() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = Gateway::start(&routes(folder.path(), 2, ""));
    let (address, admin) = (running.listeners[0], running.admin);
    let load = ClosedLoop::start(address, 8);
    for workers in [1, 3, 2, 4] {
        load.progress(200);
        let successor = Gateway::take_over(&routes(folder.path(), workers, ""));
        assert_eq!((successor.listeners[0], successor.admin), (address, admin));
        assert!(running.wait().success());
        let is_told = || {
            running
                .log()
                .contains("another gateway has taken over")
                .then_some(())
        };
        eventually("its log says so", is_told);
        running = successor;
        load.progress(200);
        assert_eq!(curl(&[&running.url("/")]), format!("{workers} workers"));
        assert!(running.metrics().contains("\ntollgate_connections_total "));
    }
    println!("{} requests over four hand-overs", load.finish());
    running.signal("TERM");
    assert!(running.wait().success());
    assert!(!folder.path().join("handover.sock").exists());
}

#[test]
fn a_successor_that_fails_to_start_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = Gateway::start(&routes(folder.path(), 2, ""));
    let load = ClosedLoop::start(running.listeners[0], 4);
    let occupied = TcpListener::bind("127.0.0.1:0").unwrap();
    let two = format!(
        "listeners: [{{address: '127.0.0.1:0'}}, {{address: '{}'}}]",
        occupied.local_addr().unwrap()
    );
    let two = routes(folder.path(), 2, "").replace("listeners: [{address: '127.0.0.1:0'}]", &two);
    let mut failing = Gateway::take_over_unready(&two);
    assert!(!failing.wait().success());
    eventually("the running gateway says so", || {
        running.log().contains("a hand-over failed").then_some(())
    });
    load.progress(200);
    assert!(!running.has_ended());
    // A gateway that was asked to start beside it, and not to take over, finds the socket in use.
    let mut beside = Gateway::start_unready(&routes(folder.path(), 2, ""));
    assert!(!beside.wait().success());
    assert!(
        beside.log().contains("take over from it with --take-over"),
        "{}",
        beside.log()
    );
    let _successor = Gateway::take_over(&routes(folder.path(), 2, ""));
    assert!(running.wait().success());
    load.progress(200);
    load.finish();
}

#[test]
fn a_successor_that_hangs_keeps_no_other_from_taking_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = Gateway::start(&routes(folder.path(), 2, ""));
    let load = ClosedLoop::start(running.listeners[0], 4);
    // It has asked for the sockets, and says nothing more.
    let mut hanging = UnixStream::connect(folder.path().join("handover.sock")).unwrap();
    hanging.set_read_timeout(Some(PATIENCE)).unwrap();
    hanging
        .write_all(b"{\"take_over\":{\"protocol\":1,\"pid\":1}}\n")
        .unwrap();
    eventually("it has the sockets", || {
        running
            .log()
            .contains("handing the listening sockets over")
            .then_some(())
    });
    for workers in [1, 3] {
        let successor = Gateway::take_over(&routes(folder.path(), workers, ""));
        assert!(running.wait().success());
        running = successor;
        load.progress(200);
    }
    load.finish();
    // It is told, in case it goes on after all.
    let mut said = String::new();
    hanging.read_to_string(&mut said).unwrap();
    let last = said.lines().last().unwrap();
    assert!(
        last.contains("refused") && last.contains("has taken over meanwhile"),
        "{said}"
    );
}

#[test]
fn a_gateway_that_hangs_before_it_hands_over_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let running = Gateway::start(&routes(folder.path(), 1, ""));
    running.signal("STOP");
    let mut successor = Gateway::take_over_unready(&routes(folder.path(), 1, ""));
    assert!(!successor.wait().success());
    running.signal("CONT");
    let log = successor.log();
    assert!(
        log.contains("it runs and has not answered for 10 s") && !log.contains("os error"),
        "{log}"
    );
    assert_eq!(status(&[&running.url("/")]), 200);
}

#[test]
fn a_process_that_is_too_late_accepts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = Gateway::start(&routes(folder.path(), 1, ""));
    let load = ClosedLoop::start(running.listeners[0], 4);
    // Its store says nothing, and it waits for that one for a second: time enough to hold it before
    // it can serve.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!(
        "store: {{redis: 'redis://{}'}}",
        silent.local_addr().unwrap()
    );
    let mut late = Gateway::take_over_unready(&routes(folder.path(), 4, &store));
    eventually("it has the sockets", || {
        running
            .log()
            .contains("handing the listening sockets over")
            .then_some(())
    });
    late.signal("STOP");
    load.progress(100);
    let mut successor = Gateway::take_over(&routes(folder.path(), 1, ""));
    assert!(running.wait().success());
    assert!(
        running.log().contains("a process is too late to take over"),
        "{}",
        running.log()
    );
    load.progress(100);
    late.signal("CONT");
    assert!(!late.wait().success());
    assert!(
        late.log().contains("too late to take over: the process"),
        "{}",
        late.log()
    );
    assert!(!late.log().contains("\"serving\""), "{}", late.log());
    load.progress(100);
    load.finish();
    successor.signal("TERM");
    assert!(successor.wait().success());
}

#[test]
fn taking_over_where_nothing_runs_is_an_ordinary_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut killed = Gateway::start(&routes(folder.path(), 1, ""));
    killed.signal("KILL");
    killed.wait();
    assert!(folder.path().join("handover.sock").exists());
    let started = Gateway::take_over(&routes(folder.path(), 1, ""));
    assert_eq!(status(&[&started.url("/")]), 200);
    assert!(
        started
            .log()
            .contains("no gateway runs that could be taken over"),
        "{}",
        started.log()
    );
}

#[test]
fn connections_that_wait_in_the_queue_are_served_by_the_successor() {
    let folder = tempfile::tempdir().unwrap();
    let full = routes(folder.path(), 1, "drain_timeout: 1s").replace(
        "{address: '127.0.0.1:0'}]",
        "{address: '127.0.0.1:0', max_connections: 1}]",
    );
    let mut running = Gateway::start(&full);
    // A request that does not end holds the only place.
    let mut slow = TcpStream::connect(running.listeners[0]).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    eventually("it is accepted", || {
        (running.metric("tollgate_connections") >= 1.0).then_some(())
    });
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let mut client = TcpStream::connect(running.listeners[0]).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                .unwrap();
            client
        })
        .collect();
    let _successor = Gateway::take_over(&routes(folder.path(), 1, ""));
    for mut client in waiting {
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    }
    assert!(running.wait().success());
}

#[test]
fn a_socket_of_systemd_outlives_the_processes_that_serve_it() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let notified = tempfile::tempdir().unwrap();
    let path = notified.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut text = [0; 200];
        let length = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length])
            .lines()
            .next()
            .unwrap()
            .to_owned()
    };
    let routes = |listener: &str| {
        format!(
            "workers: 3\nlisteners: [{{{listener}}}]\nadmin: off\nroutes: [{{name: all, respond: {{body: x}}}}]\n"
        )
    };
    let by_address = routes(&format!("address: '{address}'"));
    let by_name = routes("address: '127.0.0.1:0', socket_name: web");
    let variables = [
        ("NOTIFY_SOCKET", path.to_str().unwrap()),
        ("LISTEN_FDNAMES", "web"),
    ];
    let load = ClosedLoop::start(address, 8);
    for routes in [&by_address, &by_name, &by_address] {
        let mut gateway = Gateway::start_as_service(&socket, &variables, routes);
        assert_eq!(gateway.listeners, [address]);
        assert_eq!(told(), "READY=1");
        load.progress(200);
        gateway.signal("HUP");
        assert_eq!([told(), told()], ["RELOADING=1", "READY=1"]);
        gateway.signal("TERM");
        assert_eq!(told(), "STOPPING=1");
        assert!(gateway.wait().success());
    }
    let _last = Gateway::start_as_service(&socket, &variables, &by_address);
    load.progress(200);
    load.finish();
}
