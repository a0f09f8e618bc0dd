//! Stopping: what is under way ends, what is idle closes, what takes too long is cut.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::test_server::{HandlerRecord, ScriptedHandler, TestServer, spec};
use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tollgate_server::{self as server, worker};
use tollgate_spec::listener::ListenerSpec;
use tollgate_testing::raw_http::RawClient;
use tollgate_testing::raw_http2::{END_STREAM, FrameClient, HEADERS, request};
use tollgate_testing::{PATIENCE, until};
use tollgate_wire::transport::listening_socket::AcceptingSocket;

const GATE: &str = "GET /gate HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn an_idle_connection_closes_soon() {
    let server = TestServer::start(spec());
    let mut fresh = server.connect().await;
    let mut used = server.connect().await;
    used.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(used.answer().await.status, 200);
    assert_eq!(server.requests(), ["GET /a"]);
    assert_eq!(server.stop(PATIENCE * 100).await, 0);
    fresh.closed().await;
    used.closed().await;
}

#[tokio::test]
async fn a_request_that_comes_just_after_the_drain_began_is_answered() {
    let server = TestServer::start(spec());
    let mut fresh = server.connect().await;
    let mut used = server.connect().await;
    used.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(used.answer().await.status, 200);
    server.signal.start(PATIENCE);
    let address = server.address;
    until("nothing is accepted any more", || {
        std::net::TcpStream::connect(address).is_err()
    })
    .await;
    for client in [&mut fresh, &mut used] {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.says_close()), (200, true));
        client.closed().await;
    }
    assert_eq!(server.stop(PATIENCE).await, 0);
}

#[tokio::test]
async fn a_request_under_way_ends_and_says_close() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client.send(GATE).await;
    server.handled(1).await;
    let seen = server.seen.clone();
    let address = server.address;
    let stopped = tokio::spawn(server.stop(PATIENCE * 100));
    let mut refused = 0;
    until("nothing is accepted any more", || {
        refused += usize::from(std::net::TcpStream::connect(address).is_err());
        refused > 0
    })
    .await;
    seen.gate.add_permits(1);
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.says_close()), (200, true));
    client.closed().await;
    assert_eq!(stopped.await.unwrap(), 0);
}

#[tokio::test]
async fn requests_beyond_the_drain_deadline_are_cut_and_counted() {
    let server = TestServer::start(spec());
    let seen = server.seen.clone();
    let mut clients = [server.connect().await, server.connect().await];
    for client in &mut clients {
        client.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n").await;
    }
    server.handled(2).await;
    assert_eq!(server.stop(Duration::from_millis(50)).await, 2);
    assert_eq!(seen.cancelled.load(Ordering::Relaxed), 2);
    for client in &mut clients {
        client.closed().await;
    }
}

#[tokio::test]
async fn an_upgraded_connection_counts_until_the_deadline_and_no_longer() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send("GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.status, 101);
    assert_eq!(server.stop(Duration::from_millis(50)).await, 1);
}

#[tokio::test]
async fn an_upgraded_connection_that_ends_lets_the_drain_end() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send("GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.status, 101);
    drop(client);
    assert_eq!(server.stop(PATIENCE * 100).await, 0);
}

#[tokio::test]
async fn an_http_2_connection_ends_after_its_requests() {
    let server = TestServer::start(spec());
    let stream = server.connect().await.stream;
    let io = TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let response = sender.send_request(
        Request::get("http://a/gate")
            .body(Empty::<Bytes>::new())
            .unwrap(),
    );
    let response = tokio::spawn(response);
    server.handled(1).await;
    let seen = server.seen.clone();
    let stopped = tokio::spawn(server.stop(PATIENCE * 100));
    seen.gate.add_permits(1);
    assert_eq!(response.await.unwrap().unwrap().status(), 200);
    connection.await.unwrap().unwrap();
    assert_eq!(stopped.await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_idle_http_2_client_that_is_gone_without_a_word_is_not_waited_for() {
    let server = TestServer::start(ListenerSpec {
        header_timeout: PATIENCE * 100,
        ..spec()
    });
    let mut gone = FrameClient::connect(server.address).await;
    gone.request(1, END_STREAM, &request("GET", "/a", &[]))
        .await;
    assert_eq!(gone.next(HEADERS).await.status(), 200);
    assert_eq!(server.stop(PATIENCE).await, 0);
}

#[test]
fn workers_share_a_port_and_drain_together() {
    let spec = Arc::new(spec());
    let sockets = server::bind(&spec, 2).unwrap();
    let address = sockets[0]
        .address()
        .and_then(|address| address.tcp())
        .unwrap();
    let (signal, drain) = server::drain::channel();
    let slots = server::ConnectionLimit::new(spec.max_connections);
    let seen = Arc::new(HandlerRecord::default());
    let workers: Vec<_> = sockets
        .into_iter()
        .map(|socket| {
            let (spec, slots, drain, app) = (
                spec.clone(),
                slots.clone(),
                drain.clone(),
                ScriptedHandler(seen.clone()),
            );
            worker::spawn("worker-7".to_owned(), move || async move {
                assert_eq!(std::thread::current().name(), Some("worker-7"));
                server::serve(
                    vec![AcceptingSocket::try_from(socket).unwrap()],
                    spec,
                    app,
                    slots,
                    drain,
                )
                .await
            })
            .unwrap()
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for n in 1..=50 {
            let stream = TcpStream::connect(address).await.unwrap();
            let mut client = RawClient {
                stream,
                buffer: Vec::new(),
            };
            client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert_eq!(client.answer().await.status, 200, "{n}");
        }
    });
    signal.start(PATIENCE);
    for worker in workers {
        assert_eq!(worker.join().unwrap().cut, 0);
    }
    assert_eq!(seen.requests.lock().len(), 50);
}
