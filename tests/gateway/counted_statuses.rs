//! Limits that count responses by their status: taken before, and given back where the status is
//! another.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::process::{Gateway, eventually, status};
use tollgate_testing::redis::RedisServer;

/// Answers 200 and 401 in turn, under `/held` each once the test lets it, under `/silent` never.
struct Login {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    release: Sender<()>,
}

impl Login {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let (release, released) = channel();
        let (count, released) = (requests.clone(), Arc::new(Mutex::new(released)));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, count, released) =
                    (stream.unwrap(), count.clone(), released.clone());
                thread::spawn(move || {
                    let (mut head, mut byte) = (Vec::new(), [0]);
                    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                        head.push(byte[0]);
                    }
                    let number = count.fetch_add(1, Ordering::SeqCst);
                    let is_for = |path: &[u8]| head.windows(path.len()).any(|part| part == path);
                    let (held, silent) = (is_for(b" /held"), is_for(b" /silent"));
                    if held {
                        let _ = released.lock().unwrap().recv();
                    }
                    let status = if held || number % 2 == 1 {
                        "401 Unauthorized"
                    } else {
                        "200 OK"
                    };
                    if silent {
                        while stream.read(&mut byte).unwrap_or(0) > 0 {}
                    }
                    let _ = write!(
                        stream,
                        "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    );
                });
            }
        });
        Self {
            address,
            requests,
            release,
        }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn routes(store: Option<u16>, limits: &str, upstream: SocketAddr) -> String {
    let store = store.map_or_else(String::new, |port| {
        format!("store: {{redis: 'redis://127.0.0.1:{port}', timeout: 10s}}\n")
    });
    format!(
        "workers: 2
listeners: [{{address: '127.0.0.1:0', limits: [l], body_timeout: 3s}}]
admin: {{address: '127.0.0.1:0'}}
{store}limits: {{{limits}}}
upstreams:
  login: {{endpoints: ['http://{upstream}'], response_timeout: 5s}}
  slow: {{endpoints: ['http://{upstream}'], response_timeout: 100ms}}
  gone: {{endpoints: ['http://127.0.0.1:1']}}
routes:
  - {{name: gone, match: {{path: /gone}}, upstream: gone}}
  - {{name: slow, match: {{path: /silent/slow}}, upstream: slow}}
  - {{name: silent-small, match: {{path: /silent/small}}, upstream: login, max_body: 1}}
  - {{name: timed, match: {{path: /silent/timed}}, upstream: login, timeout: 1s}}
  - {{name: whole, match: {{path: /silent/whole}}, upstream: login, timeouts: {{request: 1s}}}}
  - {{name: small, match: {{path: /small}}, upstream: login, max_body: 1}}
  - {{name: once, match: {{path: /once}}, respond: {{status: 401}}, limits: [{{limit: other, cost: 2}}]}}
  - {{name: login, match: {{path: '/*'}}, upstream: login}}
"
    )
}

const OTHER: &str = "other: {key: {constant: all}, rate: 2/30d}";

fn left(gateway: &Gateway) -> u64 {
    let view = gateway.bucket("/buckets/l");
    view["remaining"]
        .as_u64()
        .unwrap_or_else(|| panic!("{view:#}"))
}

fn until_left(gateway: &Gateway, tokens: u64) {
    eventually(&format!("{tokens} are left"), || {
        (left(gateway) == tokens).then_some(())
    });
}

fn settlements(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&format!(
        "tollgate_ratelimit_settlements_total{{limit=\"l\",outcome=\"{outcome}\"}}"
    ))
}

#[test]
fn exactly_the_failures_are_charged() {
    let redis = RedisServer::start();
    for algorithm in ["token_bucket", "fixed_window", "sliding_window"] {
        for store in [None, Some(redis.port())] {
            let login = Login::start();
            let limit = format!(
                "l: {{key: {{constant: all}}, algorithm: {algorithm}, rate: 3/30d, count: {{status: [401, 403]}}}}, {OTHER}"
            );
            let gateway = Gateway::start(&routes(store, &limit, login.address));
            for remaining in [2, 1, 0] {
                assert_eq!(status(&[&gateway.url("/")]), 200);
                until_left(&gateway, remaining + 1);
                assert_eq!(status(&[&gateway.url("/")]), 401);
                until_left(&gateway, remaining);
            }
            assert_eq!(status(&[&gateway.url("/")]), 429, "{algorithm} {store:?}");
            assert_eq!((login.requests(), left(&gateway)), (6, 0));
            assert_eq!(
                (
                    settlements(&gateway, "uncounted"),
                    settlements(&gateway, "even")
                ),
                (3.0, 3.0)
            );
            redis.command(&["FLUSHALL"]);
        }
    }
}

#[test]
fn guesses_at_once_are_no_more_than_the_limit() {
    let redis = RedisServer::start();
    for store in [None, Some(redis.port())] {
        let login = Login::start();
        let limit =
            format!("l: {{key: [client_ip], rate: 5/30d, count: {{status: [401, 403]}}}}, {OTHER}");
        let gateway = Gateway::start(&routes(store, &limit, login.address));
        let target = gateway.url("/held");
        let answers: Vec<u16> = thread::scope(|scope| {
            let (denied, denials) = channel();
            let guesses: Vec<_> = (0..20)
                .map(|_| {
                    let (denied, target) = (denied.clone(), &target);
                    scope.spawn(move || {
                        let answer = status(&[target]);
                        if answer == 429 {
                            denied.send(()).unwrap();
                        }
                        answer
                    })
                })
                .collect();
            // No response has begun before all others are denied.
            (0..15).for_each(|_| denials.recv_timeout(tollgate_testing::PATIENCE).unwrap());
            eventually("the others have arrived", || {
                (login.requests() == 5).then_some(())
            });
            (0..5).for_each(|_| login.release.send(()).unwrap());
            guesses
                .into_iter()
                .map(|guess| guess.join().unwrap())
                .collect()
        });
        let got = |code| answers.iter().filter(|answer| **answer == code).count();
        assert_eq!((got(401), got(429), login.requests()), (5, 15, 5));
        assert_eq!(status(&[&target]), 429, "all five stay charged");
        redis.command(&["FLUSHALL"]);
    }
}

#[test]
fn unsent_requests_count_by_the_status_of_their_answer_and_a_denial_counts_for_nothing() {
    let login = Login::start();
    let limit = |count| {
        format!("l: {{key: {{constant: all}}, rate: 9/30d, count: {{status: {count}}}}}, {OTHER}")
    };
    for (counted, remaining) in [("[413, 5xx]", [8, 7, 6]), ("[403]", [9, 8, 8])] {
        let gateway = Gateway::start(&routes(None, &limit(counted), login.address));
        assert_eq!(status(&[&gateway.url("/gone")]), 502);
        until_left(&gateway, remaining[0]);
        assert_eq!(status(&[&gateway.url("/silent/slow")]), 504);
        until_left(&gateway, remaining[1]);
        assert_eq!(status(&["-d", "too long", &gateway.url("/small")]), 413);
        until_left(&gateway, remaining[2]);
    }
    let gateway = Gateway::start(&routes(None, &limit("[401, 429]"), login.address));
    assert_eq!(status(&[&gateway.url("/once")]), 401);
    assert_eq!(
        status(&[&gateway.url("/once")]),
        429,
        "the other limit is spent"
    );
    assert_eq!(left(&gateway), 8, "and a denial is no response that counts");
}

#[test]
fn a_client_that_leaves_before_its_response_is_charged() {
    let login = Login::start();
    let limit =
        format!("l: {{key: {{constant: all}}, rate: 9/30d, count: {{status: [401]}}}}, {OTHER}");
    let gateway = Gateway::start(&routes(None, &limit, login.address));
    let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
    stream
        .write_all(b"GET /silent HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    eventually("the upstream has it", || {
        (login.requests() == 1).then_some(())
    });
    drop(stream);
    eventually("it is settled", || {
        (settlements(&gateway, "cut") == 1.0).then_some(())
    });
    assert_eq!(left(&gateway), 8);
}

/// Whatever the client does to get another answer than the upstream's: the upstream may have judged
/// its guess.
#[test]
fn a_client_that_makes_the_gateway_fail_is_charged_for_what_was_sent() {
    const CASES: [(&str, &str, Option<&str>); 7] = [
        ("", "", Some("zz\r\n")),
        ("/small", "", Some("1\r\ny\r\n")),
        (
            "",
            "Content-Type: application/grpc\r\ngrpc-timeout: 1S\r\n",
            Some("0\r\n\r\n"),
        ),
        ("/timed", "", Some("")),
        ("/whole", "", Some("")),
        // Silent until the listener's time for a body is over.
        ("", "", Some("")),
        // Leaves within its body.
        ("", "", None),
    ];
    let login = Login::start();
    for (cost, price) in [("1", 1), ("{response_header: x-used, reserve: 2}", 2)] {
        let limit = format!(
            "l: {{key: {{constant: all}}, rate: 90/30d, cost: {cost}, count: {{status: [401, 403]}}}}, {OTHER}"
        );
        let gateway = Gateway::start(&routes(None, &limit, login.address));
        let before = login.requests();
        let mut clients: Vec<TcpStream> = CASES
            .iter()
            .map(|(path, fields, _)| {
                let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
                let head = format!("POST /silent{path} HTTP/1.1\r\nHost: a\r\n{fields}");
                write!(stream, "{head}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n").unwrap();
                stream
            })
            .collect();
        eventually("the upstream has them", || {
            (login.requests() == before + CASES.len()).then_some(())
        });
        for ((_, _, rest), stream) in CASES.iter().zip(&mut clients) {
            match rest {
                Some(rest) => stream.write_all(rest.as_bytes()).unwrap(),
                None => stream.shutdown(std::net::Shutdown::Both).unwrap(),
            }
        }
        let outcomes = || {
            ["even", "absent", "cut", "uncounted", "unreached"]
                .map(|outcome| settlements(&gateway, outcome))
        };
        eventually("all are settled", || {
            (outcomes().iter().sum::<f64>() == CASES.len() as f64).then_some(())
        });
        assert_eq!(outcomes()[3..], [0.0, 0.0], "{cost}: {:?}", outcomes());
        assert_eq!(left(&gateway), 90 - price * CASES.len() as u64);
    }
}
