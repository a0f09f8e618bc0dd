//! Connections that leave HTTP on their way through.

use crate::support::proxy_server::ProxyServer;
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tollgate_testing::until;
use tollgate_testing::upstream::{RawConnection, ScriptedUpstream, values};

/// A WebSocket server that sends every message back.
async fn echo() -> ScriptedUpstream {
    ScriptedUpstream::start(|wire, _| async move {
        let mut socket = tokio_tungstenite::accept_async(wire.stream).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if !message.is_close() {
                socket.send(message).await.unwrap();
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_websocket_talks_through() {
    let server = echo().await;
    let front = ProxyServer::to(&[server.address]).await;
    let stream = TcpStream::connect(front.address).await.unwrap();
    let url = format!("ws://{}/chat", front.address);
    let (mut socket, response) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(front.gate.upstream.endpoints()[0].in_flight(), 1);
    for text in ["one", "two", &"long".repeat(100_000)] {
        socket.send(Message::text(text)).await.unwrap();
        assert_eq!(
            socket
                .next()
                .await
                .unwrap()
                .unwrap()
                .into_text()
                .unwrap()
                .as_str(),
            text
        );
    }
    socket.close(None).await.unwrap();
    while socket.next().await.is_some_and(|message| message.is_ok()) {}
    drop(socket);
    let endpoints = front.gate.upstream.endpoints();
    let endpoint = &endpoints[0];
    until("the tunnel is closed", || endpoint.in_flight() == 0).await;
    assert_eq!(front.gate.proxy.idle_connections(), 0);
}

#[tokio::test]
async fn bytes_right_behind_a_101_are_not_lost() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        let head = wire.head().await;
        assert_eq!(values(&head, "upgrade"), ["chat/1"]);
        assert_eq!(values(&head, "connection"), ["upgrade"]);
        wire.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat/1\r\nConnection: Upgrade\r\n\r\nhello").await;
        assert_eq!(wire.exactly(2).await, "hi");
        wire.send("bye").await;
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: chat/1\r\n\r\n").await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 101"));
    assert_eq!(values(&head, "upgrade"), ["chat/1"]);
    assert_eq!(client.exactly(5).await, "hello");
    client.send("hi").await;
    assert_eq!(client.rest().await, "bye");
}

#[tokio::test]
async fn an_upstream_may_decline() {
    let server =
        ScriptedUpstream::answering("HTTP/1.1 426 Upgrade Required\r\ncontent-length: 2\r\n\r\nno")
            .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    for _ in 0..2 {
        client
            .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            .await;
        assert!(
            client
                .until(b"\r\n\r\nno")
                .await
                .unwrap()
                .starts_with("HTTP/1.1 426")
        );
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn an_h2c_upgrade_is_not_forwarded() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        let head = wire.head().await;
        for gone in ["upgrade", "connection", "http2-settings"] {
            assert!(values(&head, gone).is_empty(), "{head}");
        }
        wire.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await;
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    let upgrade =
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    client
        .send(format!("GET / HTTP/1.1\r\nHost: a\r\n{upgrade}"))
        .await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn an_upstream_that_switches_within_the_request_is_refused() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.exactly(3).await;
        wire.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
            .await;
        assert_eq!(wire.rest().await, "");
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 5\r\n\r\nabc")
        .await;
    assert!(client.head().await.starts_with("HTTP/1.1 502"));
}

#[tokio::test]
async fn an_upstream_switches_to_nothing_but_what_was_offered() {
    for (field, status) in [
        ("", 502),
        ("Upgrade:\r\n", 502),
        ("Upgrade: foo\r\n", 502),
        ("Upgrade: WebSocket\r\n", 101),
    ] {
        let answer = format!("HTTP/1.1 101 x\r\n{field}Connection: upgrade\r\n\r\n");
        let server = ScriptedUpstream::answering(answer.leak()).await;
        let front = ProxyServer::to(&[server.address]).await;
        let mut client = RawConnection::connect(front.address).await;
        client
            .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            .await;
        let head = client.head().await;
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status}")),
            "{field} {head}"
        );
    }
}

#[tokio::test]
async fn an_upstream_switches_by_nothing_but_a_101_that_all_read_alike() {
    let proof = "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    for (version, fields, status) in [
        ("1.1", proof.to_owned(), 101),
        (
            "1.1",
            format!("{proof}Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"),
            101,
        ),
        (
            "1.1",
            format!("{proof}Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n"),
            502,
        ),
        (
            "1.1",
            proof.replace("Connection: upgrade", "Connection: keep-alive, Upgrade"),
            101,
        ),
        (
            "1.1",
            proof.replace("Connection: upgrade", "Connection: keep-alive"),
            502,
        ),
        ("1.1", proof.replace("Connection: upgrade\r\n", ""), 502),
        ("1.0", proof.to_owned(), 502),
    ] {
        let answer = format!("HTTP/{version} 101 Switching Protocols\r\n{fields}\r\n");
        let server = ScriptedUpstream::answering(answer.leak()).await;
        let front = ProxyServer::to(&[server.address]).await;
        let mut client = RawConnection::connect(front.address).await;
        client
            .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            .await;
        let head = client.head().await;
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status}")),
            "{version} {fields} {head}"
        );
    }
}

#[tokio::test]
async fn all_upgrade_fields_are_one_list_and_an_empty_one_is_no_upgrade() {
    for (fields, sent) in [
        ("Upgrade:", None),
        ("Upgrade: ,", None),
        ("Upgrade: a/1\r\nUpgrade: b", Some("a/1, b")),
    ] {
        let server = ScriptedUpstream::start(move |mut wire, _| async move {
            let head = wire.head().await;
            assert_eq!(values(&head, "upgrade"), Vec::from_iter(sent), "{head}");
            assert_eq!(
                values(&head, "connection").contains(&"upgrade"),
                sent.is_some(),
                "{head}"
            );
            wire.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .await;
        })
        .await;
        let front = ProxyServer::to(&[server.address]).await;
        let mut client = RawConnection::connect(front.address).await;
        client
            .send(format!(
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n{fields}\r\n\r\n"
            ))
            .await;
        assert!(client.head().await.starts_with("HTTP/1.1 200"), "{fields}");
    }
}

#[tokio::test]
async fn an_upstream_that_switches_to_h2c_is_refused() {
    let server = ScriptedUpstream::answering(
        "HTTP/1.1 101 x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    )
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    assert!(client.head().await.starts_with("HTTP/1.1 502"));
}
