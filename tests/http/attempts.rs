//! Requests of routes with `retry`: what is sent again, where to, how often, and what never is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::proxy_server::ProxyServer;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tokio::net::TcpStream;
use tollgate_limiter::clock;
use tollgate_limiter::limit::status_set::StatusRange;
use tollgate_spec::route::retry::back_off::BackOff;
use tollgate_spec::route::retry::{GrpcStatus, RetryCondition, RetryPolicy};
use tollgate_testing::until;
use tollgate_testing::upstream::{OK, RawConnection, ScriptedUpstream};

use crate::http2_upstream::Http2Server;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy";
const CHUNKED: &str =
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";

pub fn on(conditions: impl IntoIterator<Item = RetryCondition>) -> RetryPolicy {
    let brief = Duration::from_millis(1);
    RetryPolicy {
        on: conditions.into_iter().collect(),
        attempts: 3,
        per_try: None,
        back_off: BackOff {
            base: brief,
            max: brief,
        },
        retry_after: None,
        keep_body: 0,
        non_idempotent: false,
    }
}

fn on_busy() -> RetryPolicy {
    on([RetryCondition::Status(StatusRange::from(503))])
}

async fn front(endpoints: &[SocketAddr], policy: RetryPolicy) -> ProxyServer {
    ProxyServer::with(endpoints, |plan| plan.retry = Some(policy)).await
}

/// The status of the answer to `text`, and how often it was sent.
async fn outcome(front: &ProxyServer, text: &str) -> (u16, u32) {
    let mut client = RawConnection::connect(front.address).await;
    client.send(text).await;
    let head = client.head().await;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, front.gate.attempts.load(Ordering::SeqCst))
}

/// A server that answers the first `failures` requests with `failure` or, if that is empty, closes;
/// and the others with 200. Keeps the bodies of three bytes that it got.
async fn flaky(failures: usize, failure: &'static str) -> (ScriptedUpstream, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&requests);
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let seen = Arc::clone(&seen);
        async move {
            while let Some(head) = wire.try_head().await {
                if head.contains("content-length: 3\r\n") {
                    assert_eq!(wire.exactly(3).await, "abc");
                } else if head.contains("transfer-encoding") {
                    assert_eq!(
                        wire.until(b"0\r\n\r\n").await.unwrap(),
                        "3\r\nabc\r\n0\r\n\r\n"
                    );
                }
                if seen.fetch_add(1, Ordering::SeqCst) >= failures {
                    wire.send(OK).await;
                } else if failure.is_empty() {
                    return wire.stream.set_zero_linger().unwrap();
                } else {
                    wire.send(failure).await;
                }
            }
        }
    })
    .await;
    (server, requests)
}

#[tokio::test]
async fn a_request_is_sent_again_to_another_endpoint() {
    let busy = ScriptedUpstream::answering(BUSY).await;
    let good = ScriptedUpstream::answering(OK).await;
    let front = front(&[busy.address, good.address], on_busy()).await;
    let mut attempts = Vec::new();
    for _ in 0..20 {
        let (status, sent) = outcome(&front, GET).await;
        assert_eq!(status, 200);
        attempts.push(sent);
    }
    // An endpoint's turn that another has stood in for is not taken from those that follow.
    assert_eq!(attempts, [2, 1].repeat(10));
}

#[tokio::test]
async fn the_answer_of_the_last_attempt_goes_to_the_client() {
    let (server, requests) = flaky(9, BUSY).await;
    let front = front(&[server.address], on_busy()).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(GET).await;
    assert!(
        client
            .until(b"busy")
            .await
            .unwrap()
            .starts_with("HTTP/1.1 503")
    );
    assert_eq!(requests.load(Ordering::SeqCst), 3);
    // An answer that is given up is read to its end: its connection is used again.
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn only_what_the_route_names_is_sent_again() {
    let (busy, requests) = flaky(9, BUSY).await;
    let endpoints = [busy.address];
    let front_of = |policy| front(&endpoints, policy);
    assert_eq!(
        outcome(
            &front_of(on([RetryCondition::Reset, RetryCondition::Timeout])).await,
            GET
        )
        .await,
        (503, 1)
    );
    let others = on([
        RetryCondition::Status(StatusRange::from(502)),
        RetryCondition::Call(GrpcStatus::Unavailable),
    ]);
    assert_eq!(outcome(&front_of(others).await, GET).await, (503, 1));
    assert_eq!(requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_reset_before_the_response_is_sent_again() {
    let (server, _) = flaky(2, "").await;
    assert_eq!(
        outcome(
            &front(&[server.address], on([RetryCondition::Reset])).await,
            GET
        )
        .await,
        (200, 3)
    );
    let (server, _) = flaky(9, "").await;
    assert_eq!(
        outcome(&front(&[server.address], on_busy()).await, GET).await,
        (502, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_followed_by_another() {
    let silent = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.rest().await;
    })
    .await;
    let good = ScriptedUpstream::answering(OK).await;
    let per_try = Some(Duration::from_millis(300));
    let timeout = || RetryPolicy {
        per_try,
        ..on([RetryCondition::Timeout])
    };
    let both = front(&[silent.address, good.address], timeout()).await;
    for _ in 0..4 {
        assert_eq!(outcome(&both, GET).await.0, 200);
    }
    assert!(silent.connections() >= 2);
    assert_eq!(
        outcome(&front(&[silent.address], timeout()).await, GET).await,
        (504, 3)
    );
    let other = RetryPolicy {
        per_try,
        ..on_busy()
    };
    assert_eq!(
        outcome(&front(&[silent.address], other).await, GET).await,
        (504, 1)
    );
}

#[tokio::test]
async fn a_request_that_nobody_connected_for_is_sent_again_whatever_its_method() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    assert_eq!(
        outcome(&front(&[closed], on([RetryCondition::Connect])).await, POST).await,
        (502, 3)
    );
    assert_eq!(
        outcome(&front(&[closed], on([RetryCondition::Reset])).await, POST).await,
        (502, 1)
    );
}

#[tokio::test]
async fn a_request_that_is_not_idempotent_is_sent_again_only_if_the_route_says_so() {
    let (server, _) = flaky(9, BUSY).await;
    let keeping = RetryPolicy {
        keep_body: 1024,
        ..on_busy()
    };
    assert_eq!(
        outcome(&front(&[server.address], keeping.clone()).await, POST).await,
        (503, 1)
    );
    let (server, requests) = flaky(2, BUSY).await;
    let twice = RetryPolicy {
        non_idempotent: true,
        ..keeping
    };
    assert_eq!(
        outcome(&front(&[server.address], twice).await, POST).await,
        (200, 3)
    );
    assert_eq!(requests.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_body_is_sent_again_as_far_as_it_was_kept() {
    let put = POST.replace("POST", "PUT");
    let keep = |keep_body| RetryPolicy {
        keep_body,
        ..on_busy()
    };
    for (kept, sent) in [(0, (503, 1)), (2, (503, 1)), (3, (200, 2))] {
        let (server, _) = flaky(1, BUSY).await;
        assert_eq!(
            outcome(&front(&[server.address], keep(kept)).await, &put).await,
            sent,
            "{kept}"
        );
    }
    let (server, _) = flaky(1, "").await;
    let reset = RetryPolicy {
        keep_body: 3,
        ..on([RetryCondition::Reset])
    };
    assert_eq!(
        outcome(
            &front(&[server.address], reset).await,
            &CHUNKED.replace("POST", "PUT")
        )
        .await,
        (200, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn the_time_in_which_a_client_sends_its_body_is_no_attempts() {
    let (server, requests) = flaky(0, "").await;
    let policy = RetryPolicy {
        per_try: Some(Duration::from_secs(1)),
        keep_body: 9,
        ..on([RetryCondition::Timeout])
    };
    let front = front(&[server.address], policy).await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na")
        .await;
    until("the attempt has begun", || server.connections() == 1).await;
    // The client is slow: longer than an attempt may take, with most of another one left for the
    // answer.
    tokio::time::advance(Duration::from_millis(1100)).await;
    client.send("bc").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn nothing_is_sent_again_once_the_client_has_got_something() {
    let hint = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
    let (server, requests) = flaky(9, hint).await;
    let front = front(&[server.address], on_busy()).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(GET).await;
    assert!(client.head().await.starts_with("HTTP/1.1 103"));
    assert!(client.head().await.starts_with("HTTP/1.1 503"));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    // Neither is a response whose body breaks off.
    let (server, _) = flaky(9, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nno").await;
    let cut =
        ScriptedUpstream::answering_once("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nno").await;
    let front = self::front(&[cut.address], on([RetryCondition::Reset])).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(GET).await;
    assert!(client.rest().await.ends_with("\r\n\r\nno"));
    assert_eq!(cut.connections(), 1);
    drop(server);
}

#[tokio::test]
async fn a_request_for_another_protocol_is_not_sent_again_once_it_is_answered() {
    let (server, requests) = flaky(9, BUSY).await;
    let front = front(&[server.address], on_busy()).await;
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n";
    assert_eq!(outcome(&front, upgrade).await, (503, 1));
    assert_eq!(outcome(&front, GET).await, (503, 3));
    assert_eq!(requests.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_is_waited_for_within_its_bound() {
    let later = "HTTP/1.1 503 Busy\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
    let waiting = |retry_after| RetryPolicy {
        retry_after,
        ..on_busy()
    };
    let (server, _) = flaky(1, later).await;
    let begun = clock::now();
    assert_eq!(
        outcome(
            &front(&[server.address], waiting(Some(Duration::from_secs(1)))).await,
            GET
        )
        .await,
        (200, 2)
    );
    assert!(clock::now() - begun >= Duration::from_secs(1));
    let (server, _) = flaky(1, later).await;
    let short = waiting(Some(Duration::from_millis(999)));
    assert_eq!(
        outcome(&front(&[server.address], short).await, GET).await,
        (503, 1)
    );
    let (server, _) = flaky(1, later).await;
    assert_eq!(
        outcome(&front(&[server.address], waiting(None)).await, GET).await,
        (200, 2)
    );
}

// On paused time: on a machine that stands still, the ten retries a second that any upstream gets
// would be more.
#[tokio::test(start_paused = true)]
async fn a_storm_adds_no_more_than_a_fifth_to_what_a_failing_upstream_gets() {
    const CLIENTS: usize = 10;
    const EACH: usize = 200;
    let (server, requests) = flaky(usize::MAX, BUSY).await;
    let front = front(
        &[server.address],
        RetryPolicy {
            attempts: 10,
            ..on_busy()
        },
    )
    .await;
    let client = async || {
        let mut client = RawConnection::connect(front.address).await;
        for _ in 0..EACH {
            client.send(GET).await;
            assert!(
                client
                    .until(b"busy")
                    .await
                    .unwrap()
                    .starts_with("HTTP/1.1 503")
            );
        }
    };
    join_all((0..CLIENTS).map(|_| client())).await;
    let sent = requests.load(Ordering::SeqCst);
    assert!(
        sent > CLIENTS * EACH * 11 / 10,
        "some are sent again: {sent}"
    );
    assert!(sent * 10 <= CLIENTS * EACH * 12, "{sent}");
}

/// A service of gRPC that answers the first `failures` calls with status 14: in its head, or in the
/// trailers of a message.
async fn service(failures: usize, in_head: bool) -> (Http2Server, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let server = Http2Server::start(100, move |mut request, mut sender, _| {
        let seen = Arc::clone(&seen);
        async move {
            let body = request.body_mut();
            while let Some(piece) = body.data().await {
                assert_eq!(piece.unwrap(), "call!");
            }
            let fails = seen.fetch_add(1, Ordering::SeqCst) < failures;
            let status = if fails { "14" } else { "0" };
            let head = Response::builder().header("content-type", "application/grpc");
            if in_head {
                sender
                    .send_response(head.header("grpc-status", status).body(()).unwrap(), true)
                    .unwrap();
                return;
            }
            let mut stream = sender.send_response(head.body(()).unwrap(), false).unwrap();
            stream
                .send_data(Bytes::from_static(b"message"), false)
                .unwrap();
            let trailer = (
                HeaderName::from_static("grpc-status"),
                HeaderValue::from_static(status),
            );
            stream
                .send_trailers(HeaderMap::from_iter([trailer]))
                .unwrap();
        }
    })
    .await;
    (server, calls)
}

/// The `grpc-status` in the head of the answer to a call, if it has one.
async fn call(server: &Http2Server, policy: RetryPolicy) -> Option<String> {
    let front = ProxyServer::with(&[], |plan| {
        plan.spec.endpoints = vec![format!("h2c://{}", server.address).parse().unwrap()];
        plan.retry = Some(policy);
    })
    .await;
    let socket = TcpStream::connect(front.address).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let request =
        Request::post("http://a/orders.Orders/Get").header("content-type", "application/grpc");
    let (response, mut body) = sender
        .send_request(request.body(()).unwrap(), false)
        .unwrap();
    body.send_data(Bytes::from_static(b"call!"), true).unwrap();
    let head = response.await.unwrap();
    assert_eq!(head.status(), 200);
    head.headers()
        .get("grpc-status")
        .map(|status| status.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_call_that_says_in_its_head_how_it_failed_is_sent_again() {
    let on_unavailable = || RetryPolicy {
        keep_body: 1024,
        non_idempotent: true,
        ..on([RetryCondition::Call(GrpcStatus::Unavailable)])
    };
    let (server, calls) = service(2, true).await;
    assert_eq!(call(&server, on_unavailable()).await.as_deref(), Some("0"));
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    let (server, calls) = service(2, true).await;
    let other = RetryPolicy {
        on: [RetryCondition::Call(GrpcStatus::Aborted)]
            .into_iter()
            .collect(),
        ..on_unavailable()
    };
    assert_eq!(call(&server, other).await.as_deref(), Some("14"));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    // Its messages are the client's.
    let (server, calls) = service(1, false).await;
    assert_eq!(call(&server, on_unavailable()).await, None);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}
