//! How many streams an upstream takes, as it says late, or changes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::proxy_server::ProxyServer;
use futures_util::future::join_all;
use http::Method;
use tokio::io::AsyncReadExt;
use tokio::sync::Barrier;
use tollgate_testing::raw_http2::{ACK, HEADERS, SETTINGS, frame};
use tollgate_testing::upstream::RawConnection;

use super::endings::ok;
use super::websocket::WEBSOCKET;
use super::{GET, Http2Server, POST, answer, exchange, respond};

/// SETTINGS_MAX_CONCURRENT_STREAMS.
const MOST: u16 = 3;

/// Far more than a turn of the loopback.
const LATE: Duration = Duration::from_millis(50);

const SHORT: Duration = Duration::from_millis(200);

/// A server whose SETTINGS come late, and that refuses each stream beyond its limit. It opens
/// WebSockets, and answers once so many requests are there.
async fn late(most: u32, requests: usize) -> Http2Server {
    let all = Arc::new(Barrier::new(requests));
    Http2Server::accepting(move |stream, _| {
        let all = Arc::clone(&all);
        async move {
            tokio::time::sleep(LATE).await;
            let mut builder = h2::server::Builder::new();
            let mut connection = builder
                .max_concurrent_streams(most)
                .enable_connect_protocol()
                .handshake(stream)
                .await
                .unwrap();
            while let Some(Ok((request, mut sender))) = connection.accept().await {
                let all = Arc::clone(&all);
                tokio::spawn(async move {
                    all.wait().await;
                    if request.method() == Method::CONNECT {
                        let _tunnel = respond(&mut sender);
                        // To its end.
                        let mut body = request.into_body();
                        while let Some(Ok(_)) = body.data().await {}
                    } else {
                        answer(sender, "ok");
                    }
                });
            }
        }
    })
    .await
}

#[tokio::test]
async fn requests_that_come_at_once_keep_to_a_limit_that_comes_late() {
    for (most, requests, connections) in [(10, 60, 6), (1, 8, 8)] {
        for request in [GET, POST] {
            let server = late(most, requests).await;
            let front = server.behind().await;
            for (status, body) in join_all((0..requests).map(|_| exchange(&front, request))).await {
                assert_eq!((&*status, &*body), ("200", "ok"));
            }
            assert_eq!(server.connections(), connections);
        }
    }
}

async fn websocket(address: SocketAddr) -> (RawConnection, String) {
    let mut client = RawConnection::connect(address).await;
    client.send(WEBSOCKET).await;
    let head = client.head().await;
    (client, head)
}

#[tokio::test]
async fn websockets_that_are_opened_at_once_keep_to_a_limit_that_comes_late() {
    let server = late(1, 8).await;
    let front = server
        .behind_with(|plan| plan.spec.response_timeout = Duration::from_secs(5))
        .await;
    let opened = join_all((0..8).map(|_| websocket(front.address))).await;
    for (_, head) in &opened {
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    }
    assert_eq!(server.connections(), 8);
}

#[tokio::test]
async fn a_request_waits_for_an_upstream_that_takes_no_stream_yet() {
    let server = Http2Server::raw(&[(MOST, 0)], |mut wire, _| async move {
        // The gateway has heard of the limit.
        while wire.next(SETTINGS).await.flags & ACK == 0 {}
        wire.send(frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 2])).await;
        for _ in 0..2 {
            let stream = wire.next(HEADERS).await.stream;
            wire.send(ok(stream)).await;
        }
        while wire.frame().await.is_some() {}
    })
    .await;
    let front = server.behind().await;
    let both = tokio::join!(exchange(&front, GET), exchange(&front, GET));
    assert_eq!((&*both.0.0, &*both.1.0), ("200", "200"));
    assert_eq!(server.connections(), 1);
}

async fn is_refused(front: &ProxyServer, status: &str, problem: &str) {
    for request in [
        GET,
        POST,
        &WEBSOCKET.replace("Upgrade\r\n", "Upgrade, close\r\n"),
    ] {
        let (code, body) = exchange(front, request).await;
        assert!(code == status && body.contains(problem), "{code} {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_takes_no_stream_is_overloaded_once_connecting_has_taken_too_long() {
    let server = Http2Server::raw(&[(MOST, 0)], |mut wire, _| async move {
        while wire.frame().await.is_some() {}
    })
    .await;
    let front = server
        .behind_with(|plan| plan.spec.connect_timeout = SHORT)
        .await;
    is_refused(&front, "503", "upstream-overloaded").await;
    // Another connection would be no better.
    assert_eq!(server.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_sends_no_settings_is_not_connected() {
    let server = Http2Server::accepting(|mut stream, _| async move {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
    })
    .await;
    let front = server
        .behind_with(|plan| plan.spec.connect_timeout = SHORT)
        .await;
    is_refused(&front, "504", "connect-timeout").await;
}
