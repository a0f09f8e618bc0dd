//! Faults of endpoints: they are not blamed for requests whose clients do not end them, for heads
//! that are too large, nor for connections that close as a request comes; once for a connection
//! that ends with many requests; and for connections that they do not take.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::proxy_server::{ForwarderConfig, ProxyServer};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tollgate_proxy::upstream::bounds::HeadBound;
use tollgate_proxy::upstream::health::Percentage;
use tollgate_proxy::upstream::health::ejection::EjectSpec;
use tollgate_spec::route::retry::RetryPolicy;
use tollgate_testing::nginx::NginxServer;
use tollgate_testing::raw_http2::{DATA, END_STREAM, HEADERS, frame};
use tollgate_testing::until;
use tollgate_testing::upstream::{OK, RawConnection, ScriptedUpstream};

use super::attempts::on;
use super::http2_upstream::endings::ok;
use super::http2_upstream::{Http2Server, exchange};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const POST: &str =
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
/// Its body does not come to its end.
const UNENDED: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabc";

/// RFC 9113 §6.5.2.
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// In front of one endpoint, whose failures are counted.
async fn judging(url: &str, change: impl FnOnce(&mut ForwarderConfig)) -> ProxyServer {
    ProxyServer::with(&[], |plan| {
        let hour = Duration::from_secs(3600);
        plan.spec.endpoints = vec![url.parse().unwrap()];
        let at_most = Percentage::new(50);
        plan.spec.eject = Some(EjectSpec {
            after: 100,
            base: hour,
            longest: hour,
            at_most,
            latency: None,
        });
        change(plan);
    })
    .await
}

/// The failures in a row that the endpoint is blamed for.
fn faults(front: &ProxyServer) -> u32 {
    front.gate.upstream.endpoints()[0]
        .condition()
        .ejection()
        .consecutive()
}

/// The status of the answer to `request`.
async fn status(front: &ProxyServer, request: &str) -> u16 {
    let mut client = RawConnection::connect(front.address).await;
    client.send(request).await;
    client
        .head()
        .await
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

#[tokio::test]
async fn an_endpoint_that_closes_while_the_body_is_not_complete_is_not_at_fault() {
    let first = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.exactly(3).await;
    })
    .await;
    let second = Http2Server::raw(&[], |mut server, _| async move {
        while server.next(DATA).await.payload != b"abc" {}
    })
    .await;
    for url in [
        format!("http://{}", first.address),
        format!("h2c://{}", second.address),
    ] {
        let front = judging(&url, |_| {}).await;
        assert_eq!(
            (status(&front, UNENDED).await, faults(&front)),
            (502, 0),
            "{url}"
        );
        assert_eq!(
            (status(&front, POST).await, faults(&front)),
            (502, 1),
            "{url}: it had all of it"
        );
    }
}

#[tokio::test]
async fn an_endpoint_that_gives_up_a_slow_client_is_not_at_fault_and_the_client_is_told() {
    let give_up = "client_body_timeout 2s; location / { proxy_pass http://127.0.0.1:1; }";
    for (options, scheme) in [("", "http"), ("http2", "h2c")] {
        let server = NginxServer::start(options, give_up);
        let front = judging(&format!("{scheme}://{}", server.address), |_| {}).await;
        assert_eq!(
            (status(&front, UNENDED).await, faults(&front)),
            (408, 0),
            "{scheme}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_idle_timeout_bounds_a_client_that_stalls_in_either_version() {
    let first = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.rest().await;
    })
    .await;
    let second = Http2Server::raw(&[], |mut server, _| async move {
        while server.frame().await.is_some() {}
    })
    .await;
    for url in [
        format!("http://{}", first.address),
        format!("h2c://{}", second.address),
    ] {
        let front = judging(&url, |plan| {
            plan.spec.idle_timeout = Duration::from_millis(200)
        })
        .await;
        assert_eq!(
            (status(&front, UNENDED).await, faults(&front)),
            (408, 0),
            "{url}"
        );
    }
}

#[tokio::test]
async fn a_connection_that_ends_with_many_requests_is_one_failure() {
    let server = Http2Server::raw(&[], |mut server, _| async move {
        for _ in 0..3 {
            server.next(HEADERS).await;
        }
        // DATA of no stream ends the connection (RFC 9113 §6.1).
        server.send(frame(DATA, 0, 0, b"x")).await;
        while server.frame().await.is_some() {}
    })
    .await;
    let front = judging(&format!("h2c://{}", server.address), |_| {}).await;
    let all = tokio::join!(
        status(&front, GET),
        status(&front, GET),
        status(&front, GET)
    );
    assert_eq!(
        (all, faults(&front), server.connections()),
        ((502, 502, 502), 1, 1)
    );
}

#[tokio::test]
async fn a_head_that_is_larger_than_an_upstream_announces_is_not_sent() {
    let server = Http2Server::raw(
        &[(MAX_HEADER_LIST_SIZE, 4096)],
        |mut server, _| async move {
            while let Some(frame) = server.frame().await {
                if frame.kind == HEADERS {
                    server.send(ok(frame.stream)).await;
                }
            }
        },
    )
    .await;
    let front = judging(&format!("h2c://{}", server.address), |_| {}).await;
    for (length, expected) in [(3_000, 200), (5_000, 431), (3_000, 200)] {
        let request = GET.replace(
            "\r\n\r\n",
            &format!("\r\nX-Large: {}\r\n\r\n", "a".repeat(length)),
        );
        assert_eq!(
            (status(&front, &request).await, faults(&front)),
            (expected, 0),
            "{length}"
        );
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_head_beyond_the_bounds_of_its_upstream_is_not_sent() {
    for (options, scheme) in [("", "http"), ("http2", "h2c")] {
        let server = NginxServer::start(options, "return 200 ok;");
        let head = HeadBound {
            size: Some(16_384),
            field: Some(8_000),
        };
        let front = judging(&format!("{scheme}://{}", server.address), |plan| {
            plan.spec.bounds.head = Some(head)
        })
        .await;
        let field = |length| format!("\r\nX-Large: {}", "a".repeat(length));
        let of = |fields: String| GET.replace("\r\n\r\n", &format!("{fields}\r\n\r\n"));
        for (fields, expected) in [
            (field(7_000), 200),
            (field(9_000), 431),
            (field(7_000).repeat(3), 431),
        ] {
            assert_eq!(
                (status(&front, &of(fields)).await, faults(&front)),
                (expected, 0),
                "{scheme}"
            );
        }
        let long = GET.replace("/ ", &format!("/{} ", "a".repeat(8_000)));
        assert_eq!(status(&front, &long).await, 431);
    }
}

#[tokio::test]
async fn trailers_of_requests_break_no_connection_of_http2() {
    let server = NginxServer::start(
        "http2",
        "location / { proxy_pass http://127.0.0.1:1; error_page 502 =200 /ok; } \
                                              location = /ok { return 200 ok; }",
    );
    let front = judging(&format!("h2c://{}", server.address), |_| {}).await;
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\nConnection: close\r\n\r\n\
                   3\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n";
    assert_eq!(exchange(&front, request).await.0, "200");
    let (plain, seen) = (END_STREAM, "the stream ends with its content");
    let server = Http2Server::raw(&[], move |mut server, _| async move {
        let mut last = server.next(DATA).await;
        while !last.ends_stream() {
            last = server.of_stream(1).await;
        }
        assert_eq!((last.kind, last.flags & plain), (DATA, plain), "{seen}");
        server.send(ok(1)).await;
        while server.frame().await.is_some() {}
    })
    .await;
    let front = judging(&format!("h2c://{}", server.address), |_| {}).await;
    assert_eq!(exchange(&front, request).await.0, "200");
}

#[tokio::test]
async fn a_connection_that_closes_as_a_request_comes_is_not_its_endpoints_fault() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.send(OK).await;
        // Idle since then: it may have been closed before this came.
        wire.try_head().await;
    })
    .await;
    let front = judging(&http(&server), |_| {}).await;
    assert_eq!(status(&front, GET).await, 200);
    // It cannot be sent again.
    assert_eq!(
        (
            status(&front, POST).await,
            faults(&front),
            server.connections()
        ),
        (502, 0, 1)
    );
    assert_eq!(status(&front, GET).await, 200);
    assert_eq!(
        (
            status(&front, GET).await,
            faults(&front),
            server.connections()
        ),
        (200, 0, 3)
    );
}

#[tokio::test]
async fn a_websocket_that_an_endpoint_does_not_announce_is_not_its_fault() {
    let server = Http2Server::raw(&[], |mut server, _| async move {
        while server.frame().await.is_some() {}
    })
    .await;
    let front = judging(&format!("h2c://{}", server.address), |_| {}).await;
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    assert_eq!((status(&front, request).await, faults(&front)), (502, 0));
}

/// An address that takes no connection and refuses none: its queue is full. With what keeps it
/// full.
async fn silent_address() -> (SocketAddr, impl Sized) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
        queued.push(stream.unwrap());
    }
    (address, (listener, queued))
}

#[tokio::test]
async fn an_endpoint_that_takes_no_connection_within_the_time_of_a_request_is_at_fault() {
    let (address, _queue) = silent_address().await;
    let settings_missing =
        ScriptedUpstream::start(|mut wire, _| async move { drop(wire.rest().await) }).await;
    let urls = [
        format!("http://{address}"),
        format!("h2c://{address}"),
        format!("h2c://{}", settings_missing.address),
    ];
    for url in urls {
        let front = judging(&url, |plan| {
            plan.spec.connect_timeout = Duration::from_secs(60);
            plan.retry = Some(RetryPolicy {
                attempts: 1,
                per_try: Some(Duration::from_millis(200)),
                ..on([])
            });
        })
        .await;
        assert_eq!(
            (status(&front, GET).await, faults(&front)),
            (504, 1),
            "{url}"
        );
        assert_eq!(
            (status(&front, GET).await, faults(&front)),
            (504, 2),
            "{url}"
        );
        // A client that leaves says nothing.
        let mut client = RawConnection::connect(front.address).await;
        client.send(GET).await;
        until("it is under way", || in_flight(&front) == 1).await;
        drop(client);
        until("it has left", || in_flight(&front) == 0).await;
        assert_eq!(faults(&front), 2, "{url}");
    }
}

fn in_flight(front: &ProxyServer) -> usize {
    front.gate.upstream.endpoints()[0].in_flight()
}

fn http(server: &ScriptedUpstream) -> String {
    format!("http://{}", server.address)
}
