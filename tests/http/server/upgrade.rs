//! Upgrades: taken, declined, and undecided.

use std::sync::atomic::Ordering;

use tokio::io::AsyncWriteExt;

use super::NEXT;
use crate::support::test_server::{TestServer, spec};
use tollgate_testing::raw_http::RawClient;
use tollgate_testing::until;

/// Asserts what the server sends next, outside of HTTP.
async fn expect(client: &mut RawClient, bytes: &[u8]) {
    while client.buffer.len() < bytes.len() {
        assert!(client.more().await > 0, "closed too soon");
    }
    assert_eq!(
        client.buffer.drain(..bytes.len()).collect::<Vec<_>>(),
        bytes
    );
}

#[tokio::test]
async fn an_upgraded_connection_carries_arbitrary_bytes() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    let ask = "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    client.send(format!("{ask}early\n\0")).await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.status, answer.field("upgrade")),
        (101, Some("echo"))
    );
    expect(&mut client, b"early\n\0").await;
    client.send(b"GET / HTTP/1.1\n\n\0").await;
    expect(&mut client, b"GET / HTTP/1.1\n\n\0").await;
    client.stream.shutdown().await.unwrap();
    client.closed().await;
    assert_eq!(server.requests(), ["GET /upgrade"]);
}

#[tokio::test]
async fn after_a_declined_upgrade_http_goes_on_and_is_as_strict() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    let ask = "GET /decline HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n";
    client.send(format!("{ask}{NEXT}{ask}")).await;
    assert_eq!(client.answer().await.status, 200);
    assert_eq!(client.answer().await.body, b"GET /next");
    assert_eq!(client.answer().await.status, 200);
    client
        .send(format!("GET / HTTP/1.1\nHost: a\r\n\r\n{NEXT}"))
        .await;
    assert_eq!(client.answer().await.status, 400);
    client.closed().await;
}

#[tokio::test]
async fn a_declined_upgrade_with_a_body_goes_on_behind_the_body() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    let ask = "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\n";
    client.send(format!("{ask}abc{NEXT}")).await;
    assert_eq!(client.answer().await.body, b"abc");
    assert_eq!(client.answer().await.body, b"GET /next");
}

#[tokio::test]
async fn requests_behind_an_undecided_upgrade_wait() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send("GET /gate HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
        .await;
    let many = NEXT.repeat(5000);
    client.send(&many).await;
    server.handled(1).await;
    assert_eq!(server.requests(), ["GET /gate waiting"]);
    server.seen.gate.add_permits(1);
    assert_eq!(client.answer().await.status, 200);
    for n in 0..5000 {
        assert_eq!(client.answer().await.body, b"GET /next", "{n}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_undecided_upgrade() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send("GET /never HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\nearly")
        .await;
    server.handled(1).await;
    drop(client);
    until("the handler is dropped", || {
        server.seen.cancelled.load(Ordering::Relaxed) == 1
    })
    .await;
}
