//! WebSockets to upstreams of HTTP/2, by extended CONNECT (RFC 8441), for clients of both versions.

use bytes::Bytes;
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream, server};
use http::{Method, Request, Response, StatusCode};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tollgate_testing::PATIENCE;
use tollgate_testing::raw_http2::{
    DATA, END_STREAM, FrameClient, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, request,
};
use tollgate_testing::upstream::{RawConnection, values};

use super::{GET, Http2Server, answer, exchange, respond};

/// With the key of RFC 6455 §1.3, whose proof is known.
pub const WEBSOCKET: &str = "GET /chat?room=1 HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Protocol: chat, superchat\r\n\r\n";

const PROOF: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The extended CONNECT of a client of HTTP/2.
fn connect() -> Vec<(&'static str, &'static str)> {
    let mut fields = request(
        "CONNECT",
        "/chat?room=1",
        &[("sec-websocket-version", "13")],
    );
    fields.insert(0, (":protocol", "websocket"));
    fields
}

/// A server that takes WebSockets, and handles each request with `handler`.
async fn server<F, S>(handler: F) -> Http2Server
where
    F: Fn(Request<RecvStream>, server::SendResponse<Bytes>) -> S + Clone + Send + Sync + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    Http2Server::accepting(move |stream, _| {
        let handler = handler.clone();
        async move {
            let mut connection = server::Builder::new()
                .enable_connect_protocol()
                .handshake(stream)
                .await
                .unwrap();
            while let Some(Ok((request, sender))) = connection.accept().await {
                tokio::spawn(handler(request, sender));
            }
        }
    })
    .await
}

/// The next bytes of a tunnel. `None`: its end.
async fn read(body: &mut RecvStream) -> Option<Bytes> {
    loop {
        let piece = body.data().await?.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        if !piece.is_empty() {
            return Some(piece);
        }
    }
}

/// Grants a WebSocket, greets, and sends everything back, to the end.
async fn grant(request: Request<RecvStream>, mut sender: server::SendResponse<Bytes>) {
    let mut body = request.into_body();
    let mut stream = respond(&mut sender);
    stream
        .send_data(Bytes::from_static(b"welcome"), false)
        .unwrap();
    while let Some(piece) = read(&mut body).await {
        send(&mut stream, piece).await;
    }
    stream.send_data(Bytes::new(), true).unwrap();
}

/// Sends as the window allows it.
async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes) {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
            return;
        };
        stream
            .send_data(bytes.split_to(room.min(bytes.len())), false)
            .unwrap();
    }
}

#[tokio::test]
async fn an_upgrade_of_http_1_becomes_an_extended_connect() {
    let (seen, mut requests) = mpsc::unbounded_channel();
    let server = server(move |request, mut sender| {
        let seen = seen.clone();
        async move {
            let (parts, mut body) = request.into_parts();
            let _ = seen.send(parts);
            let response = Response::builder()
                .header("sec-websocket-protocol", "chat")
                .body(())
                .unwrap();
            let mut stream = sender.send_response(response, false).unwrap();
            assert_eq!(read(&mut body).await.unwrap(), "ping");
            stream
                .send_data(Bytes::from_static(b"pong"), false)
                .unwrap();
            assert_eq!(read(&mut body).await, None);
            stream.send_data(Bytes::from_static(b"bye"), true).unwrap();
        }
    })
    .await;
    let front = server.behind().await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(WEBSOCKET).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for (name, value) in [
        ("upgrade", "websocket"),
        ("connection", "upgrade"),
        ("sec-websocket-accept", PROOF),
        ("sec-websocket-protocol", "chat"),
        ("via", "2 tollgate"),
    ] {
        assert_eq!(values(&head, name), [value], "{head}");
    }
    client.send("ping").await;
    assert_eq!(client.exactly(4).await, "pong");
    tokio::io::AsyncWriteExt::shutdown(&mut client.stream)
        .await
        .unwrap();
    assert_eq!(client.rest().await, "bye");

    let request = requests.recv().await.unwrap();
    assert_eq!(
        (&request.method, request.uri.to_string()),
        (&Method::CONNECT, "http://shop.example/chat?room=1".into())
    );
    assert_eq!(
        request.extensions.get::<Protocol>().unwrap().as_str(),
        "websocket"
    );
    let field = |name: &str| {
        request
            .headers
            .get(name)
            .map(|value| value.to_str().unwrap())
    };
    assert_eq!(field("sec-websocket-protocol"), Some("chat, superchat"));
    assert_eq!(
        (field("sec-websocket-version"), field("x-forwarded-for")),
        (Some("13"), Some("127.0.0.1"))
    );
    for gone in ["sec-websocket-key", "connection", "upgrade", "host"] {
        assert_eq!(field(gone), None, "{gone}");
    }
}

#[tokio::test]
async fn a_websocket_of_http_2_stays_one_and_carries_more_than_a_window() {
    let server = server(grant).await;
    let front = server.behind().await;
    let mut client = FrameClient::connect(front.address).await;
    client.next(SETTINGS).await;
    client.request(1, 0, &connect()).await;
    let head = client.of_stream(1).await;
    assert_eq!(
        (head.kind, head.status(), head.ends_stream()),
        (HEADERS, 200, false)
    );
    assert_eq!(client.of_stream(1).await.payload, b"welcome");
    // Twenty windows, each piece before the next.
    let piece = vec![b'x'; 16 * 1024];
    for _ in 0..80 {
        client.send(frame(DATA, 0, 1, &piece)).await;
        let mut back = 0;
        while back < piece.len() {
            back += client.of_stream(1).await.payload.len();
        }
        let room = u32::try_from(piece.len()).unwrap().to_be_bytes();
        client
            .send(
                [
                    frame(WINDOW_UPDATE, 0, 0, &room),
                    frame(WINDOW_UPDATE, 0, 1, &room),
                ]
                .concat(),
            )
            .await;
    }
    client.send(frame(DATA, END_STREAM, 1, b"")).await;
    let end = client.of_stream(1).await;
    assert_eq!((end.kind, end.ends_stream()), (DATA, true));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn an_upstream_that_announces_no_websockets_is_not_asked_for_one() {
    let server = Http2Server::start(100, |request, sender, _| async move {
        assert_eq!(request.method(), Method::GET);
        answer(sender, "ordinary");
    })
    .await;
    let front = server.behind().await;
    for _ in 0..2 {
        let (status, body) = exchange(
            &front,
            &WEBSOCKET.replace("Upgrade\r\n", "Upgrade, close\r\n"),
        )
        .await;
        assert_eq!(status, "502");
        assert!(body.contains("websocket-unsupported"), "{body}");
        let mut client = FrameClient::connect(front.address).await;
        client.request(1, 0, &connect()).await;
        assert_eq!(client.of_stream(1).await.status(), 502);
    }
    // The connection is as good as before.
    assert_eq!(
        exchange(&front, GET).await,
        ("200".into(), "ordinary".into())
    );
    // Another protocol is not asked for: the request goes on without.
    let other = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: echo\r\n\r\n";
    assert_eq!(
        exchange(&front, other).await,
        ("200".into(), "ordinary".into())
    );
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_request_without_a_key_is_at_fault_itself() {
    let server = server(grant).await;
    let front = server.behind().await;
    let request =
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n";
    let (status, body) = exchange(&front, request).await;
    assert!(
        status == "400" && body.contains("Sec-WebSocket-Key"),
        "{status} {body}"
    );
}

#[tokio::test]
async fn an_upstream_that_leaves_before_it_says_what_it_takes_has_closed() {
    let server = Http2Server::accepting(|stream, _| async move { drop(stream) }).await;
    let front = server.behind().await;
    let (status, body) = exchange(
        &front,
        &WEBSOCKET.replace("Upgrade\r\n", "Upgrade, close\r\n"),
    )
    .await;
    assert!(
        status == "502" && body.contains("upstream-closed"),
        "{status} {body}"
    );
}

#[tokio::test]
async fn a_tunnel_with_a_content_length_is_not_opened() {
    let server = server(|_, mut sender| async move {
        let response = Response::builder()
            .header("content-length", "5")
            .body(())
            .unwrap();
        let stream = sender.send_response(response, false).unwrap();
        // The tunnel stays, as far as the server is concerned.
        let _ = std::future::poll_fn(|cx| sender.poll_reset(cx)).await;
        drop(stream);
    })
    .await;
    let front = server.behind().await;
    let (status, body) = exchange(
        &front,
        &WEBSOCKET.replace("Upgrade\r\n", "Upgrade, close\r\n"),
    )
    .await;
    assert!(
        status == "502" && body.contains("upstream-invalid"),
        "{status} {body}"
    );
    let mut client = FrameClient::connect(front.address).await;
    client.request(1, 0, &connect()).await;
    assert_eq!(client.of_stream(1).await.status(), 502);
}

#[tokio::test]
async fn a_refusal_is_an_ordinary_response() {
    let (ended, mut ends) = mpsc::unbounded_channel();
    let server = server(move |request, mut sender| {
        let ended = ended.clone();
        async move {
            let response = Response::builder()
                .status(StatusCode::FORBIDDEN)
                .body(())
                .unwrap();
            sender
                .send_response(response, false)
                .unwrap()
                .send_data(Bytes::from_static(b"members only"), true)
                .unwrap();
            // The request is over as well.
            let _ = ended.send(read(&mut request.into_body()).await);
        }
    })
    .await;
    let front = server.behind().await;
    let refused = exchange(
        &front,
        &WEBSOCKET.replace("Upgrade\r\n", "Upgrade, close\r\n"),
    )
    .await;
    assert_eq!(refused, ("403".into(), "members only".into()));
    assert_eq!(
        timeout(PATIENCE, ends.recv())
            .await
            .expect("the request ends")
            .unwrap(),
        None
    );
    let mut client = FrameClient::connect(front.address).await;
    client.request(1, 0, &connect()).await;
    assert_eq!(client.of_stream(1).await.status(), 403);
    assert_eq!(client.of_stream(1).await.payload, b"members only");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_resets_its_stream_and_no_other() {
    let (left, mut leaves) = mpsc::unbounded_channel();
    let server = server(move |request, mut sender| {
        let left = left.clone();
        async move {
            let mut stream = respond(&mut sender);
            let _ = left.send(
                std::future::poll_fn(|cx| stream.poll_reset(cx))
                    .await
                    .unwrap(),
            );
            drop(request);
        }
    })
    .await;
    let front = server.behind().await;
    let mut client = FrameClient::connect(front.address).await;
    client.request(1, 0, &connect()).await;
    assert_eq!(client.of_stream(1).await.status(), 200);
    client
        .send(frame(
            RST_STREAM,
            0,
            1,
            &u32::from(Reason::CANCEL).to_be_bytes(),
        ))
        .await;
    assert_eq!(
        timeout(PATIENCE, leaves.recv())
            .await
            .expect("the stream is reset"),
        Some(Reason::CANCEL)
    );
    client.request(3, 0, &connect()).await;
    assert_eq!(client.of_stream(3).await.status(), 200);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_tunnel_that_its_upstream_resets_breaks() {
    let server = server(|request, mut sender| async move {
        let mut stream = respond(&mut sender);
        read(&mut request.into_body()).await;
        stream.send_reset(Reason::INTERNAL_ERROR);
    })
    .await;
    let front = server.behind().await;
    let mut client = FrameClient::connect(front.address).await;
    client.request(1, 0, &connect()).await;
    assert_eq!(client.of_stream(1).await.status(), 200);
    client.send(frame(DATA, 0, 1, b"x")).await;
    assert_eq!(client.of_stream(1).await.kind, RST_STREAM);
}
