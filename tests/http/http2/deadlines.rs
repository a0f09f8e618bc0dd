//! How long a client may take.

use std::time::Duration;

use crate::support::test_server::{TestServer, spec};
use tollgate_spec::listener::ListenerSpec;
use tollgate_testing::raw_http2::{
    END_HEADERS, END_STREAM, FrameClient, GOAWAY, HEADERS, PREFACE, SETTINGS, block, frame, request,
};

use super::{NO_ERROR, SHORT};

/// Time of a paused clock.
const UNHURRIED: Duration = Duration::from_secs(1);

const SETTINGS_TIMEOUT: u32 = 4;

fn hasty(timeout: Duration) -> TestServer {
    TestServer::start(ListenerSpec {
        header_timeout: timeout,
        body_timeout: timeout,
        ..spec()
    })
}

#[tokio::test(start_paused = true)]
async fn a_client_has_the_header_timeout_for_its_first_request() {
    let server = hasty(SHORT);
    let settings = frame(SETTINGS, 0, 0, &[]);
    for said in [
        &b""[..],
        PREFACE,
        &[PREFACE, &settings[..5]].concat(),
        &[PREFACE, &settings].concat(),
    ] {
        let mut client = FrameClient::silent(server.address).await;
        client.acknowledges = false;
        client.send(said).await;
        // A client that has spoken HTTP/2 gets a GOAWAY; to others nothing was said yet.
        assert!(
            [None, Some(NO_ERROR)].contains(&client.last_error().await),
            "{said:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_block_that_does_not_end_ends_the_connection() {
    let server = hasty(UNHURRIED);
    let whole = block(&request("GET", "/a", &[]));
    let begun = frame(HEADERS, END_STREAM, 3, &whole[..9]);
    for unfinished in [
        &begun[..],
        &begun[..12],
        &frame(HEADERS, END_STREAM | END_HEADERS, 3, &whole)[..20],
    ] {
        let mut client = FrameClient::connect(server.address).await;
        client.next(SETTINGS).await;
        // Another request is under way meanwhile, which keeps the connection from being idle.
        client
            .request(1, END_STREAM, &request("GET", "/never", &[]))
            .await;
        client.send(unfinished).await;
        assert_eq!(client.last_error().await, Some(NO_ERROR), "{unfinished:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn settings_that_are_never_acknowledged_end_the_connection() {
    let server = hasty(SHORT);
    let mut client = FrameClient::connect(server.address).await;
    client.acknowledges = false;
    client
        .request(1, END_STREAM, &request("GET", "/never", &[]))
        .await;
    assert_eq!(client.last_error().await, Some(SETTINGS_TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn a_connection_between_requests_has_the_keepalive_timeout() {
    let server = TestServer::start(ListenerSpec {
        keepalive_timeout: SHORT,
        ..spec()
    });
    let mut client = FrameClient::connect(server.address).await;
    client
        .request(1, END_STREAM, &request("GET", "/a", &[]))
        .await;
    assert_eq!(client.of_stream(1).await.status(), 200);
    assert_eq!(client.next(GOAWAY).await.code(), NO_ERROR);
}

#[tokio::test(start_paused = true)]
async fn a_request_under_way_keeps_its_connection() {
    let server = hasty(UNHURRIED);
    let mut client = FrameClient::connect(server.address).await;
    client.next(SETTINGS).await;
    client
        .request(1, END_STREAM, &request("GET", "/gate", &[]))
        .await;
    server.handled(1).await;
    // Others come, are idle for too long, and go meanwhile.
    for _ in 0..3 {
        let mut idle = FrameClient::connect(server.address).await;
        assert_eq!(idle.last_error().await, Some(NO_ERROR));
    }
    server.seen.gate.add_permits(1);
    assert_eq!(client.of_stream(1).await.status(), 200);
}
