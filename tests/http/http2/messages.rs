//! Messages and frames that are malformed, and the code that each is answered with (RFC 9113 §5.4,
//! §7, §8.1.1).

use crate::support::test_server::{TestServer, spec};
use tollgate_testing::raw_http2::{
    ACK, DATA, END_HEADERS, END_STREAM, FrameClient, HEADERS, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, block, frame, request,
};

use super::{FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, PROTOCOL_ERROR, STREAM_CLOSED};

#[tokio::test]
async fn a_malformed_request_is_a_stream_error() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    let cases: [&[(&str, &str)]; 9] = [
        &request("GET", "/a", &[("connection", "close")]),
        &request("GET", "/a", &[("transfer-encoding", "chunked")]),
        &request("GET", "/a", &[("te", "gzip")]),
        &request("GET", "/a", &[("x", "1"), (":scheme", "http")]),
        &request("GET", "/a", &[("content-length", "5")]),
        &request("GET", "/a", &[("content-length", "five")]),
        &request("GET", "/a", &[(":protocol", "websocket")]),
        &[(":method", "GET"), (":scheme", "http"), (":authority", "a")],
        &[(":method", "GET"), (":path", "/a"), (":authority", "a")],
    ];
    for (fields, stream) in cases.into_iter().zip((1..).step_by(2)) {
        client.request(stream, END_STREAM, fields).await;
        let reset = client.of_stream(stream).await;
        assert_eq!(
            (reset.kind, reset.code()),
            (RST_STREAM, PROTOCOL_ERROR),
            "{fields:?}"
        );
    }
    client
        .request(999, END_STREAM, &request("GET", "/a", &[]))
        .await;
    assert_eq!(client.of_stream(999).await.status(), 200);
    assert_eq!(server.requests(), ["GET http://a/a"]);
}

#[tokio::test]
async fn content_of_another_length_than_announced_is_a_stream_error() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    for (stream, content) in [(1, &b"four"[..]), (3, b"sixsix")] {
        client
            .request(
                stream,
                0,
                &request("POST", "/never", &[("content-length", "5")]),
            )
            .await;
        client.send(frame(DATA, END_STREAM, stream, content)).await;
        let reset = client.of_stream(stream).await;
        assert_eq!((reset.kind, reset.code()), (RST_STREAM, PROTOCOL_ERROR));
    }
}

#[tokio::test]
async fn a_header_list_over_the_bound_is_answered_with_431() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    let long = "x".repeat(9_000);
    client
        .send(frame(
            HEADERS,
            END_STREAM,
            1,
            &block(&request("GET", "/a", &[("x-long", &long)])),
        ))
        .await;
    client
        .send(frame(9, END_HEADERS, 1, &block(&[("x-long", &long)])))
        .await;
    assert_eq!(client.of_stream(1).await.status(), 431);
    let many: Vec<(&str, &str)> = request("GET", "/a", &vec![("x", "1"); 101]);
    let mut client = FrameClient::connect(server.address).await;
    client.request(1, END_STREAM, &many).await;
    assert_eq!(client.of_stream(1).await.status(), 431);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_malformed_frame_is_a_connection_error_with_the_code_of_its_kind() {
    let server = TestServer::start(spec());
    for (name, sent, code) in [
        ("a short PING", frame(PING, 0, 0, &[0; 6]), FRAME_SIZE_ERROR),
        (
            "half a SETTING",
            frame(SETTINGS, 0, 0, &[0; 3]),
            FRAME_SIZE_ERROR,
        ),
        (
            "an acknowledgement with SETTINGS",
            frame(SETTINGS, ACK, 0, &[0; 6]),
            FRAME_SIZE_ERROR,
        ),
        (
            "a frame over the maximum",
            frame(HEADERS, END_HEADERS, 1, &[0; 16_385]),
            FRAME_SIZE_ERROR,
        ),
        (
            "a window over the maximum",
            frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
            FLOW_CONTROL_ERROR,
        ),
        (
            "an initial window over the maximum",
            frame(SETTINGS, 0, 0, &[0, 4, 255, 255, 255, 255]),
            FLOW_CONTROL_ERROR,
        ),
        (
            "DATA before HEADERS",
            frame(DATA, 0, 1, &[0]),
            PROTOCOL_ERROR,
        ),
        (
            "an even stream",
            frame(HEADERS, 5, 2, &block(&request("GET", "/a", &[]))),
            PROTOCOL_ERROR,
        ),
    ] {
        let mut client = FrameClient::connect(server.address).await;
        client.send(sent).await;
        assert_eq!(client.last_error().await, Some(code), "{name}");
    }
    let mut client = FrameClient::silent(server.address).await;
    client
        .send(
            [
                tollgate_testing::raw_http2::PREFACE,
                &frame(PING, 0, 0, &[0; 8]),
            ]
            .concat(),
        )
        .await;
    assert_eq!(client.last_error().await, Some(PROTOCOL_ERROR));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn data_behind_the_end_of_a_stream_is_an_error() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    client
        .request(1, END_STREAM, &request("GET", "/a", &[]))
        .await;
    while !client.of_stream(1).await.ends_stream() {}
    client.send(frame(DATA, 0, 1, b"more")).await;
    let reset = client.of_stream(1).await;
    assert_eq!((reset.kind, reset.code()), (RST_STREAM, STREAM_CLOSED));
}

#[tokio::test]
async fn trailers_come_after_the_body_and_have_no_pseudo_fields() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    client
        .request(1, 0, &request("POST", "/echo", &[("trailer", "x-sum")]))
        .await;
    client.send(frame(DATA, 0, 1, b"hi")).await;
    client.request(1, END_STREAM, &[("x-sum", "1")]).await;
    assert_eq!(client.of_stream(1).await.status(), 200);
    server.handled(1).await;
    assert_eq!(server.requests(), ["POST http://a/echo hi 1"]);
}
