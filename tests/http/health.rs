//! Endpoints that fail requests or probes get no more of them, and are back when they are fit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::proxy_server::{ForwarderConfig, ProxyServer};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tollgate_limiter::limit::status_set::{StatusRange, StatusSet};
use tollgate_proxy::upstream::balance::Tried;
use tollgate_proxy::upstream::health::Percentage;
use tollgate_proxy::upstream::health::check::{HealthCheck, HealthSpec};
use tollgate_proxy::upstream::health::condition::ProbeThresholds;
use tollgate_proxy::upstream::health::ejection::EjectSpec;
use tollgate_proxy::upstream::latency::outliers::LatencyRule;
use tollgate_proxy::upstream::tls::UpstreamTls;
use tollgate_proxy::upstream::watch::monitor;
use tollgate_proxy::upstream::{Upstream, UpstreamSpec};
use tollgate_testing::nginx::NginxServer;
use tollgate_testing::topology::{CapturedLog, CertificateAuthority};
use tollgate_testing::until;
use tollgate_testing::upstream::{OK, RawConnection, ScriptedUpstream};
use tollgate_wire::transport::tls::client::{ClientTls, ClientTlsSpec};
use tonic_health::ServingStatus;
use tower_service::Service as _;

const FAILURE: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\nno";
const HOUR: Duration = Duration::from_secs(3600);

/// After three failures in a row, for an hour.
fn eject() -> EjectSpec {
    EjectSpec {
        after: 3,
        base: HOUR,
        longest: HOUR,
        at_most: Percentage::new(50),
        latency: None,
    }
}

/// How long a flip may take here: probes come every 20 ms.
fn probe(check: HealthCheck) -> HealthSpec {
    let (interval, timeout) = (Duration::from_millis(20), Duration::from_secs(5));
    HealthSpec {
        check,
        interval,
        timeout,
        thresholds: ProbeThresholds {
            unhealthy_after: 3,
            healthy_after: 2,
        },
    }
}

fn by_path() -> HealthCheck {
    let status = StatusSet::new([StatusRange::from(200..=399)]).unwrap();
    HealthCheck::Http {
        path: "/healthz?deep".parse().unwrap(),
        host: None,
        status,
    }
}

/// The status of the answer to one GET over a connection of its own.
async fn get(front: &ProxyServer) -> u16 {
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await;
    client
        .rest()
        .await
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

/// How many of `count` requests are answered with `status`. All others must be answered with 200.
async fn failed_of(count: usize, status: u16, front: &ProxyServer) -> usize {
    let mut failed = 0;
    for _ in 0..count {
        match get(front).await {
            200 => {}
            other => {
                assert_eq!(other, status);
                failed += 1;
            }
        }
    }
    failed
}

async fn ejecting(
    endpoints: &[SocketAddr],
    change: impl FnOnce(&mut ForwarderConfig),
) -> ProxyServer {
    ProxyServer::with(endpoints, |plan| {
        plan.spec.eject = Some(eject());
        change(plan);
    })
    .await
}

/// Watches over the front's upstream, as the control plane does.
fn watch(front: &ProxyServer) -> Watch {
    let upstream = Arc::clone(&front.gate.upstream);
    Watch(tokio::spawn(async move {
        loop {
            monitor::tend(&upstream);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }))
}

struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn in_service(front: &ProxyServer) -> Vec<bool> {
    front
        .gate
        .upstream
        .endpoints()
        .iter()
        .map(|endpoint| endpoint.condition().is_in_service())
        .collect()
}

#[tokio::test]
async fn an_endpoint_that_answers_500_is_ejected_after_so_many() {
    let (log, _logging) = CapturedLog::start();
    let good = ScriptedUpstream::answering(OK).await;
    let bad = ScriptedUpstream::answering(FAILURE).await;
    let front = ejecting(&[bad.address, good.address], |_| {}).await;
    assert_eq!(failed_of(60, 500, &front).await, 3);
    assert_eq!(in_service(&front), [false, true]);
    let lines = log.text().matches("an endpoint is ejected").count();
    assert_eq!(lines, 1, "{}", log.text());
    assert!(log.text().contains("reason=\"500\""), "{}", log.text());
}

#[tokio::test]
async fn an_endpoint_that_resets_is_ejected_after_so_many() {
    let good = ScriptedUpstream::answering(OK).await;
    let bad = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.stream.set_zero_linger().unwrap();
    })
    .await;
    let front = ejecting(&[bad.address, good.address], |_| {}).await;
    assert_eq!(failed_of(60, 502, &front).await, 3);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_hangs_is_ejected_after_so_many() {
    let good = ScriptedUpstream::answering(OK).await;
    let bad = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.rest().await;
    })
    .await;
    let patient =
        |plan: &mut ForwarderConfig| plan.spec.response_timeout = Duration::from_millis(500);
    let front = ejecting(&[bad.address, good.address], patient).await;
    assert_eq!(failed_of(20, 504, &front).await, 3);
}

#[tokio::test]
async fn an_endpoint_whose_idle_connections_close_is_not_at_fault() {
    // Each connection carries one request, and closes just as the second one comes.
    let closing = || {
        ScriptedUpstream::start(|mut wire, _| async move {
            wire.head().await;
            wire.send(OK).await;
            wire.try_head().await;
        })
    };
    let both = [closing().await, closing().await];
    let front = ejecting(&both.each_ref().map(|server| server.address), |plan| {
        plan.spec.eject = Some(EjectSpec {
            after: 1,
            ..eject()
        });
    })
    .await;
    assert_eq!(failed_of(10, 200, &front).await, 0);
    assert_eq!(in_service(&front), [true, true]);
    assert_eq!(
        both.iter()
            .map(ScriptedUpstream::connections)
            .sum::<usize>(),
        10,
        "none carried two"
    );
}

#[tokio::test]
async fn a_success_ends_a_row_of_failures() {
    let good = ScriptedUpstream::answering(OK).await;
    let mixed = ScriptedUpstream::start(|mut wire, _| async move {
        for number in 0_usize.. {
            if wire.try_head().await.is_none() {
                return;
            }
            wire.send(if number % 3 == 2 { OK } else { FAILURE }).await;
        }
    })
    .await;
    let front = ejecting(&[mixed.address, good.address], |_| {}).await;
    assert_eq!(failed_of(60, 500, &front).await, 20);
    assert_eq!(in_service(&front), [true, true]);
}

#[tokio::test]
async fn no_more_endpoints_are_ejected_than_the_rule_lets() {
    let mut servers = vec![ScriptedUpstream::answering(OK).await];
    for _ in 0..3 {
        servers.push(ScriptedUpstream::answering(FAILURE).await);
    }
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let front = ejecting(&addresses, |_| {}).await;
    failed_of(80, 500, &front).await;
    assert_eq!(in_service(&front).iter().filter(|fit| !**fit).count(), 2);
    // The one that fails and may not be ejected has its half of the requests.
    assert_eq!(failed_of(40, 500, &front).await, 20);
}

#[tokio::test]
async fn an_ejected_endpoint_is_back_after_its_time_and_out_again_at_its_first_failure() {
    let (log, _logging) = CapturedLog::start();
    let good = ScriptedUpstream::answering(OK).await;
    let broken = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&broken);
    let bad = ScriptedUpstream::start(move |mut wire, _| {
        let state = Arc::clone(&state);
        async move {
            while wire.try_head().await.is_some() {
                wire.send(if state.load(Ordering::SeqCst) {
                    FAILURE
                } else {
                    OK
                })
                .await;
            }
        }
    })
    .await;
    // Longer than the rest of the first six requests takes on a busy machine.
    let short = Duration::from_secs(1);
    let brief = |plan: &mut ForwarderConfig| {
        plan.spec.eject = Some(EjectSpec {
            base: short,
            ..eject()
        })
    };
    let front = ejecting(&[bad.address, good.address], brief).await;
    assert_eq!(failed_of(6, 500, &front).await, 3);
    let ejections = || {
        front.gate.upstream.endpoints()[0]
            .condition()
            .ejection()
            .total()
    };
    assert_eq!(ejections(), 1);
    // It returns without anybody who watches: the next request finds that its time is over.
    let mut failed = 0;
    while ejections() < 2 {
        failed += failed_of(1, 500, &front).await;
    }
    assert_eq!(failed, 1);
    broken.store(false, Ordering::SeqCst);
    let _watch = watch(&front);
    until("it is back", || in_service(&front) == [true, true]).await;
    assert_eq!(failed_of(20, 200, &front).await, 0);
    assert_eq!(ejections(), 2);
    assert_eq!(
        log.text()
            .matches("an endpoint is no longer ejected")
            .count(),
        2,
        "{}",
        log.text()
    );
}

#[tokio::test]
async fn an_endpoint_keeps_its_condition_when_its_upstream_is_built_anew() {
    let good = ScriptedUpstream::answering(OK).await;
    let bad = ScriptedUpstream::answering(FAILURE).await;
    let front = ejecting(&[bad.address, good.address], |_| {}).await;
    assert_eq!(failed_of(10, 500, &front).await, 3);
    let mut spec = (**front.gate.upstream.spec()).clone();
    spec.endpoints.reverse();
    let anew = Upstream::new(Arc::new(spec.clone()), Some(&front.gate.upstream));
    let fit: Vec<_> = anew
        .endpoints()
        .iter()
        .map(|endpoint| endpoint.condition().is_in_service())
        .collect();
    assert_eq!(fit, [true, false]);
    // Rules that are others hold nobody back.
    let latency = LatencyRule {
        above: HOUR,
        factor: 3,
        requests: 20,
        window: HOUR,
    };
    let others = [
        UpstreamSpec {
            eject: None,
            ..spec.clone()
        },
        UpstreamSpec {
            health: Some(probe(by_path())),
            ..spec.clone()
        },
        UpstreamSpec {
            eject: Some(EjectSpec {
                latency: Some(latency),
                ..eject()
            }),
            ..spec
        },
    ];
    for spec in others {
        let free = Upstream::new(Arc::new(spec), Some(&anew));
        assert!(
            free.endpoints()
                .iter()
                .all(|endpoint| endpoint.condition().is_in_service())
        );
    }
}

/// A server whose `/healthz?deep` says whether it is well, and how often it was asked.
async fn with_health(well: &Arc<AtomicBool>) -> (ScriptedUpstream, Arc<AtomicUsize>) {
    let (well, probes) = (Arc::clone(well), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&probes);
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let (well, count) = (Arc::clone(&well), Arc::clone(&count));
        async move {
            while let Some(head) = wire.try_head().await {
                if !head.starts_with("GET /healthz?deep HTTP/1.1\r\n") {
                    wire.send(OK).await;
                    continue;
                }
                assert!(
                    head.contains("user-agent: tollgate-health\r\n")
                        && head.contains("host: 127.0.0.1:"),
                    "{head}"
                );
                count.fetch_add(1, Ordering::SeqCst);
                wire.send(if well.load(Ordering::SeqCst) {
                    OK
                } else {
                    FAILURE
                })
                .await;
            }
        }
    })
    .await;
    (server, probes)
}

#[tokio::test]
async fn an_endpoint_that_fails_its_probes_gets_no_requests_until_it_passes_them() {
    let (log, _logging) = CapturedLog::start();
    let well = Arc::new(AtomicBool::new(true));
    let (server, probes) = with_health(&well).await;
    let other = ScriptedUpstream::answering(OK).await;
    let front = ProxyServer::with(&[server.address, other.address], |plan| {
        plan.spec.health = Some(probe(by_path()))
    })
    .await;
    let _watch = watch(&front);
    until("it is asked", || probes.load(Ordering::SeqCst) > 3).await;
    assert_eq!(in_service(&front), [true, true]);
    well.store(false, Ordering::SeqCst);
    until("it is unhealthy", || in_service(&front) == [false, true]).await;
    let before = server.connections() - probes.load(Ordering::SeqCst);
    assert_eq!(failed_of(20, 200, &front).await, 0);
    assert_eq!(
        server.connections() - probes.load(Ordering::SeqCst),
        before,
        "only probes"
    );
    well.store(true, Ordering::SeqCst);
    until("it is healthy", || in_service(&front) == [true, true]).await;
    for line in ["an endpoint is unhealthy", "an endpoint is healthy again"] {
        assert_eq!(log.text().matches(line).count(), 1, "{}", log.text());
    }
    assert!(
        log.text().contains("reason=it answered 500"),
        "{}",
        log.text()
    );
}

#[tokio::test]
async fn no_more_than_a_part_of_an_answer_without_end_is_read_of_a_probe() {
    let (log, _logging) = CapturedLog::start();
    // Some hints are none of the probe's business, and too many would keep the control plane from
    // its work.
    let hinting = |hints: usize| {
        ScriptedUpstream::start(move |mut wire, _| async move {
            wire.head().await;
            let answer = [
                "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(hints).as_str(),
                OK,
            ]
            .concat();
            // The probe may be gone before it has read all.
            wire.stream.write_all(answer.as_bytes()).await.ok();
        })
    };
    let (good, bad) = (hinting(100).await, hinting(20_000).await);
    let front = ProxyServer::with(&[bad.address, good.address], |plan| {
        plan.spec.health = Some(probe(by_path()))
    })
    .await;
    let _watch = watch(&front);
    until("one is unhealthy", || in_service(&front) == [false, true]).await;
    assert!(
        log.text().contains("it sent over 256 KiB"),
        "{}",
        log.text()
    );
}

#[tokio::test]
async fn where_no_endpoint_is_healthy_all_of_them_get_requests() {
    let well = Arc::new(AtomicBool::new(false));
    let servers = [with_health(&well).await.0, with_health(&well).await.0];
    let addresses = servers.each_ref().map(|server| server.address);
    let front =
        ProxyServer::with(&addresses, |plan| plan.spec.health = Some(probe(by_path()))).await;
    let _watch = watch(&front);
    until("both are unhealthy", || {
        in_service(&front) == [false, false]
    })
    .await;
    assert!(front.gate.upstream.is_panicking());
    assert_eq!(failed_of(10, 200, &front).await, 0);
}

#[tokio::test]
async fn below_the_panic_threshold_unhealthy_endpoints_get_requests_too() {
    let (well, ill) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicBool::new(false)),
    );
    let servers = [
        with_health(&well).await.0,
        with_health(&ill).await.0,
        with_health(&ill).await.0,
    ];
    let addresses = servers.each_ref().map(|server| server.address);
    for (threshold, panics) in [(33, false), (34, true)] {
        let front = ProxyServer::with(&addresses, |plan| {
            plan.spec.health = Some(probe(by_path()));
            plan.spec.panic_threshold = Percentage::new(threshold);
        })
        .await;
        let _watch = watch(&front);
        until("two are unhealthy", || {
            in_service(&front) == [true, false, false]
        })
        .await;
        assert_eq!(front.gate.upstream.is_panicking(), panics, "{threshold}");
    }
}

#[tokio::test]
async fn a_probe_that_hangs_fails_in_time() {
    let silent = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.rest().await;
    })
    .await;
    let front = ProxyServer::with(&[silent.address], |plan| {
        plan.spec.health = Some(HealthSpec {
            timeout: Duration::from_millis(50),
            ..probe(by_path())
        });
    })
    .await;
    let _watch = watch(&front);
    until("it is unhealthy", || in_service(&front) == [false]).await;
    let error = front.gate.upstream.endpoints()[0]
        .condition()
        .probes()
        .error();
    assert_eq!(error.as_deref(), Some("it took too long to answer"));
}

#[tokio::test]
async fn a_connection_is_enough_for_a_probe_by_tcp() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let front = ProxyServer::with(&[address], |plan| {
        plan.spec.health = Some(probe(HealthCheck::Tcp))
    })
    .await;
    let _watch = watch(&front);
    let passed = || {
        front.gate.upstream.endpoints()[0]
            .condition()
            .probes()
            .counts()
            .0
    };
    until("it passes", || passed() > 2).await;
    drop(server);
    until("it is unhealthy", || in_service(&front) == [false]).await;
}

#[tokio::test]
async fn the_health_service_of_grpc_tells_of_its_services() {
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter
        .set_service_status("orders", ServingStatus::Serving)
        .await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service.clone();
            let handle =
                service_fn(move |request: http::Request<Incoming>| service.clone().call(request));
            tokio::spawn(
                http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), handle),
            );
        }
    });
    let front = async |name: &str| {
        let check = HealthCheck::Grpc {
            service: name.into(),
        };
        ProxyServer::with(&[], |plan| {
            plan.spec.endpoints = vec![format!("h2c://{address}").parse().unwrap()];
            plan.spec.health = Some(probe(check));
        })
        .await
    };
    let (orders, unknown) = (front("orders").await, front("unknown").await);
    let _watches = [watch(&orders), watch(&unknown)];
    let probes = |front: &ProxyServer| {
        front.gate.upstream.endpoints()[0]
            .condition()
            .probes()
            .counts()
    };
    until("it passes", || probes(&orders).0 > 2).await;
    until("it is unhealthy", || in_service(&unknown) == [false]).await;
    let error = |front: &ProxyServer| {
        front.gate.upstream.endpoints()[0]
            .condition()
            .probes()
            .error()
    };
    assert_eq!(
        error(&unknown).as_deref(),
        Some("the health service answered with grpc-status 5")
    );
    reporter
        .set_service_status("orders", ServingStatus::NotServing)
        .await;
    until("it is unhealthy", || in_service(&orders) == [false]).await;
    let says = "the health service says that it does not serve (status 2)";
    assert_eq!(error(&orders).as_deref(), Some(says));
    reporter
        .set_service_status("orders", ServingStatus::Serving)
        .await;
    until("it is healthy", || in_service(&orders) == [true]).await;
    server.abort();
}

#[tokio::test]
async fn probes_go_through_the_tls_of_the_upstream_in_either_version_of_http() {
    let authority = CertificateAuthority::create();
    authority.issue("server", "DNS:localhost");
    let (cert, key) = (authority.path("server.pem"), authority.path("server.key"));
    let files = format!(
        "ssl_certificate {}; ssl_certificate_key {};",
        cert.display(),
        key.display()
    );
    let seen = "if ($http_user_agent != tollgate-health) { return 500; } location = /healthz { return 204; }";
    for options in ["ssl", "ssl http2"] {
        let server = NginxServer::start(options, &format!("{files} {seen}"));
        let spec = ClientTlsSpec {
            ca: Some(authority.pem("ca.pem").into()),
            ..ClientTlsSpec::default()
        };
        let settings = Arc::new(ClientTls::new(spec).unwrap());
        let front = ProxyServer::with(&[], |plan| {
            plan.spec.endpoints = vec![
                format!("https://localhost:{}", server.address.port())
                    .parse()
                    .unwrap(),
            ];
            plan.spec.tls = Some(UpstreamTls {
                settings,
                server_name: None,
                files: Vec::new(),
            });
            plan.spec.health = Some(probe(by_path()));
        })
        .await;
        let _watch = watch(&front);
        let probes = || {
            front.gate.upstream.endpoints()[0]
                .condition()
                .probes()
                .counts()
        };
        until("it passes", || probes().0 > 1).await;
        assert_eq!(probes().1, 0);
    }
}

#[tokio::test]
async fn probes_begin_with_a_proxy_header_where_connections_do() {
    let heads = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&heads);
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let seen = Arc::clone(&seen);
        async move {
            // LOCAL, version 2: a connection of the proxy's own.
            let mut header = [0; 16];
            tokio::io::AsyncReadExt::read_exact(&mut wire.stream, &mut header)
                .await
                .unwrap();
            assert_eq!(header, *b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0");
            assert!(wire.head().await.starts_with("GET /healthz?deep"));
            seen.fetch_add(1, Ordering::SeqCst);
            wire.send(OK).await;
        }
    })
    .await;
    let front = ProxyServer::with(&[server.address], |plan| {
        plan.spec.health = Some(probe(by_path()));
        plan.spec.proxy_protocol = true;
    })
    .await;
    let _watch = watch(&front);
    until("it is asked", || heads.load(Ordering::SeqCst) > 1).await;
    until("it passes", || {
        front.gate.upstream.endpoints()[0]
            .condition()
            .probes()
            .counts()
            .0
            > 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_back_begins_with_a_small_share_that_grows() {
    let well = Arc::new(AtomicBool::new(false));
    let (slow, _) = with_health(&well).await;
    let good = ScriptedUpstream::answering(OK).await;
    let front = ProxyServer::with(&[slow.address, good.address], |plan| {
        plan.spec.health = Some(probe(by_path()));
        plan.spec.slow_start = Some(Duration::from_secs(4));
    })
    .await;
    let _watch = watch(&front);
    until("it is unhealthy", || in_service(&front) == [false, true]).await;
    well.store(true, Ordering::SeqCst);
    until("it is back", || in_service(&front) == [true, true]).await;
    let share = || {
        let tried = || {
            front
                .gate
                .upstream
                .pick(&mut Tried::default())
                .unwrap()
                .url()
                .to_owned()
        };
        (0..110)
            .filter(|_| tried() == format!("http://{}", slow.address))
            .count()
    };
    let first = share();
    assert!((8..=30).contains(&first), "{first} of 110");
    until("it has its half", || share() == 55).await;
}
