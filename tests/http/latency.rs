//! Endpoints that are far slower than the others of their upstream get no requests for a while;
//! slow clients get none ejected.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::proxy_server::{ForwarderConfig, ProxyServer};
use futures_util::future::join_all;
use tokio::time::sleep;
use tollgate_limiter::clock;
use tollgate_proxy::upstream::health::Percentage;
use tollgate_proxy::upstream::health::ejection::{EjectSpec, EjectionReason};
use tollgate_proxy::upstream::latency::outliers::LatencyRule;
use tollgate_testing::topology::CapturedLog;
use tollgate_testing::until;
use tollgate_testing::upstream::{OK, RawConnection, ScriptedUpstream};

use super::http2_upstream::{Http2Server, answer, respond, whole};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const UPLOAD: &str =
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\nConnection: close\r\n\r\nabcd";
const HOUR: Duration = Duration::from_secs(3600);
const WINDOW: Duration = Duration::from_secs(10);
/// Of a slow endpoint, and of slow clients.
const SLOW: Duration = Duration::from_millis(400);
/// Of other endpoints: on a paused clock they would take no time at all.
const FAST: Duration = Duration::from_millis(1);

/// In front of endpoints that are judged by four answers or more. The windows are the test's: they
/// begin here, and end when [`end_window`] says so.
async fn judging(endpoints: &[String], change: impl FnOnce(&mut ForwarderConfig)) -> ProxyServer {
    let front = ProxyServer::with(&[], |plan| {
        plan.spec.endpoints = endpoints.iter().map(|url| url.parse().unwrap()).collect();
        let latency = LatencyRule {
            above: SLOW / 4,
            factor: 2,
            requests: 4,
            window: WINDOW,
        };
        let (at_most, latency) = (Percentage::new(50), Some(latency));
        plan.spec.eject = Some(EjectSpec {
            after: 1000,
            base: HOUR,
            longest: 9 * HOUR,
            at_most,
            latency,
        });
        change(plan);
    })
    .await;
    end_window(&front, Duration::ZERO);
    front
}

/// Lets the control plane look at the endpoints, as it will after this time. Later times follow
/// earlier ones.
fn end_window(front: &ProxyServer, after: Duration) {
    let micros = u64::try_from(after.as_micros()).unwrap();
    front.gate.upstream.tend(clock::monotonic_micros() + micros);
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

fn in_flight(front: &ProxyServer) -> usize {
    front
        .gate
        .upstream
        .endpoints()
        .iter()
        .map(|endpoint| endpoint.in_flight())
        .sum()
}

fn http(server: &ScriptedUpstream) -> String {
    format!("http://{}", server.address)
}

/// Answers after [`FAST`], or after [`SLOW`] as long as it is `slow`.
async fn server(slow: &Arc<AtomicBool>) -> ScriptedUpstream {
    let slow = Arc::clone(slow);
    ScriptedUpstream::start(move |mut wire, _| {
        let slow = Arc::clone(&slow);
        async move {
            while let Some(head) = wire.try_head().await {
                if head.contains("content-length: 8") {
                    wire.exactly(8).await;
                }
                sleep(if slow.load(Ordering::SeqCst) {
                    SLOW
                } else {
                    FAST
                })
                .await;
                wire.send(OK).await;
            }
        }
    })
    .await
}

/// Three servers, the first of which `slow` slows down, and all of them `all_slow`.
async fn three(slow: bool, all_slow: bool) -> (Vec<ScriptedUpstream>, Arc<AtomicBool>) {
    let (first, others) = (
        Arc::new(AtomicBool::new(slow || all_slow)),
        Arc::new(AtomicBool::new(all_slow)),
    );
    (
        vec![
            server(&first).await,
            server(&others).await,
            server(&others).await,
        ],
        first,
    )
}

fn urls(servers: &[ScriptedUpstream]) -> Vec<String> {
    servers.iter().map(http).collect()
}

/// Sends `count` requests at a time, each answered with 200.
async fn get(front: &ProxyServer, count: usize) {
    let clients = (0..count).map(|_| async {
        let mut client = RawConnection::connect(front.address).await;
        client.send(GET).await;
        assert!(client.rest().await.starts_with("HTTP/1.1 200"));
    });
    join_all(clients).await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_far_slower_than_the_others_is_ejected_at_the_end_of_the_window() {
    let (log, _logging) = CapturedLog::start();
    let (servers, _) = three(true, false).await;
    let front = judging(&urls(&servers), |_| {}).await;
    get(&front, 9).await;
    end_window(&front, WINDOW);
    assert_eq!(
        in_service(&front),
        [true, true, true],
        "three answers of each tell nothing"
    );
    get(&front, 12).await;
    end_window(&front, WINDOW);
    assert_eq!(
        in_service(&front),
        [true, true, true],
        "the window has not ended"
    );
    end_window(&front, 2 * WINDOW);
    assert_eq!(in_service(&front), [false, true, true]);
    let before = servers[0].connections();
    get(&front, 12).await;
    assert_eq!(servers[0].connections(), before);
    let ejection = front.gate.upstream.endpoints()[0]
        .condition()
        .ejection()
        .reason();
    assert_eq!(ejection, EjectionReason::Latency);
    assert!(
        log.text().contains("reason=\"it is slow\""),
        "{}",
        log.text()
    );
}

#[tokio::test(start_paused = true)]
async fn where_all_endpoints_are_slow_none_is_ejected() {
    let (servers, _) = three(true, true).await;
    let front = judging(&urls(&servers), |_| {}).await;
    get(&front, 12).await;
    end_window(&front, WINDOW);
    let medians: Vec<_> = front
        .gate
        .upstream
        .endpoints()
        .iter()
        .map(|of| of.condition().latency()?.median())
        .collect();
    assert!(
        medians.iter().all(|median| median.unwrap() >= SLOW / 2),
        "they were judged: {medians:?}"
    );
    assert_eq!(in_service(&front), [true, true, true]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_endpoint_is_back_after_its_time_and_out_for_longer_if_it_is_still_slow() {
    let (servers, slow) = three(true, false).await;
    let front = judging(&urls(&servers), |_| {}).await;
    let out_for = || {
        front.gate.upstream.endpoints()[0]
            .condition()
            .ejection()
            .until()
            .unwrap()
            - clock::monotonic_micros()
    };
    get(&front, 12).await;
    end_window(&front, WINDOW);
    assert!(out_for() <= 3_600_000_000);
    for (hours, still_slow) in [(2, true), (6, false)] {
        end_window(&front, hours * HOUR);
        assert_eq!(in_service(&front), [true, true, true]);
        slow.store(still_slow, Ordering::SeqCst);
        get(&front, 12).await;
        end_window(&front, hours * HOUR + HOUR);
        assert_eq!(in_service(&front), [!still_slow, true, true]);
        assert!(!still_slow || out_for() > 3_600_000_000);
    }
}

/// Sends half of a body, and the rest after a while. The answer's status.
async fn upload_slowly(front: &ProxyServer) -> String {
    let mut client = RawConnection::connect(front.address).await;
    client.send(UPLOAD).await;
    sleep(SLOW).await;
    client.send("efgh").await;
    client.rest().await[9..12].to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_slow_upload_of_a_client_is_not_the_endpoints() {
    let (first, _) = three(false, false).await;
    let mut second = Vec::new();
    for _ in 0..3 {
        let handle = async |request: http::Request<h2::RecvStream>, sender| {
            whole(request.into_body()).await;
            sleep(FAST).await;
            answer(sender, "ok");
        };
        second
            .push(Http2Server::start(100, move |request, sender, _| handle(request, sender)).await);
    }
    let h2c = second
        .iter()
        .map(|server| format!("h2c://{}", server.address))
        .collect();
    for endpoints in [urls(&first), h2c] {
        let front = judging(&endpoints, |_| {}).await;
        for _ in 0..4 {
            // Those of the first endpoint alone are slow.
            assert_eq!(upload_slowly(&front).await, "200");
            get(&front, 2).await;
        }
        end_window(&front, WINDOW);
        let median = front.gate.upstream.endpoints()[0]
            .condition()
            .latency()
            .and_then(|of| of.median());
        assert!(median.unwrap() < SLOW / 2, "{median:?}");
        assert_eq!(in_service(&front), [true, true, true], "{endpoints:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_begins_before_its_request_has_ended_has_no_time() {
    let (servers, _) = three(false, false).await;
    let early = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        sleep(SLOW).await;
        wire.send(OK).await;
        wire.rest().await;
    })
    .await;
    let early_stream = Http2Server::start(
        100,
        |request: http::Request<h2::RecvStream>, mut sender, _| async move {
            sleep(SLOW).await;
            let mut response = respond(&mut sender);
            whole(request.into_body()).await;
            response.send_data("ok".into(), true).unwrap();
        },
    )
    .await;
    for url in [http(&early), format!("h2c://{}", early_stream.address)] {
        let front = judging(&[url.clone(), http(&servers[0]), http(&servers[1])], |_| {}).await;
        for _ in 0..4 {
            let mut client = RawConnection::connect(front.address).await;
            client.send(UPLOAD).await;
            client.head().await;
            client.send("efgh").await;
            client.rest().await;
            get(&front, 2).await;
        }
        end_window(&front, WINDOW);
        assert!(
            front.gate.upstream.endpoints()[0]
                .condition()
                .latency()
                .is_none(),
            "{url}"
        );
        assert_eq!(in_service(&front), [true, true, true]);
    }
}

/// Twelve requests, those of the first of three endpoints without an answer: their clients leave.
async fn leave(front: &ProxyServer) {
    let mut clients = Vec::new();
    for _ in 0..12 {
        let mut client = RawConnection::connect(front.address).await;
        client.send(GET).await;
        clients.push(client);
    }
    until("the others have answered", || in_flight(front) == 4).await;
    sleep(SLOW).await;
    drop(clients);
    until("the clients are gone", || in_flight(front) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_given_up_is_as_slow_as_it_was_waited_for() {
    let silent = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.rest().await;
    })
    .await;
    let (servers, _) = three(false, false).await;
    let endpoints = [http(&silent), http(&servers[0]), http(&servers[1])];
    let front = judging(&endpoints, |_| {}).await;
    leave(&front).await;
    end_window(&front, WINDOW);
    assert_eq!(
        in_service(&front),
        [false, true, true],
        "its clients have left"
    );
    let front = judging(&endpoints, |plan| plan.spec.response_timeout = SLOW).await;
    let statuses = join_all((0..12).map(|_| async {
        let mut client = RawConnection::connect(front.address).await;
        client.send(GET).await;
        client.rest().await[9..12].to_owned()
    }));
    assert_eq!(
        statuses
            .await
            .iter()
            .filter(|status| *status == "504")
            .count(),
        4
    );
    end_window(&front, WINDOW);
    assert_eq!(
        in_service(&front),
        [false, true, true],
        "it took longer than response_timeout"
    );
}

#[tokio::test(start_paused = true)]
async fn no_more_slow_endpoints_are_ejected_than_the_rule_lets_and_the_slowest_first() {
    let (servers, _) = three(true, false).await;
    let slower = ScriptedUpstream::start(|mut wire, _| async move {
        while wire.try_head().await.is_some() {
            sleep(2 * SLOW).await;
            wire.send(OK).await;
        }
    })
    .await;
    let endpoints: Vec<SocketAddr> = servers
        .iter()
        .chain([&slower])
        .map(|server| server.address)
        .collect();
    let urls: Vec<_> = endpoints
        .iter()
        .map(|address| format!("http://{address}"))
        .collect();
    for (at_most, expected) in [
        (25, [true, true, true, false]),
        (50, [false, true, true, false]),
    ] {
        let front = judging(&urls, |plan| {
            let eject = plan.spec.eject.take().unwrap();
            plan.spec.eject = Some(EjectSpec {
                at_most: Percentage::new(at_most),
                ..eject
            });
        })
        .await;
        get(&front, 16).await;
        end_window(&front, WINDOW);
        assert_eq!(in_service(&front), expected);
    }
}
