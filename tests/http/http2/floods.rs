//! Clients that make work and want nothing for it.

use crate::support::test_server::{TestServer, spec};
use tollgate_testing::raw_http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameClient, HEADERS, PING, PRIORITY, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, block, frame, request,
};

use super::{CANCEL, ENHANCE_YOUR_CALM};

#[tokio::test]
async fn a_client_that_resets_what_it_asks_for_is_told_to_calm_down() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    let headers = block(&request("GET", "/never", &[]));
    for round in 0..75 {
        let streams = (0..20).map(|n| (round * 20 + n) * 2 + 1);
        let asked: Vec<u8> = streams
            .clone()
            .flat_map(|id| frame(HEADERS, END_STREAM | END_HEADERS, id, &headers))
            .collect();
        let reset: Vec<u8> = streams
            .flat_map(|id| frame(RST_STREAM, 0, id, &CANCEL.to_be_bytes()))
            .collect();
        // Each is reset only after it has begun.
        use tokio::io::AsyncWriteExt;
        let seen = server.requests().len();
        if client.stream.write_all(&asked).await.is_err() {
            break;
        }
        let mut turns = 0;
        while server.requests().len() < seen + 20 && turns < 100 {
            tokio::task::yield_now().await;
            turns += 1;
        }
        if client.stream.write_all(&reset).await.is_err() {
            break;
        }
    }
    assert_eq!(client.last_error().await, Some(ENHANCE_YOUR_CALM));
    assert!(
        (200..400).contains(&server.requests().len()),
        "{}",
        server.requests().len()
    );
}

#[tokio::test]
async fn requests_that_come_with_their_reset_reach_nobody() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    let headers = block(&request("GET", "/never", &[]));
    let all: Vec<u8> = (0..1500)
        .map(|n| n * 2 + 1)
        .flat_map(|id| {
            [
                frame(HEADERS, END_STREAM | END_HEADERS, id, &headers),
                frame(RST_STREAM, 0, id, &CANCEL.to_be_bytes()),
            ]
            .concat()
        })
        .collect();
    client.send(all).await;
    assert_eq!(client.last_error().await, Some(ENHANCE_YOUR_CALM));
    assert!(server.requests().len() < 300, "{}", server.requests().len());
}

#[tokio::test]
async fn a_page_that_is_left_may_reset_all_its_requests() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    let ids = (0..128).map(|n| n * 2 + 1);
    let headers = block(&request("GET", "/never", &[]));
    client
        .send(
            ids.clone()
                .flat_map(|id| frame(HEADERS, 5, id, &headers))
                .collect::<Vec<u8>>(),
        )
        .await;
    server.handled(128).await;
    client
        .send(
            ids.flat_map(|id| frame(RST_STREAM, 0, id, &CANCEL.to_be_bytes()))
                .collect::<Vec<u8>>(),
        )
        .await;
    client
        .request(999, END_STREAM, &request("GET", "/a", &[]))
        .await;
    assert_eq!(client.of_stream(999).await.status(), 200);
}

#[tokio::test]
async fn frames_that_carry_nothing_are_answered_by_calm_down() {
    let server = TestServer::start(spec());
    let opened = frame(
        HEADERS,
        END_HEADERS,
        1,
        &block(&request("POST", "/never", &[])),
    );
    for (name, flood) in [
        ("PING", frame(PING, 0, 0, &[7; 8])),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[])),
        ("PRIORITY", frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 1])),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("unknown", frame(0x5a, 0, 0, &[])),
        ("empty DATA", frame(DATA, 0, 1, &[])),
        ("RST_STREAM", frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes())),
    ] {
        let mut client = FrameClient::connect(server.address).await;
        client.send(&opened).await;
        client.send(flood.repeat(3_000)).await;
        assert_eq!(client.last_error().await, Some(ENHANCE_YOUR_CALM), "{name}");
    }
}

#[tokio::test]
async fn a_header_section_without_end_is_answered_by_calm_down() {
    let server = TestServer::start(spec());
    let begun = frame(HEADERS, END_STREAM, 1, &block(&request("GET", "/a", &[])));
    for flood in [
        frame(CONTINUATION, 0, 1, &[]).repeat(100),
        frame(CONTINUATION, 0, 1, &[0; 16_000]).repeat(100),
    ] {
        let mut client = FrameClient::connect(server.address).await;
        client.send([begun.clone(), flood].concat()).await;
        assert!(client.last_error().await.is_some());
        assert!(server.requests().is_empty());
    }
}
