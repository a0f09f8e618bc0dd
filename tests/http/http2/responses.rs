//! The answer that a client gets, and what becomes of one that does not take it.

use std::sync::atomic::Ordering::Relaxed;

use crate::support::test_server::{TestServer, spec};
use tollgate_spec::listener::ListenerSpec;
use tollgate_testing::raw_http2::{
    DATA, END_STREAM, FrameClient, GOAWAY, HEADERS, RST_STREAM, WINDOW_UPDATE, frame, request,
};
use tollgate_testing::until;

use super::{CANCEL, INTERNAL_ERROR, NO_ERROR, SHORT};

/// SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW: u16 = 4;

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_no_window_loses_its_stream_and_no_other() {
    let server = TestServer::start(ListenerSpec {
        body_timeout: SHORT,
        ..spec()
    });
    let mut client = FrameClient::with_settings(server.address, &[(INITIAL_WINDOW, 0)]).await;
    client
        .request(1, END_STREAM, &request("GET", "/endless", &[]))
        .await;
    assert_eq!(client.of_stream(1).await.kind, HEADERS);
    let reset = client.of_stream(1).await;
    assert_eq!((reset.kind, reset.code()), (RST_STREAM, CANCEL));
    // All that hangs on the response's body has ended: permits, and the connection to the upstream.
    until("the body is dropped", || {
        server.seen.cancelled.load(Relaxed) == 1
    })
    .await;
    client
        .request(3, END_STREAM, &request("HEAD", "/a", &[]))
        .await;
    assert_eq!(client.of_stream(3).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_its_window_little_by_little_gets_all() {
    let server = TestServer::start(ListenerSpec {
        body_timeout: SHORT * 10,
        ..spec()
    });
    let mut client = FrameClient::with_settings(server.address, &[(INITIAL_WINDOW, 0)]).await;
    client
        .request(1, END_STREAM, &request("GET", "/little", &[]))
        .await;
    assert_eq!(client.of_stream(1).await.status(), 200);
    let mut body = Vec::new();
    loop {
        client.send(frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 3])).await;
        let data = client.of_stream(1).await;
        assert!(data.kind == DATA && data.payload.len() <= 3, "{data:?}");
        body.extend_from_slice(&data.payload);
        if data.ends_stream() {
            break;
        }
    }
    assert_eq!(body, b"GET http://a/little");
}

#[tokio::test]
async fn the_answer_to_a_head_has_no_content_whoever_gives_it() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    for (stream, path, status) in [
        (1, "/a", 200),
        (3, "/deny", 429),
        (5, "/a\"", 400),
        (7, "/gone", 200),
    ] {
        client
            .request(stream, END_STREAM, &request("HEAD", path, &[]))
            .await;
        let head = client.of_stream(stream).await;
        assert_eq!(
            (head.kind, head.ends_stream(), head.status()),
            (HEADERS, true, status),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_response_that_breaks_off_is_delivered_and_then_reset() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    client
        .request(1, END_STREAM, &request("GET", "/break", &[]))
        .await;
    assert_eq!(client.of_stream(1).await.kind, HEADERS);
    let data = client.of_stream(1).await;
    assert_eq!(
        (data.kind, &data.payload[..], data.ends_stream()),
        (DATA, &b"begun"[..], false)
    );
    let reset = client.of_stream(1).await;
    assert_eq!((reset.kind, reset.code()), (RST_STREAM, INTERNAL_ERROR));
}

#[tokio::test]
async fn an_early_answer_tells_the_client_to_stop_without_an_error() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    client.request(1, 0, &request("POST", "/deny", &[])).await;
    assert_eq!(client.of_stream(1).await.status(), 429);
    assert!(client.of_stream(1).await.ends_stream());
    let reset = client.of_stream(1).await;
    assert_eq!((reset.kind, reset.code()), (RST_STREAM, NO_ERROR));
}

#[tokio::test]
async fn stalled_uploads_leave_room_for_others() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    // The connection's window as the server opens it.
    while client.next(WINDOW_UPDATE).await.stream != 0 {}
    let piece = [b'x'; 16 * 1000];
    for stream in (1..).step_by(2).take(100) {
        client
            .request(stream, 0, &request("POST", "/never", &[]))
            .await;
        for _ in 0..4 {
            client.send(frame(DATA, 0, stream, &piece)).await;
        }
    }
    client.request(999, 0, &request("POST", "/echo", &[])).await;
    for flags in [0, 0, 0, END_STREAM] {
        client.send(frame(DATA, flags, 999, &piece)).await;
    }
    assert_eq!(client.of_stream(999).await.status(), 200);
}

#[tokio::test]
async fn a_client_that_expects_a_100_gets_it_when_its_body_is_read() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    let expects = [("expect", "100-continue"), ("content-length", "2")];
    client
        .request(1, 0, &request("POST", "/echo", &expects))
        .await;
    let interim = client.of_stream(1).await;
    assert_eq!((interim.status(), interim.ends_stream()), (100, false));
    client.send(frame(DATA, END_STREAM, 1, b"hi")).await;
    assert_eq!(client.of_stream(1).await.status(), 200);
    assert_eq!(client.of_stream(1).await.payload, b"hi");
    // Nobody reads this one's body.
    client
        .request(3, 0, &request("POST", "/deny", &expects))
        .await;
    assert_eq!(client.of_stream(3).await.status(), 429);
    // This one has sent it already.
    let sent = [frame(
        HEADERS,
        4,
        5,
        &tollgate_testing::raw_http2::block(&request("POST", "/echo", &expects)),
    )];
    client
        .send([&sent[0][..], &frame(DATA, END_STREAM, 5, b"hi")].concat())
        .await;
    assert_eq!(client.of_stream(5).await.status(), 200);
}

#[tokio::test]
async fn a_client_that_leaves_drops_its_requests() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    client
        .request(1, END_STREAM, &request("GET", "/never", &[]))
        .await;
    client
        .request(3, END_STREAM, &request("GET", "/never", &[]))
        .await;
    server.handled(2).await;
    client
        .send(frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()))
        .await;
    until("the request is dropped", || {
        server.seen.cancelled.load(Relaxed) == 1
    })
    .await;
    drop(client);
    until("the other is dropped", || {
        server.seen.cancelled.load(Relaxed) == 2
    })
    .await;
}

#[tokio::test]
async fn a_drain_lets_streams_end_and_takes_no_new_ones() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    client
        .request(1, END_STREAM, &request("GET", "/gate", &[]))
        .await;
    server.handled(1).await;
    let seen = server.seen.clone();
    server.signal.start(tollgate_testing::PATIENCE * 100);
    assert_eq!(client.next(GOAWAY).await.code(), NO_ERROR);
    seen.gate.add_permits(1);
    assert_eq!(client.of_stream(1).await.status(), 200);
}
