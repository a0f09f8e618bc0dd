//! The least rate of bodies, both ways and in both versions of HTTP.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::support::test_server::{TestServer, spec};
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;
use tokio::time::{interval, timeout};
use tollgate_spec::listener::ListenerSpec;
use tollgate_testing::PATIENCE;
use tollgate_testing::raw_http2::{
    DATA, END_STREAM, FrameClient, HEADERS, RST_STREAM, WINDOW_UPDATE, frame, request,
};

const CANCEL: u32 = 8;

/// SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW: u16 = 4;

/// Clients that send a little and wait a little are slower than this.
const FAST: Option<NonZeroU64> = NonZeroU64::new(1 << 30);

/// Between two bytes of a slow client. Far less than `body_timeout`, even on a busy machine.
const PAUSE: Duration = Duration::from_millis(2);

/// A client that stalls for so long before its first byte counts would be silent instead of slow.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);

fn server(min_body_rate: Option<NonZeroU64>, body_timeout: Duration) -> TestServer {
    TestServer::start(ListenerSpec {
        body_timeout,
        min_body_rate,
        ..spec()
    })
}

#[tokio::test]
async fn a_request_body_below_the_least_rate_is_answered_with_408() {
    let server = server(FAST, BODY_TIMEOUT);
    let mut client = server.connect().await;
    client
        .send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
        .await;
    let mut pauses = interval(PAUSE);
    let drip = async {
        while client.buffer.is_empty() {
            client.send("x").await;
            pauses.tick().await;
            let _ = client.stream.try_read_buf(&mut client.buffer);
        }
    };
    timeout(PATIENCE, drip)
        .await
        .expect("the server answers a client that goes on");
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.says_close()), (408, true));
    assert!(String::from_utf8_lossy(&answer.body).contains("body-too-slow"));
}

#[tokio::test]
async fn an_http_2_request_body_below_the_least_rate_is_answered_with_408() {
    let server = server(FAST, BODY_TIMEOUT);
    let mut client = FrameClient::connect(server.address).await;
    client.request(1, 0, &request("POST", "/echo", &[])).await;
    let mut pauses = interval(PAUSE);
    let drip = async {
        loop {
            client.send(frame(DATA, 0, 1, b"x")).await;
            pauses.tick().await;
            while let Ok(Some(came)) = timeout(Duration::ZERO, client.frame()).await {
                if came.stream == 1 && came.kind == HEADERS {
                    return came.status();
                }
            }
        }
    };
    assert_eq!(
        timeout(PATIENCE, drip)
            .await
            .expect("the server answers a client that goes on"),
        408
    );
    // Only that request failed.
    client
        .request(3, END_STREAM, &request("GET", "/a", &[]))
        .await;
    assert_eq!(client.of_stream(3).await.status(), 200);
}

#[tokio::test]
async fn an_http_2_client_that_takes_its_response_below_the_least_rate_loses_the_stream() {
    let server = server(FAST, BODY_TIMEOUT);
    let mut client = FrameClient::with_settings(server.address, &[(INITIAL_WINDOW, 0)]).await;
    let path = format!("/{}", "x".repeat(5_000));
    client
        .request(1, END_STREAM, &request("GET", &path, &[]))
        .await;
    assert_eq!(client.of_stream(1).await.status(), 200);
    let mut pauses = interval(PAUSE);
    let last = loop {
        client.send(frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])).await;
        let came = client.of_stream(1).await;
        if came.kind != DATA || came.ends_stream() {
            break came;
        }
        pauses.tick().await;
    };
    assert_eq!((last.kind, last.code()), (RST_STREAM, CANCEL));
}

/// Bytes of the response that a client gets which reads them slowly.
async fn read_slowly(server: &TestServer) -> usize {
    const LENGTH: usize = 16 << 20;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let stream = socket.connect(server.address).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let sending = tokio::spawn(async move {
        let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n");
        tokio::io::AsyncWriteExt::write_all(
            &mut writer,
            &[head.as_bytes(), &vec![b'x'; LENGTH]].concat(),
        )
        .await
        .unwrap();
        writer
    });
    let (mut came, mut piece) = (0, vec![0; 64 * 1024]);
    let mut pauses = interval(PAUSE);
    while came < LENGTH {
        match timeout(PATIENCE, reader.read(&mut piece)).await.unwrap() {
            Ok(read @ 1..) => came += read,
            _ => break,
        }
        pauses.tick().await;
    }
    drop(sending.await);
    came / LENGTH
}

#[tokio::test]
async fn a_client_that_takes_its_response_below_the_least_rate_is_cut_off() {
    // Far less than the pauses take together.
    assert_eq!(
        read_slowly(&server(FAST, Duration::from_millis(100))).await,
        0
    );
    assert_eq!(
        read_slowly(&server(NonZeroU64::new(100), PATIENCE)).await,
        1
    );
}
