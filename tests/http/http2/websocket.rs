//! WebSockets over HTTP/2, to upstreams that know those of HTTP/1.1 (RFC 8441).

use crate::support::proxy_server::ProxyServer;
use tokio::io::AsyncReadExt;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tollgate_testing::raw_http2::{
    DATA, END_STREAM, FrameClient, HEADERS, RST_STREAM, SETTINGS, frame,
};
use tollgate_testing::upstream::{RawConnection, ScriptedUpstream};

/// SETTINGS_ENABLE_CONNECT_PROTOCOL.
const ENABLE_CONNECT_PROTOCOL: u8 = 8;

fn connect<'a>(protocol: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let pseudo = [
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "http"),
        (":path", "/chat"),
        (":authority", "a"),
    ];
    [
        &pseudo[..],
        &[
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "chat"),
        ],
        more,
    ]
    .concat()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .find_map(|line| {
            line.split_once(": ")
                .filter(|(found, _)| found.eq_ignore_ascii_case(name))
        })
        .map(|(_, value)| value)
}

/// Agrees to the upgrade that it is asked for.
async fn agree(wire: &mut RawConnection) {
    let head = wire.head().await;
    assert!(head.starts_with("GET /chat HTTP/1.1\r\n"), "{head}");
    assert_eq!(header(&head, "upgrade"), Some("websocket"));
    assert_eq!(header(&head, "sec-websocket-protocol"), Some("chat"));
    let accept = derive_accept_key(header(&head, "sec-websocket-key").unwrap().as_bytes());
    wire.send(format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
    ))
    .await;
}

#[tokio::test]
async fn a_websocket_passes_both_ways_and_ends_on_both_sides() {
    let upstream = ScriptedUpstream::start(|mut wire, _| async move {
        agree(&mut wire).await;
        wire.send("welcome").await;
        assert_eq!(wire.until(b"ping").await.as_deref(), Some("ping"));
        wire.send("pong").await;
        assert_eq!(wire.stream.read(&mut [0]).await.unwrap(), 0);
    })
    .await;
    let gate = ProxyServer::to(&[upstream.address]).await;
    let mut client = FrameClient::connect(gate.address).await;
    let settings = client.next(SETTINGS).await;
    assert!(
        settings
            .payload
            .chunks(6)
            .any(|setting| setting == [0, ENABLE_CONNECT_PROTOCOL, 0, 0, 0, 1])
    );
    client.request(1, 0, &connect("websocket", &[])).await;
    let head = client.of_stream(1).await;
    assert_eq!(
        (head.kind, head.status(), head.ends_stream()),
        (HEADERS, 200, false)
    );
    assert_eq!(client.of_stream(1).await.payload, b"welcome");
    client.send(frame(DATA, 0, 1, b"ping")).await;
    assert_eq!(client.of_stream(1).await.payload, b"pong");
    client.send(frame(DATA, END_STREAM, 1, b"")).await;
    let end = client.of_stream(1).await;
    assert_eq!((end.kind, end.ends_stream()), (DATA, true));
}

#[tokio::test]
async fn an_upstream_that_proves_its_websocket_switches_to_nothing_else() {
    for field in ["", "Upgrade:\r\n", "Upgrade: foo\r\n"] {
        let upstream = ScriptedUpstream::start(move |mut wire, _| async move {
            let head = wire.head().await;
            let accept = derive_accept_key(header(&head, "sec-websocket-key").unwrap().as_bytes());
            wire.send(format!(
                "HTTP/1.1 101 x\r\nConnection: upgrade\r\n{field}Sec-WebSocket-Accept: {accept}\r\n\r\n"
            ))
            .await;
        })
        .await;
        let gate = ProxyServer::to(&[upstream.address]).await;
        let mut client = FrameClient::connect(gate.address).await;
        client.request(1, 0, &connect("websocket", &[])).await;
        assert_eq!(client.of_stream(1).await.status(), 502, "{field}");
    }
}

#[tokio::test]
async fn a_client_that_resets_its_websocket_closes_that_of_the_upstream() {
    let (closed, wait) = tokio::sync::oneshot::channel();
    let closed = std::sync::Arc::new(std::sync::Mutex::new(Some(closed)));
    let upstream = ScriptedUpstream::start(move |mut wire, _| {
        let closed = closed.clone();
        async move {
            agree(&mut wire).await;
            let _ = wire.stream.read(&mut [0]).await;
            closed.lock().unwrap().take().unwrap().send(()).unwrap();
        }
    })
    .await;
    let gate = ProxyServer::to(&[upstream.address]).await;
    let mut client = FrameClient::connect(gate.address).await;
    client.request(1, 0, &connect("websocket", &[])).await;
    assert_eq!(client.of_stream(1).await.status(), 200);
    client
        .send(frame(RST_STREAM, 0, 1, &super::CANCEL.to_be_bytes()))
        .await;
    tokio::time::timeout(tollgate_testing::PATIENCE, wait)
        .await
        .expect("the upstream's end closes")
        .unwrap();
}

#[tokio::test]
async fn an_upstream_that_does_not_switch_opens_no_tunnel() {
    for (answer, status) in [
        (
            "HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n",
            502,
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 502),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", 403),
    ] {
        let upstream = ScriptedUpstream::answering(answer).await;
        let gate = ProxyServer::to(&[upstream.address]).await;
        let mut client = FrameClient::connect(gate.address).await;
        client.request(1, 0, &connect("websocket", &[])).await;
        assert_eq!(client.of_stream(1).await.status(), status, "{answer}");
    }
}

#[tokio::test]
async fn a_connect_for_anything_else_is_refused() {
    let upstream =
        ScriptedUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let gate = ProxyServer::to(&[upstream.address]).await;
    for fields in [
        connect("connect-udp", &[]),
        vec![(":method", "CONNECT"), (":authority", "a:443")],
    ] {
        let mut client = FrameClient::connect(gate.address).await;
        client.request(1, 0, &fields).await;
        assert_eq!(client.of_stream(1).await.status(), 501, "{fields:?}");
    }
    assert_eq!(upstream.connections(), 0);
}
