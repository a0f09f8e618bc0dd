//! HTTP/2 with prior knowledge, on the port that HTTP/1 uses.

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tollgate_spec::listener::ListenerSpec;
use tollgate_wire::error::Failure;

use super::{NEXT, SHORT};
use crate::support::test_server::{TestServer, spec};
use tollgate_testing::PATIENCE;

async fn http2(server: &TestServer) -> SendRequest<Full<Bytes>> {
    let stream = server.connect().await.stream;
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

fn request(uri: &str) -> http::request::Builder {
    Request::builder().version(Version::HTTP_2).uri(uri)
}

#[tokio::test]
async fn one_port_speaks_http_1_and_http_2() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client.send(NEXT).await;
    assert_eq!(client.answer().await.body, b"GET /next");
    let mut sender = http2(&server).await;
    for _ in 0..3 {
        let body = Full::new(Bytes::from_static(b"hi"));
        let response = sender
            .send_request(request("http://b/echo").method("POST").body(body).unwrap())
            .await
            .unwrap();
        assert_eq!(response.headers()["seen-host"], "b");
        assert_eq!(
            response.into_body().collect().await.unwrap().to_bytes(),
            "hi"
        );
    }
}

#[tokio::test]
async fn an_http_2_preface_may_come_byte_by_byte() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" {
        client.send([*byte]).await;
        tokio::task::yield_now().await;
    }
    // The server's SETTINGS: a frame of type 4 on stream 0.
    while client.buffer.len() < 9 {
        assert!(client.more().await > 0);
    }
    assert_eq!((client.buffer[3], &client.buffer[5..9]), (4, &[0; 4][..]));
}

#[tokio::test]
async fn an_http_2_target_is_as_strict_as_one_of_http_1() {
    let server = TestServer::start(spec());
    let mut sender = http2(&server).await;
    let mut refused = 0;
    for uri in [
        "http://b/caf\u{e9}",
        "http://b/a\"b",
        "http://b/?\u{e9}",
        "http://b:port/",
        "http://b/<",
    ] {
        // The client's library is as strict as the gateway about some of them.
        if let Ok(bad) = request(uri).body(Full::default()) {
            assert_eq!(
                sender.send_request(bad).await.unwrap().status(),
                400,
                "{uri}"
            );
            refused += 1;
        }
    }
    assert!(
        refused >= 2 && server.seen.refused.lock().len() == refused,
        "{refused}"
    );
}

#[tokio::test]
async fn an_http_2_request_for_two_hosts_is_refused() {
    let server = TestServer::start(spec());
    let mut sender = http2(&server).await;
    let two = request("http://b/a")
        .header("host", "c")
        .body(Full::default())
        .unwrap();
    let response = sender.send_request(two).await.unwrap();
    assert_eq!(response.status(), 400);
    assert!(response.headers().get("connection").is_none());
    assert_eq!(
        *server.seen.refused.lock(),
        [Failure::BadRequest(":authority and Host differ")]
    );
    // Only that request failed: the connection goes on.
    let good = request("http://b/a")
        .header("host", "b")
        .body(Full::default())
        .unwrap();
    assert_eq!(sender.send_request(good).await.unwrap().status(), 200);
}

#[tokio::test]
async fn an_http_2_body_that_stops_coming_fails_with_a_timeout() {
    let server = TestServer::start(ListenerSpec {
        body_timeout: SHORT,
        ..spec()
    });
    let stream = server.connect().await.stream;
    let (mut sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let (_open, rest) = tokio::io::duplex(8);
    let body = http_body_util::combinators::BoxBody::new(Stuck(rest));
    let response = sender
        .send_request(request("http://b/echo").method("POST").body(body).unwrap())
        .await
        .unwrap();
    assert_eq!(response.status(), 408);
}

/// A body that never comes.
struct Stuck(#[expect(dead_code, reason = "held open")] tokio::io::DuplexStream);

impl http_body::Body for Stuck {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[tokio::test]
async fn an_idle_http_2_connection_is_closed() {
    let server = TestServer::start(ListenerSpec {
        keepalive_timeout: SHORT * 6,
        ..spec()
    });
    let stream = server.connect().await.stream;
    let (mut sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let response = sender
        .send_request(request("http://b/a").body(Empty::<Bytes>::new()).unwrap())
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    tokio::time::timeout(PATIENCE, connection)
        .await
        .expect("the server closes")
        .unwrap()
        .unwrap();
}
