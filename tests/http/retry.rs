//! Requests that are sent again, those that are not, and the answer when no upstream helps.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::proxy_server::{ForwarderConfig, ProxyServer};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tollgate_testing::topology::CapturedLog;
use tollgate_testing::until;
use tollgate_testing::upstream::{OK, RawConnection, ScriptedUpstream};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
const PUT_EMPTY: &str = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
const POST_EMPTY: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";

/// An upstream whose connections answer once and close, unanswered, when the second request has
/// arrived.
async fn forgetful() -> (ScriptedUpstream, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&requests);
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let seen = Arc::clone(&seen);
        async move {
            wire.head().await;
            seen.fetch_add(1, Ordering::SeqCst);
            wire.send(OK).await;
            if wire.try_head().await.is_some() {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        }
    })
    .await;
    (server, requests)
}

/// The status line of the answer to `request` over a connection that turns out stale, and how often
/// it was sent.
async fn over_a_stale_connection(request: &str) -> (String, usize) {
    let (server, requests) = forgetful().await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(GET).await;
    client.until(b"ok").await.unwrap();
    client.send(request).await;
    let head = client.head().await;
    (
        head.lines().next().unwrap().to_owned(),
        requests.load(Ordering::SeqCst) - 1,
    )
}

async fn status(
    endpoints: &[SocketAddr],
    request: &str,
    change: impl FnOnce(&mut ForwarderConfig),
) -> String {
    let front = ProxyServer::with(endpoints, change).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(request).await;
    let head = client.head().await;
    let problem = client.until(b"}").await.unwrap_or_default();
    let name = problem
        .split("problem:")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap_or_default();
    format!("{} {name}", head.split(' ').nth(1).unwrap())
}

/// An address where nothing listens.
async fn closed_port() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// An address whose accept queue is full, so that connecting to it hangs.
async fn black_hole() -> (std::net::TcpListener, Vec<TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any_port: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any_port.into()).unwrap();
    socket.listen(0).unwrap();
    let listener = std::net::TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        queued.push(stream.unwrap());
    }
    (listener, queued)
}

#[tokio::test]
async fn a_get_over_a_stale_connection_is_sent_once_more() {
    assert_eq!(
        over_a_stale_connection(GET).await,
        ("HTTP/1.1 200 OK".into(), 2)
    );
}

#[tokio::test]
async fn an_idempotent_request_without_a_body_is_sent_once_more() {
    assert_eq!(
        over_a_stale_connection(PUT_EMPTY).await,
        ("HTTP/1.1 200 OK".into(), 2)
    );
}

#[tokio::test]
async fn a_post_that_was_sent_is_not_sent_again() {
    assert_eq!(
        over_a_stale_connection(POST).await,
        ("HTTP/1.1 502 Bad Gateway".into(), 1)
    );
    assert_eq!(
        over_a_stale_connection(POST_EMPTY).await,
        ("HTTP/1.1 502 Bad Gateway".into(), 1)
    );
}

#[tokio::test]
async fn a_put_with_a_body_is_not_sent_again() {
    let put = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(
        over_a_stale_connection(put).await,
        ("HTTP/1.1 502 Bad Gateway".into(), 1)
    );
}

#[tokio::test]
async fn a_post_finds_a_new_connection_when_the_idle_one_was_closed() {
    let server = ScriptedUpstream::answering_once(OK).await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    for _ in 0..3 {
        client.send(POST_EMPTY).await;
        assert!(
            client
                .until(b"ok")
                .await
                .unwrap()
                .starts_with("HTTP/1.1 200")
        );
        until("the closed connection is noticed", || {
            front.keeps_no_connection()
        })
        .await;
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_request_is_sent_twice_at_most() {
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&requests);
    let server = ScriptedUpstream::start(move |mut wire, number| {
        let seen = Arc::clone(&seen);
        async move {
            while wire.try_head().await.is_some() {
                if seen.fetch_add(1, Ordering::SeqCst) > 0 {
                    return;
                }
                assert_eq!(number, 0);
                wire.send(OK).await;
            }
        }
    })
    .await;
    let front = ProxyServer::to(&[server.address; 3]).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(GET).await;
    client.until(b"ok").await.unwrap();
    client.send(GET).await;
    assert!(client.head().await.starts_with("HTTP/1.1 502"));
    assert_eq!(requests.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_fresh_connection_that_breaks_is_no_reason_to_retry() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
    })
    .await;
    assert_eq!(
        status(&[server.address], GET, |_| {}).await,
        "502 upstream-closed"
    );
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn retries_stop_when_the_budget_is_spent() {
    let (server, requests) = forgetful().await;
    let front = ProxyServer::to(&[server.address]).await;
    while front.gate.upstream.budget().withdraw() {}
    let mut client = RawConnection::connect(front.address).await;
    client.send(GET).await;
    client.until(b"ok").await.unwrap();
    while front.gate.upstream.budget().withdraw() {}
    client.send(GET).await;
    assert!(client.head().await.starts_with("HTTP/1.1 502"));
    assert_eq!(requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_endpoint_that_refuses_is_passed_over_even_for_a_post() {
    let server = ScriptedUpstream::answering(OK).await;
    let front = ProxyServer::to(&[closed_port().await, server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    for _ in 0..4 {
        client.send(POST_EMPTY).await;
        assert!(
            client
                .until(b"ok")
                .await
                .unwrap()
                .starts_with("HTTP/1.1 200")
        );
    }
    assert!(front.gate.upstream.endpoints()[0].is_backing_off());
}

#[tokio::test]
async fn failures_to_connect_are_told_apart() {
    assert_eq!(
        status(&[closed_port().await], GET, |_| {}).await,
        "502 connect-failed"
    );
    let (listener, _queued) = black_hole().await;
    let hasty = |plan: &mut ForwarderConfig| plan.spec.connect_timeout = Duration::from_millis(50);
    assert_eq!(
        status(&[listener.local_addr().unwrap()], GET, hasty).await,
        "504 connect-timeout"
    );
    assert_eq!(status(&[], GET, |_| {}).await, "503 no-endpoint");
}

#[tokio::test]
async fn failures_to_answer_are_told_apart() {
    let silent = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.try_head().await;
    })
    .await;
    let hasty = |plan: &mut ForwarderConfig| plan.spec.response_timeout = Duration::from_millis(50);
    assert_eq!(
        status(&[silent.address], GET, hasty).await,
        "504 response-timeout"
    );
    let garbage = ScriptedUpstream::answering("SMTP ready\r\n\r\n").await;
    assert_eq!(
        status(&[garbage.address], GET, |_| {}).await,
        "502 upstream-invalid"
    );
    let two_lengths = ScriptedUpstream::answering(
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    )
    .await;
    assert_eq!(
        status(&[two_lengths.address], GET, |_| {}).await,
        "502 upstream-invalid"
    );
    let half = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.send("HTTP/1.1 200 OK\r\ncontent-le").await;
    })
    .await;
    assert_eq!(
        status(&[half.address], GET, |_| {}).await,
        "502 upstream-closed"
    );
}

#[tokio::test]
async fn an_upgrade_that_was_not_requested_is_invalid() {
    let pushy = ScriptedUpstream::answering(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    )
    .await;
    assert_eq!(
        status(&[pushy.address], GET, |_| {}).await,
        "502 upstream-invalid"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_sends_informational_responses_without_end_is_invalid() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        let many = "HTTP/1.1 102 Processing\r\n\r\n".repeat(50_000);
        while wire.stream.write_all(many.as_bytes()).await.is_ok() {}
    })
    .await;
    // A client of HTTP/1.0 gets none of them.
    let request = "GET / HTTP/1.0\r\nHost: a\r\n\r\n";
    assert_eq!(
        status(&[server.address], request, |_| {}).await,
        "502 upstream-invalid"
    );
}

#[tokio::test]
async fn informational_responses_give_an_upstream_no_more_time() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.send(&"HTTP/1.1 102 Processing\r\n\r\n".repeat(100))
            .await;
        pending().await
    })
    .await;
    let hasty = |plan: &mut ForwarderConfig| plan.spec.response_timeout = Duration::from_millis(50);
    let request = "GET / HTTP/1.0\r\nHost: a\r\n\r\n";
    assert_eq!(
        status(&[server.address], request, hasty).await,
        "504 response-timeout"
    );
}

#[tokio::test]
async fn failures_are_logged_once_in_a_while_with_upstream_endpoint_and_reason() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.send("\0\0\x04\x04\0\0\0\0\0\0\0\0\0").await;
    })
    .await;
    let (log, _guard) = CapturedLog::start();
    let front = ProxyServer::to(&[server.address]).await;
    for _ in 0..5 {
        let mut client = RawConnection::connect(front.address).await;
        client.send(GET).await;
        assert!(client.head().await.starts_with("HTTP/1.1 502"));
    }
    let endpoint = format!(
        "upstream=\"test\" endpoint=\"http://{}\" reason=\"what came is not HTTP/1\"",
        server.address
    );
    let text = log.text();
    assert_eq!(
        text.lines()
            .filter(|line| line.contains("WARN") && line.contains(&endpoint))
            .count(),
        1,
        "{text}"
    );
}

#[tokio::test]
async fn an_endpoint_that_accepts_no_connection_is_logged_with_its_upstream() {
    let (log, _guard) = CapturedLog::start();
    let address = closed_port().await;
    assert_eq!(status(&[address], GET, |_| {}).await, "502 connect-failed");
    let text = log.text();
    let line = text
        .lines()
        .find(|line| line.contains("accepts no connection"))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(
        line.contains("upstream=test") && line.contains(&format!("http://{address}")),
        "{line}"
    );
}
