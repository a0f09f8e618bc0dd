//! Limits of requests in flight, through gateways: counted to the end of the body, over the fleet,
//! through a crash.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::process::{Gateway, curl, eventually, status};
use tollgate_testing::redis::RedisServer;
use tollgate_testing::{pace, turns};

/// An upstream that sends a head and a part of the body, and the rest of it when the test says so.
struct Slow {
    address: SocketAddr,
    streams: Receiver<TcpStream>,
}

impl Slow {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, streams): (Sender<TcpStream>, _) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut head) = (stream.unwrap(), [0; 4096]);
                if stream.read(&mut head).unwrap_or(0) > 0 {
                    stream
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhalf ")
                        .unwrap();
                    let _ = sender.send(stream);
                }
            }
        });
        Self { address, streams }
    }

    fn finish_one(&self) {
        self.streams
            .recv_timeout(Duration::from_secs(20))
            .unwrap()
            .write_all(b"way\n")
            .unwrap();
    }
}

fn routes(redis: u16, upstream: SocketAddr, limit: &str) -> String {
    format!(
        "workers: 2
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
store: {{redis: 'redis://127.0.0.1:{redis}', timeout: 10s}}
limits: {{busy: {{key: {{constant: all}}, algorithm: concurrency, {limit}}}}}
upstreams: {{slow: {{endpoints: ['http://{upstream}']}}}}
routes:
  - {{name: slow, match: {{path: /slow}}, upstream: slow, limits: [busy]}}
  - {{name: quick, match: {{path: /quick}}, respond: {{status: 200}}, limits: [busy]}}
"
    )
}

/// The status of a request to `path` on a connection of its own, and the connection, with the body
/// still to be read.
fn ask(address: SocketAddr, path: &str) -> (u16, TcpStream) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut line = [0; 12];
    stream.read_exact(&mut line).unwrap();
    (
        std::str::from_utf8(&line[9..]).unwrap().parse().unwrap(),
        stream,
    )
}

/// A request whose answer has begun, and goes on.
fn open(gateway: &Gateway) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    write!(
        stream,
        "GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let (mut read, mut byte) = (Vec::new(), [0]);
    while !read.ends_with(b"half ") {
        assert_eq!(
            stream.read(&mut byte).unwrap(),
            1,
            "{}",
            String::from_utf8_lossy(&read)
        );
        read.push(byte[0]);
    }
    stream
}

fn quick(gateway: &Gateway) -> u16 {
    status(&[&gateway.url("/quick")])
}

fn remaining(gateway: &Gateway) -> u64 {
    let view = gateway.bucket("/buckets/busy");
    view["remaining"]
        .as_u64()
        .unwrap_or_else(|| panic!("{view:#}"))
}

#[test]
fn a_request_holds_its_permit_on_all_nodes_until_its_body_has_ended() {
    let (redis, slow) = (RedisServer::start(), Slow::start());
    let routes = routes(redis.port(), slow.address, "max_in_flight: 2");
    let (one, two) = (Gateway::start(&routes), Gateway::start(&routes));
    let mut first = open(&one);
    let second = open(&two);
    assert_eq!((quick(&one), quick(&two)), (429, 429));
    let answer = curl(&["-i", &one.url("/quick")]);
    for field in [
        "ratelimit: \"busy\";r=0\r\n",
        "ratelimit-policy: \"busy\";q=2;qu=\"concurrent-requests\"\r\n",
        "retry-after: 1\r\n",
    ] {
        assert!(
            answer.to_lowercase().contains(field),
            "{field} is not in {answer}"
        );
    }
    assert_eq!(remaining(&two), 0);
    slow.finish_one();
    let mut rest = String::new();
    first.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "way\n");
    eventually("the other node has the slot", || {
        (quick(&two) == 200).then_some(())
    });
    drop(second);
    eventually("a client that leaves makes room", || {
        (remaining(&one) == 2).then_some(())
    });
    let refused = curl(&[
        "-X",
        "DELETE",
        "-H",
        "x-tollgate-operator: test",
        &format!("http://{}/buckets/busy", one.admin),
    ]);
    assert!(refused.contains("counts requests in flight"), "{refused}");
}

#[test]
fn simultaneous_first_requests_are_admitted_up_to_the_limit() {
    let (redis, slow) = (RedisServer::start(), Slow::start());
    let routes = routes(redis.port(), slow.address, "max_in_flight: 10")
        .replace("constant: all", "query: client");
    let gateways = [Gateway::start(&routes), Gateway::start(&routes)];
    for (nodes, requests) in [(1, 6), (1, 24), (2, 8), (2, 24)] {
        let (barrier, admitted) = (Barrier::new(requests), AtomicUsize::new(0));
        thread::scope(|scope| {
            for request in 0..requests {
                let (barrier, admitted, address) =
                    (&barrier, &admitted, gateways[request % nodes].listeners[0]);
                scope.spawn(move || {
                    barrier.wait();
                    let (status, stream) =
                        ask(address, &format!("/slow?client={nodes}-{requests}"));
                    admitted.fetch_add(usize::from(status == 200), Ordering::Relaxed);
                    // Nobody leaves before all have an answer.
                    barrier.wait();
                    drop(stream);
                });
            }
        });
        let due = requests.min(10);
        assert_eq!(
            admitted.into_inner(),
            due,
            "of {requests} at the same time on {nodes} nodes"
        );
    }
}

/// An upstream that takes ten milliseconds for a request.
fn unhurried() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut head = [0; 4096];
                if stream.read(&mut head).unwrap_or(0) > 0 {
                    // How long a request takes.
                    pace::pause(Duration::from_millis(10));
                    let _ = stream.write_all(
                        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                    );
                }
            });
        }
    });
    address
}

#[test]
fn a_gateway_that_holds_all_permits_leaves_another_its_share() {
    let _turn = turns::among_few();
    let redis = RedisServer::start();
    let routes = routes(redis.port(), unhurried(), "max_in_flight: 4");
    let gateways = [Gateway::start(&routes), Gateway::start(&routes)];
    let (admitted, ended) = (
        [AtomicUsize::new(0), AtomicUsize::new(0)],
        AtomicBool::new(false),
    );
    let counts = || [0, 1].map(|node: usize| admitted[node].load(Ordering::Relaxed));
    thread::scope(|scope| {
        let client = |node: usize| {
            let (admitted, ended, address) = (&admitted[node], &ended, gateways[node].listeners[0]);
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    match ask(address, "/slow").0 {
                        200 => admitted.fetch_add(1, Ordering::Relaxed),
                        // Paces a client that is denied.
                        _ => {
                            pace::pause(Duration::from_millis(3));
                            0
                        }
                    };
                }
            });
        };
        // Enough that a permit which comes back is wanted at once.
        (0..12).for_each(|_| client(0));
        eventually("the first node is busy", || {
            (counts()[0] > 100).then_some(())
        });
        (0..12).for_each(|_| client(1));
        eventually("the second node has permits", || {
            (counts()[1] > 10).then_some(())
        });
        let before = counts();
        eventually("some hundred requests pass", || {
            (counts().iter().sum::<usize>() > before.iter().sum::<usize>() + 400).then_some(())
        });
        let after = counts();
        ended.store(true, Ordering::Relaxed);
        let shares = [after[0] - before[0], after[1] - before[1]];
        assert!(
            shares.iter().all(|share| *share >= 40),
            "{shares:?} were admitted"
        );
    });
}

#[test]
fn permits_of_a_gateway_that_stops_are_free_at_once() {
    let (redis, slow) = (RedisServer::start(), Slow::start());
    let routes = routes(redis.port(), slow.address, "max_in_flight: 1");
    let (mut one, two) = (Gateway::start(&routes), Gateway::start(&routes));
    let _held = open(&one);
    // A request that is denied would be remembered.
    assert_eq!(remaining(&two), 0);
    one.signal("TERM");
    slow.finish_one();
    one.wait();
    assert_eq!(quick(&two), 200);
}

#[test]
fn permits_of_a_killed_gateway_come_back_within_seconds() {
    let (redis, slow) = (RedisServer::start(), Slow::start());
    let routes = routes(redis.port(), slow.address, "max_in_flight: 1");
    let (one, two) = (Gateway::start(&routes), Gateway::start(&routes));
    let _held = open(&one);
    assert_eq!(quick(&two), 429);
    one.signal("KILL");
    eventually("the slot is free", || (quick(&two) == 200).then_some(()));
}

#[test]
fn a_request_may_queue_for_a_permit_and_a_shadow_limit_only_counts() {
    let (redis, slow) = (RedisServer::start(), Slow::start());
    let waiting = Gateway::start(&routes(
        redis.port(),
        slow.address,
        "max_in_flight: 1, on_limit: {queue: {max_wait: 20s}}",
    ));
    let held = open(&waiting);
    let late = thread::spawn({
        let url = waiting.url("/quick");
        move || status(&[&url])
    });
    let line = "tollgate_ratelimit_queue_waiting{limit=\"busy\"}";
    eventually("it waits", || (waiting.metric(line) > 0.0).then_some(()));
    slow.finish_one();
    drop(held);
    assert_eq!(late.join().unwrap(), 200);

    let watching = Gateway::start(&routes(
        redis.port(),
        slow.address,
        "max_in_flight: 1, on_limit: shadow",
    ));
    let _held = open(&watching);
    eventually("it would have been denied", || {
        assert_eq!(quick(&watching), 200);
        let counted = |by| {
            format!(
                "tollgate_ratelimit_decisions_total{{limit=\"busy\",verdict=\"shadow_denied\",decided_by=\"{by}\"}}"
            )
        };
        ["redis", "denial_cache"]
            .iter()
            .any(|by| watching.metric(&counted(by)) > 0.0)
            .then_some(())
    });
}
