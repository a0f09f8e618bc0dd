//! Connections at their bounds: the one that is idle for longest makes room, active ones never, and
//! a client has its share.

use std::time::Duration;

use crate::support::test_server::{TestServer, spec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tollgate_spec::listener::ListenerSpec;
use tollgate_testing::PATIENCE;
use tollgate_testing::raw_http::RawClient;
use tollgate_testing::raw_http2::{
    END_HEADERS, END_STREAM, FrameClient, GOAWAY, HEADERS, block, frame, request,
};

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

async fn is_answered(client: &mut RawClient) {
    client.send(GET).await;
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test]
async fn the_connection_idle_for_longest_makes_room_and_active_ones_never_do() {
    let server = TestServer::start(ListenerSpec {
        max_connections: 3,
        ..spec()
    });
    let mut active = server.connect().await;
    active.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n").await;
    server.handled(1).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    is_answered(&mut first).await;
    is_answered(&mut second).await;
    is_answered(&mut first).await;
    is_answered(&mut server.connect().await).await;
    // Where that takes long, on a busy machine, the first is asked to close as well.
    second.closed().await;
    server.seen.gate.add_permits(1);
    assert_eq!(active.answer().await.status, 200);
}

#[tokio::test]
async fn connections_that_never_said_anything_make_room_too() {
    let server = TestServer::start(ListenerSpec {
        max_connections: 3,
        ..spec()
    });
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(server.connect().await);
    }
    is_answered(&mut server.connect().await).await;
    for client in &mut silent[..7] {
        client.closed().await;
    }
}

#[tokio::test]
async fn a_connection_whose_head_has_begun_is_not_idle() {
    let server = TestServer::start(ListenerSpec {
        max_connections: 2,
        ..spec()
    });
    let (mut slow, mut silent) = (server.connect().await, server.connect().await);
    slow.send("GET /a HT").await;
    is_answered(&mut server.connect().await).await;
    silent.closed().await;
    slow.send("TP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(slow.answer().await.status, 200);
}

#[tokio::test]
async fn an_idle_http_2_connection_makes_room_with_a_goaway() {
    let server = TestServer::start(ListenerSpec {
        max_connections: 1,
        ..spec()
    });
    let mut idle = FrameClient::connect(server.address).await;
    idle.request(1, END_STREAM, &request("GET", "/a", &[]))
        .await;
    assert_eq!(idle.next(HEADERS).await.status(), 200);
    let mut other = server.connect().await;
    other.send(GET).await;
    idle.next(GOAWAY).await;
    drop(idle);
    assert_eq!(other.answer().await.status, 200);
}

#[tokio::test]
async fn an_idle_http_2_client_that_is_gone_without_a_word_makes_room() {
    let server = TestServer::start(ListenerSpec {
        max_connections: 1,
        header_timeout: PATIENCE * 100,
        ..spec()
    });
    let mut gone = FrameClient::connect(server.address).await;
    gone.request(1, END_STREAM, &request("GET", "/a", &[]))
        .await;
    assert_eq!(gone.next(HEADERS).await.status(), 200);
    is_answered(&mut server.connect().await).await;
}

#[tokio::test]
async fn an_http_2_client_that_goes_on_after_its_goaway_makes_room_in_the_end() {
    let limits = ListenerSpec {
        header_timeout: Duration::from_secs(2),
        ..spec()
    };
    let server = TestServer::start(ListenerSpec {
        max_connections: 1,
        ..limits
    });
    let mut stubborn = FrameClient::connect(server.address).await;
    stubborn
        .request(1, END_STREAM, &request("GET", "/a", &[]))
        .await;
    assert_eq!(stubborn.next(HEADERS).await.status(), 200);
    let mut other = server.connect().await;
    other.send(GET).await;
    // Nor does it answer the PING that comes with it.
    stubborn.next(GOAWAY).await;
    let going_on = async {
        for stream in (3..).step_by(2) {
            let head = frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                stream,
                &block(&request("HEAD", "/a", &[])),
            );
            if stubborn.stream.write_all(&head).await.is_err() {
                return;
            }
            loop {
                match stubborn.frame().await {
                    Some(frame) if frame.stream == stream => break,
                    Some(_) => {}
                    None => return,
                }
            }
        }
    };
    timeout(PATIENCE, going_on)
        .await
        .expect("the connection stays open");
    assert_eq!(other.answer().await.status, 200);
}

#[tokio::test]
async fn an_http_2_connection_with_a_request_under_way_stays() {
    let server = TestServer::start(ListenerSpec {
        max_connections: 2,
        ..spec()
    });
    let mut busy = FrameClient::connect(server.address).await;
    busy.request(1, END_STREAM, &request("GET", "/gate", &[]))
        .await;
    server.handled(1).await;
    let mut idle = server.connect().await;
    is_answered(&mut idle).await;
    is_answered(&mut server.connect().await).await;
    idle.closed().await;
    server.seen.gate.add_permits(1);
    assert_eq!(busy.next(HEADERS).await.status(), 200);
}

#[tokio::test]
async fn a_client_with_as_many_connections_as_it_may_have_is_reset_until_one_closes() {
    let server = TestServer::start(ListenerSpec {
        max_connections_per_client: Some(2),
        ..spec()
    });
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    is_answered(&mut first).await;
    is_answered(&mut second).await;
    assert!(!has_a_place(&server).await);
    is_answered(&mut first).await;
    drop(first);
    timeout(PATIENCE, async { while !has_a_place(&server).await {} })
        .await
        .unwrap();
}

/// Whether a new connection is served.
async fn has_a_place(server: &TestServer) -> bool {
    let mut client = server.connect().await;
    let sent = client.stream.write_all(GET.as_bytes()).await;
    sent.is_ok() && matches!(client.stream.read(&mut [0; 100]).await, Ok(1..))
}
