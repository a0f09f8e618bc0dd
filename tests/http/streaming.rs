//! Bodies in motion: nothing is collected, nothing is awaited that need not be, and stalls end.

use std::sync::Arc;
use std::time::Duration;

use crate::support::proxy_server::{Forwarder, ForwarderConfig, ProxyServer};
use http::Request;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tollgate_testing::upstream::{RawConnection, ScriptedUpstream, values};
use tollgate_testing::{PATIENCE, until};
use tollgate_wire::body::{Body, BodyFailure, BoxError};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const EMPTY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

fn get() -> Request<Body> {
    Request::get("/")
        .header("host", "a")
        .body(Body::empty())
        .unwrap()
}

fn hasty(plan: &mut ForwarderConfig) {
    plan.spec.idle_timeout = Duration::from_millis(50);
}

#[tokio::test]
async fn the_first_bytes_arrive_while_the_rest_is_still_held() {
    let (release, held) = oneshot::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(Some(held)));
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let held = held.lock().unwrap().take();
        async move {
            wire.head().await;
            wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
                .await;
            held.unwrap().await.unwrap();
            wire.send("4\r\nlast\r\n0\r\n\r\n").await;
        }
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(GET).await;
    client.until(b"first").await.unwrap();
    release.send(()).unwrap();
    client.until(b"last\r\n0\r\n\r\n").await.unwrap();
}

#[tokio::test]
async fn an_upload_arrives_piece_by_piece() {
    let (seen, mut pieces) = mpsc::unbounded_channel();
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let seen = seen.clone();
        async move {
            wire.head().await;
            for _ in 0..3 {
                seen.send(wire.exactly(4).await).unwrap();
            }
            wire.send(EMPTY).await;
        }
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n")
        .await;
    for piece in ["one.", "two.", "end."] {
        client.send(piece).await;
        assert_eq!(pieces.recv().await.unwrap(), piece);
    }
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn chunked_uploads_and_their_trailers_pass() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        let head = wire.head().await;
        assert_eq!(values(&head, "transfer-encoding"), ["chunked"]);
        assert_eq!(values(&head, "trailer"), ["x-sum"]);
        assert_eq!(
            wire.until(b"\r\n\r\n").await.unwrap(),
            "5\r\nhello\r\n0\r\nx-sum: 42\r\n\r\n"
        );
        wire.send(EMPTY).await;
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    client.send("5\r\nhello\r\n0\r\nx-sum: 42\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn trailers_of_a_response_pass() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        while let Some(head) = wire.try_head().await {
            assert_eq!(values(&head, "te"), ["trailers"]);
            assert_eq!(values(&head, "connection"), ["te"]);
            wire.send("HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n")
                .await;
            wire.send("2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n").await;
        }
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    for _ in 0..2 {
        client
            .send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers, gzip\r\nConnection: TE\r\n\r\n")
            .await;
        client
            .until(b"2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n")
            .await
            .unwrap();
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_100_continue_is_sent_only_after_the_upstreams() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        assert_eq!(values(&wire.head().await, "expect"), ["100-continue"]);
        wire.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        assert_eq!(wire.exactly(3).await, "abc");
        wire.send(EMPTY).await;
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        .await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abc").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn an_upstream_may_refuse_before_the_body() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.send("HTTP/1.1 413 Payload Too Large\r\ncontent-length: 2\r\n\r\nno")
            .await;
        assert_eq!(wire.rest().await, "", "a body arrived that nobody wanted");
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        .await;
    assert!(
        client
            .until(b"no")
            .await
            .unwrap()
            .starts_with("HTTP/1.1 413")
    );
    until("the connection is not kept", || {
        front.gate.upstream.endpoints()[0].in_flight() == 0
    })
    .await;
    assert_eq!(front.gate.proxy.idle_connections(), 0);
}

#[tokio::test]
async fn a_body_is_sent_when_the_upstream_never_sends_100_continue() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        assert_eq!(wire.exactly(3).await, "abc");
        wire.send(EMPTY).await;
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        .await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abc").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_upload_passes_and_ends_it() {
    let closed = Arc::new(Notify::new());
    let noticed = Arc::clone(&closed);
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let closed = Arc::clone(&closed);
        async move {
            wire.head().await;
            wire.exactly(3).await;
            wire.send("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno")
                .await;
            wire.rest().await;
            closed.notify_one();
        }
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc")
        .await;
    assert!(
        client
            .until(b"no")
            .await
            .unwrap()
            .starts_with("HTTP/1.1 403")
    );
    tokio::time::timeout(PATIENCE, noticed.notified())
        .await
        .expect("the upload goes on");
    assert_eq!(front.gate.proxy.idle_connections(), 0);
}

#[tokio::test]
async fn a_client_that_does_not_read_slows_the_upstream_down() {
    const CHUNK: usize = 64 * 1024;
    const CHUNKS: usize = 1024;
    let (stalled, told) = oneshot::channel();
    let stalled = Arc::new(std::sync::Mutex::new(Some(stalled)));
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let stalled = stalled.lock().unwrap().take();
        async move {
            wire.head().await;
            wire.send(format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
                CHUNK * CHUNKS
            ))
            .await;
            let chunk = vec![b'x'; CHUNK];
            let (mut stalled, mut written) = (stalled, 0);
            while written < CHUNK * CHUNKS {
                let left = (CHUNK * CHUNKS - written).min(CHUNK);
                let writing = wire.stream.write(&chunk[..left]);
                match stalled.take() {
                    None => written += writing.await.unwrap(),
                    Some(tell) => match tokio::time::timeout(Duration::from_millis(300), writing)
                        .await
                    {
                        Ok(count) => (written, stalled) = (written + count.unwrap(), Some(tell)),
                        Err(_) => tell.send(written).unwrap(),
                    },
                }
            }
        }
    })
    .await;
    let gate = Forwarder::new(ForwarderConfig::new(&[server.address]));
    let response = gate.answer(get(), "127.0.0.1:1".parse().unwrap()).await;
    let in_flight = tokio::time::timeout(PATIENCE, told)
        .await
        .expect("nothing slows the upstream")
        .unwrap();
    assert!(
        in_flight < 16 * 1024 * 1024,
        "{in_flight} bytes taken that nobody reads"
    );
    let mut body = response.into_body();
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        received += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(received, CHUNK * CHUNKS);
}

#[tokio::test]
async fn a_body_dropped_early_closes_its_connection() {
    let closed = Arc::new(Notify::new());
    let noticed = Arc::clone(&closed);
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let closed = Arc::clone(&closed);
        async move {
            wire.head().await;
            wire.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf.")
                .await;
            wire.rest().await;
            closed.notify_one();
        }
    })
    .await;
    let gate = Forwarder::new(ForwarderConfig::new(&[server.address]));
    let response = gate.answer(get(), "127.0.0.1:1".parse().unwrap()).await;
    assert_eq!(gate.upstream.endpoints()[0].in_flight(), 1);
    drop(response);
    tokio::time::timeout(PATIENCE, noticed.notified())
        .await
        .expect("the connection stays open");
    assert_eq!(
        (
            gate.upstream.endpoints()[0].in_flight(),
            gate.proxy.idle_connections()
        ),
        (0, 0)
    );
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_ends_the_exchange() {
    let (arrived, closed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (came, left) = (Arc::clone(&arrived), Arc::clone(&closed));
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let (came, left) = (Arc::clone(&came), Arc::clone(&left));
        async move {
            wire.head().await;
            came.notify_one();
            wire.rest().await;
            left.notify_one();
        }
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(GET).await;
    arrived.notified().await;
    drop(client);
    tokio::time::timeout(PATIENCE, closed.notified())
        .await
        .expect("the exchange goes on");
}

#[tokio::test]
async fn a_connection_comes_back_when_its_body_has_ended() {
    let rest = Arc::new(Notify::new());
    let wanted = Arc::clone(&rest);
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let wanted = Arc::clone(&wanted);
        async move {
            wire.head().await;
            wire.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
                .await;
            wanted.notified().await;
            wire.send("whole").await;
            wire.rest().await;
        }
    })
    .await;
    let gate = Forwarder::new(ForwarderConfig::new(&[server.address]));
    let response = gate.answer(get(), "127.0.0.1:1".parse().unwrap()).await;
    rest.notify_one();
    assert_eq!(
        (
            gate.upstream.endpoints()[0].in_flight(),
            gate.proxy.idle_connections()
        ),
        (1, 0)
    );
    let mut body = response.into_body();
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "whole"
    );
    assert_eq!(
        (
            gate.upstream.endpoints()[0].in_flight(),
            gate.proxy.idle_connections()
        ),
        (0, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_response_that_stalls_is_cut() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf.")
            .await;
        wire.rest().await;
    })
    .await;
    let front = ProxyServer::with(&[server.address], hasty).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(GET).await;
    assert!(client.rest().await.ends_with("half."));
}

#[tokio::test]
async fn a_response_that_breaks_off_is_not_passed_on_as_whole() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhalf.\r\n")
            .await;
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(GET).await;
    assert!(client.rest().await.ends_with("half.\r\n"));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_upload_is_answered_with_408() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        assert_eq!(wire.rest().await, "abc");
    })
    .await;
    let front = ProxyServer::with(&[server.address], hasty).await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
        .await;
    assert!(client.head().await.starts_with("HTTP/1.1 408"));
}

#[tokio::test]
async fn an_upstream_that_reads_nothing_times_out() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        std::future::pending::<()>().await;
    })
    .await;
    let gate = Forwarder::new({
        let mut plan = ForwarderConfig::new(&[server.address]);
        hasty(&mut plan);
        plan
    });
    let endless =
        futures_util::stream::repeat_with(|| Ok(http_body::Frame::data(vec![0; 65536].into())));
    let body = Body::boxed(http_body_util::StreamBody::new(endless));
    let request = Request::post("/").header("host", "a").body(body).unwrap();
    let answer = gate.answer(request, "127.0.0.1:1".parse().unwrap());
    let response = tokio::time::timeout(PATIENCE, answer)
        .await
        .expect("the upload is never given up");
    assert_eq!(response.status(), 504);
}

#[tokio::test(start_paused = true)]
async fn a_slow_upload_that_moves_outlives_the_response_timeout() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.until(b"0\r\n\r\n").await.unwrap();
        wire.send(EMPTY).await;
    })
    .await;
    let gate = Forwarder::new({
        let mut plan = ForwarderConfig::new(&[server.address]);
        plan.spec.response_timeout = Duration::from_millis(100);
        plan
    });
    let ticks = tokio::time::interval(Duration::from_millis(25));
    let slow = futures_util::stream::unfold((ticks, 0), |(mut ticks, count)| async move {
        ticks.tick().await;
        (count < 12).then(|| {
            (
                Ok(http_body::Frame::data("tick".into())),
                (ticks, count + 1),
            )
        })
    });
    let body = Body::boxed(http_body_util::StreamBody::new(slow));
    let request = Request::post("/").header("host", "a").body(body).unwrap();
    let response = gate.answer(request, "127.0.0.1:1".parse().unwrap()).await;
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn a_failing_upload_is_answered_by_its_cause() {
    let causes = [
        (BodyFailure::Timeout, 408),
        (BodyFailure::TooLarge, 413),
        (BodyFailure::Malformed, 400),
    ];
    for (cause, status) in causes {
        let server = ScriptedUpstream::start(|mut wire, _| async move {
            wire.try_head().await;
            assert!(
                !wire.rest().await.ends_with("0\r\n\r\n"),
                "a broken body was passed on as whole"
            );
        })
        .await;
        let gate = Forwarder::new(ForwarderConfig::new(&[server.address]));
        let frames = [
            Ok(http_body::Frame::data("abc".into())),
            Err(BoxError::from(cause)),
        ];
        let body = Body::boxed(http_body_util::StreamBody::new(futures_util::stream::iter(
            frames,
        )));
        let request = Request::post("/").header("host", "a").body(body).unwrap();
        assert_eq!(
            gate.answer(request, "127.0.0.1:1".parse().unwrap())
                .await
                .status(),
            status
        );
    }
}

/// An address whose connections take little at a time, so that what they are sent waits at the
/// sender.
fn narrow() -> (tokio::net::TcpListener, std::net::SocketAddr) {
    listen(|socket| {
        socket
            .set_recv_buffer_size(4096)
            .and_then(|()| socket.set_mss(536))
    })
}

fn with_recv_buffer(size: usize) -> (tokio::net::TcpListener, std::net::SocketAddr) {
    listen(|socket| socket.set_recv_buffer_size(size))
}

fn listen(
    set: impl FnOnce(&socket2::Socket) -> std::io::Result<()>,
) -> (tokio::net::TcpListener, std::net::SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    set(&socket).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
        .bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    socket.listen(8).unwrap();
    let listener = tokio::net::TcpListener::from_std(socket.into()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[tokio::test]
async fn an_upstream_that_takes_a_little_at_a_time_is_waited_for() {
    const LENGTH: usize = 700 * 1024;
    let (listener, address) = narrow();
    let server = tokio::spawn(async move {
        let mut stream = listener.accept().await.unwrap().0;
        let (mut received, mut ticks) =
            (Vec::new(), tokio::time::interval(Duration::from_millis(5)));
        while !received.ends_with(b"\r\n0\r\n\r\n") {
            let mut little = [0; 4096];
            let count = stream.read(&mut little).await.unwrap();
            assert!(count > 0, "given up after {} bytes", received.len());
            received.extend_from_slice(&little[..count]);
            ticks.tick().await;
        }
        assert!(received.len() > LENGTH);
        stream.write_all(EMPTY.as_bytes()).await.unwrap();
    });
    let gate = Forwarder::new({
        let mut plan = ForwarderConfig::new(&[address]);
        plan.spec.idle_timeout = Duration::from_millis(400);
        plan
    });
    let pieces =
        [vec![b'x'; LENGTH - 1], vec![b'x']].map(|piece| Ok(http_body::Frame::data(piece.into())));
    let body = Body::boxed(http_body_util::StreamBody::new(futures_util::stream::iter(
        pieces,
    )));
    let request = Request::post("/").header("host", "a").body(body).unwrap();
    let response = gate.answer(request, "127.0.0.1:1".parse().unwrap()).await;
    assert_eq!(response.status(), 200);
    server.await.unwrap();
}

#[tokio::test]
async fn an_upstream_that_takes_a_steady_little_of_what_the_kernel_holds_is_waited_for() {
    const LENGTH: usize = 16 * 1024 * 1024;
    let (listener, address) = with_recv_buffer(64 * 1024);
    let server = tokio::spawn(async move {
        let mut stream = listener.accept().await.unwrap().0;
        let (mut piece, mut ticks) = (
            vec![0; 30 * 1024],
            tokio::time::interval(Duration::from_millis(100)),
        );
        // Some `idle_timeout`s, and in each of them less than what the kernel waits for before it
        // says so.
        for _ in 0..35 {
            ticks.tick().await;
            stream.read_exact(&mut piece).await.expect("given up");
        }
        let rest = (LENGTH - 35 * piece.len()) as u64;
        tokio::io::copy(&mut (&mut stream).take(rest), &mut tokio::io::sink())
            .await
            .unwrap();
        stream.write_all(EMPTY.as_bytes()).await.unwrap();
    });
    let gate = Forwarder::new({
        let mut plan = ForwarderConfig::new(&[address]);
        plan.spec.idle_timeout = Duration::from_secs(1);
        plan
    });
    let pieces =
        [vec![b'x'; LENGTH - 1], vec![b'x']].map(|piece| Ok(http_body::Frame::data(piece.into())));
    let body = Body::boxed(http_body_util::StreamBody::new(futures_util::stream::iter(
        pieces,
    )));
    let request = Request::post("/")
        .header("host", "a")
        .header("content-length", LENGTH)
        .body(body)
        .unwrap();
    let response = gate.answer(request, "127.0.0.1:1".parse().unwrap()).await;
    assert_eq!(response.status(), 200);
    server.await.unwrap();
}

#[tokio::test]
async fn an_answer_flows_beside_the_rest_of_its_upload() {
    const LENGTH: usize = 16 * 1024 * 1024;
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.send(format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n"
        ))
        .await;
        let (mut read, mut write) = wire.stream.split();
        tokio::io::copy(&mut read, &mut write).await.ok();
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let client = TcpStream::connect(front.address).await.unwrap();
    let (read, mut write) = client.into_split();
    let sending = async {
        write
            .write_all(
                format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n")
                    .as_bytes(),
            )
            .await
            .unwrap();
        write.write_all(&vec![b'x'; LENGTH]).await.unwrap();
    };
    let mut received = Vec::new();
    let mut read = read.take(LENGTH as u64);
    let both = async { tokio::join!(sending, read.read_to_end(&mut received)) };
    tokio::time::timeout(PATIENCE, both)
        .await
        .expect("both directions wait for each other")
        .1
        .unwrap();
    assert!(received.starts_with(b"HTTP/1.1 200") && received.ends_with(b"xxxx"));
}
