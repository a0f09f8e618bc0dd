//! Bodies of requests that are sent again: an endpoint gets all that the client sent, or sees that
//! it does not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::proxy_server::ProxyServer;
use futures_util::future::join;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Notify, mpsc};
use tollgate_limiter::limit::status_set::StatusRange;
use tollgate_limiter::request::permit::Unanswered;
use tollgate_spec::route::retry::back_off::BackOff;
use tollgate_spec::route::retry::{RetryCondition, RetryPolicy};
use tollgate_testing::upstream::{OK, RawConnection, ScriptedUpstream};

const PUT: &str = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
const END: &str = "0\r\n\r\n";
/// A response that has not ended.
const BEGUN: &str = "HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbusy\r\n";
const ENDED: &str = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";

pub fn keeping(on: RetryCondition, keep_body: usize) -> RetryPolicy {
    let brief = Duration::from_millis(1);
    RetryPolicy {
        on: [on].into_iter().collect(),
        attempts: 2,
        per_try: None,
        back_off: BackOff {
            base: brief,
            max: brief,
        },
        retry_after: None,
        keep_body,
        non_idempotent: false,
    }
}

pub fn on_busy() -> RetryCondition {
    RetryCondition::Status(StatusRange::from(503))
}

/// Letters of which no two stretches are alike.
fn content(length: usize) -> String {
    (0_u64..)
        .map(|n| char::from(b'a' + (n.wrapping_mul(n + 7) / 13 % 26) as u8))
        .take(length)
        .collect()
}

fn chunk(content: &str) -> String {
    format!("{:x}\r\n{content}\r\n", content.len())
}

/// The content of a chunked body.
fn decoded(mut chunks: &str) -> String {
    let mut content = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        content.push_str(&rest[..size]);
        chunks = &rest[size + 2..];
    }
    content
}

/// The bytes of a body that are kept at most: what one client may have kept.
const KEPT: usize = 8 << 20;

/// Takes little before it is read, so that less waits in buffers than is kept.
fn narrow(wire: &RawConnection) {
    SockRef::from(&wire.stream)
        .set_recv_buffer_size(64 << 10)
        .unwrap();
}

/// A connection from an address of its own: a client has its share of the memory for bodies that
/// are kept.
async fn connect_from(client: [u8; 4], to: SocketAddr) -> RawConnection {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((client, 0).into()).unwrap();
    RawConnection::new(socket.connect(to).await.unwrap())
}

/// A server that reads whole requests, answers 200, and tells of their bodies.
async fn reader() -> (ScriptedUpstream, mpsc::UnboundedReceiver<String>) {
    let (bodies, received) = mpsc::unbounded_channel();
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let bodies = bodies.clone();
        async move {
            while wire.try_head().await.is_some() {
                let Some(body) = wire.ending(END.as_bytes()).await else {
                    return;
                };
                bodies.send(decoded(&body)).unwrap();
                wire.send(OK).await;
            }
        }
    })
    .await;
    (server, received)
}

#[tokio::test]
async fn a_body_that_goes_on_while_its_answer_is_given_up_loses_nothing() {
    let stuck = Arc::new(Notify::new());
    let is_stuck = Arc::clone(&stuck);
    let busy = ScriptedUpstream::start(move |mut wire, _| {
        let stuck = Arc::clone(&stuck);
        async move {
            narrow(&wire);
            wire.head().await;
            stuck.notified().await;
            wire.send(BEGUN).await;
            // Reads on, as most servers do.
            wire.rest().await;
        }
    })
    .await;
    let (good, mut bodies) = reader().await;
    // More than the buffers of all sockets take, which is less than what is kept.
    let whole = content(24 << 20);
    let policy = Some(keeping(on_busy(), KEPT));
    let front = ProxyServer::with(&[busy.address, good.address], |plan| plan.retry = policy).await;
    let client = connect_from([127, 0, 0, 2], front.address).await;
    let (mut reads, mut writes) = client.stream.into_split();
    let sending = async {
        let sent = format!("{PUT}{}{END}", chunk(&whole));
        let mut rest = sent.as_bytes();
        while !rest.is_empty() {
            match tokio::time::timeout(Duration::from_millis(500), writes.write(rest)).await {
                Ok(written) => rest = &rest[written.unwrap()..],
                Err(_) => is_stuck.notify_one(),
            }
        }
    };
    let receiving = async {
        let mut head = [0; 12];
        reads.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
    };
    join(sending, receiving).await;
    assert!(
        bodies.recv().await.unwrap() == whole,
        "the endpoint got another body"
    );
}

#[tokio::test]
async fn a_body_whose_next_answer_comes_early_loses_nothing() {
    // More than the buffers of a connection take.
    let whole = content(7 << 20);
    let (first, rest) = whole.split_at(whole.len() - 1000);
    let length = first.len();
    let busy = ScriptedUpstream::start(move |mut wire, _| async move {
        wire.head().await;
        wire.exactly(length).await;
        wire.send(ENDED).await;
        wire.rest().await;
    })
    .await;
    let (bodies, mut received) = mpsc::unbounded_channel();
    let told = Arc::new(Notify::new());
    let client_has_head = Arc::clone(&told);
    let early = ScriptedUpstream::start(move |mut wire, _| {
        let (bodies, told) = (bodies.clone(), Arc::clone(&told));
        async move {
            narrow(&wire);
            wire.head().await;
            wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                .await;
            told.notified().await;
            let body = wire.ending(END.as_bytes()).await.unwrap();
            bodies.send(decoded(&body)).unwrap();
            wire.send(END).await;
        }
    })
    .await;
    let policy = Some(keeping(on_busy(), KEPT));
    let front = ProxyServer::with(&[busy.address, early.address], |plan| plan.retry = policy).await;
    let mut client = connect_from([127, 0, 0, 3], front.address).await;
    client.send(format!("{PUT}{}", chunk(first))).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    client_has_head.notify_one();
    client.send(format!("{}{END}", chunk(rest))).await;
    assert!(
        received.recv().await.unwrap() == whole,
        "the endpoint got another body"
    );
    assert_eq!(client.exactly(END.len()).await, END);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_never_sent_as_a_whole_one() {
    let busy = ScriptedUpstream::start(move |mut wire, _| async move {
        // The body may break off before it is forwarded.
        while wire.try_head().await.is_some() && wire.until(b"abc\r\n").await.is_some() {
            let _ = wire.stream.write_all(BEGUN.as_bytes()).await;
        }
    })
    .await;
    let (good, mut bodies) = reader().await;
    for _ in 0..20 {
        let policy = Some(keeping(on_busy(), 4096));
        let front =
            ProxyServer::with(&[busy.address, good.address], |plan| plan.retry = policy).await;
        let mut client = RawConnection::connect(front.address).await;
        client.send(format!("{PUT}{}", chunk("abc"))).await;
        // Malformed, at about the time at which the answer comes.
        client.send("zz\r\n").await;
        let head = client.try_head().await.unwrap_or_default();
        assert!(!head.starts_with("HTTP/1.1 200"), "{head}");
        drop(front);
        assert!(bodies.try_recv().is_err());
    }
}

#[tokio::test]
async fn an_endpoint_that_takes_nothing_of_a_body_has_no_longer_than_an_attempt() {
    let deaf = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        std::future::pending::<()>().await;
    })
    .await;
    let (good, mut bodies) = reader().await;
    // More than the buffers of two sockets take.
    let whole = content(24 << 20);
    // Enough for the good endpoint, on a busy machine as well. The other one would be waited for an
    // hour.
    let per_try = Some(Duration::from_secs(3));
    let policy = RetryPolicy {
        per_try,
        ..keeping(RetryCondition::Timeout, 32 << 20)
    };
    let front = ProxyServer::with(&[deaf.address, good.address], |plan| {
        plan.retry = Some(policy);
        plan.spec.idle_timeout = Duration::from_secs(3600);
    })
    .await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(format!("{PUT}{}{END}", chunk(&whole))).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    assert!(
        bodies.recv().await.unwrap() == whole,
        "the endpoint got another body"
    );
    assert_eq!(front.gate.attempts.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_body_that_turns_out_empty_is_sent_again() {
    for keep_body in [0, 1 << 16] {
        let answers = [ENDED, OK].map(|answer| {
            ScriptedUpstream::start(move |mut wire, _| async move {
                while wire.try_head().await.is_some() {
                    assert_eq!(wire.ending(END.as_bytes()).await.unwrap(), END);
                    wire.send(answer).await;
                }
            })
        });
        let [busy, good] = answers;
        let (busy, good) = join(busy, good).await;
        let policy = Some(keeping(on_busy(), keep_body));
        let front =
            ProxyServer::with(&[busy.address, good.address], |plan| plan.retry = policy).await;
        let mut client = RawConnection::connect(front.address).await;
        client.send(format!("{PUT}{END}")).await;
        assert!(
            client.head().await.starts_with("HTTP/1.1 200"),
            "{keep_body}"
        );
        assert_eq!(front.gate.attempts.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn a_request_that_was_sent_once_counts_as_forwarded() {
    let unanswered = async |endpoint, on| {
        let front = ProxyServer::with(&[endpoint], |plan| plan.retry = Some(keeping(on, 0))).await;
        let mut client = RawConnection::connect(front.address).await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(client.head().await.starts_with("HTTP/1.1 502"));
        *front.gate.unanswered.lock().unwrap()
    };
    // Answers one request, and accepts no other connection.
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = server.local_addr().unwrap();
    tokio::spawn(async move {
        let mut wire = RawConnection::new(server.accept().await.unwrap().0);
        drop(server);
        wire.head().await;
        wire.send("HTTP/1.1 503 Busy\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            .await;
    });
    assert_eq!(
        unanswered(endpoint, on_busy()).await,
        Some(Unanswered::Forwarded)
    );
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    assert_eq!(
        unanswered(closed, RetryCondition::Connect).await,
        Some(Unanswered::NotForwarded)
    );
}
