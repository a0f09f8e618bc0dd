//! Messages over a stream, and many streams over a connection.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::proxy_server::{Forwarder, ForwarderConfig};
use bytes::Bytes;
use h2::{Reason, client};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tollgate_proxy::Proxy;
use tollgate_testing::until;
use tollgate_testing::upstream::{RawConnection, values};
use tollgate_wire::body::Body;

use super::{GET, Http2Server, answer, content, exchange, respond, whole};

#[tokio::test]
async fn a_request_arrives_as_http_2_has_it() {
    let (seen, mut requests) = mpsc::unbounded_channel();
    let server = Http2Server::start(100, move |request, sender, _| {
        let seen = seen.clone();
        async move {
            let (parts, body) = request.into_parts();
            let _ = seen.send((parts, whole(body).await));
            answer(sender, "done");
        }
    })
    .await;
    let front = server
        .behind_with(|plan| plan.spec.request_trailers = true)
        .await;
    let request = "POST /a%2Fb?q HTTP/1.1\r\nHost: shop.example:8080\r\nConnection: close, x-hop\r\nX-Hop: 1\r\n\
                   Transfer-Encoding: chunked\r\nTE: trailers\r\nTrailer: x-sum\r\nCookie: a=1\r\nX-Twice: 1\r\nX-Twice: 2\r\n\r\n\
                   3\r\nabc\r\n0\r\nX-Sum: 6\r\n\r\n";
    assert_eq!(exchange(&front, request).await.0, "200");
    let (parts, (body, trailers)) = requests.recv().await.unwrap();
    assert_eq!(
        (parts.method.as_str(), parts.uri.to_string()),
        ("POST", "http://shop.example:8080/a%2Fb?q".into())
    );
    let field = |name: &str| {
        parts
            .headers
            .get_all(name)
            .iter()
            .map(|v| v.to_str().unwrap())
            .collect::<Vec<_>>()
    };
    for gone in [
        "connection",
        "x-hop",
        "transfer-encoding",
        "host",
        "keep-alive",
    ] {
        assert_eq!(field(gone), [""; 0], "{gone}");
    }
    assert_eq!(
        (field("te"), field("cookie"), field("x-twice")),
        (vec!["trailers"], vec!["a=1"], vec!["1", "2"])
    );
    assert_eq!(
        (field("via"), field("x-forwarded-for")),
        (vec!["1.1 tollgate"], vec!["127.0.0.1"])
    );
    assert_eq!(
        field("forwarded"),
        ["for=127.0.0.1;host=\"shop.example:8080\";proto=http"]
    );
    assert_eq!(
        (&*body, &trailers.unwrap()["x-sum"]),
        (&b"abc"[..], &"6".parse().unwrap())
    );
}

#[tokio::test]
async fn a_response_passes_with_its_trailers() {
    let server = Http2Server::start(100, |_, mut sender, _| async move {
        let mut response = http::Response::new(());
        *response.status_mut() = http::StatusCode::MISDIRECTED_REQUEST;
        response
            .headers_mut()
            .insert("trailer", "x-sum".parse().unwrap());
        let mut stream = sender.send_response(response, false).unwrap();
        stream
            .send_data(Bytes::from_static(b"body"), false)
            .unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "4".parse().unwrap());
        stream.send_trailers(trailers).unwrap();
    })
    .await;
    let front = server.behind().await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te, close\r\n\r\n")
        .await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 421"), "{head}");
    assert_eq!(values(&head, "via"), ["2 tollgate"]);
    assert_eq!(
        client.rest().await.to_lowercase(),
        "4\r\nbody\r\n0\r\nx-sum: 4\r\n\r\n"
    );
}

#[tokio::test]
async fn many_exchanges_share_a_connection_and_another_is_opened_when_all_are_full() {
    let turns = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&turns);
    let server = Http2Server::start(10, move |_, sender, _| {
        let turns = Arc::clone(&waiting);
        async move {
            turns.acquire().await.unwrap().forget();
            answer(sender, "ok");
        }
    })
    .await;
    let front = server.behind().await;
    // The first tells how many streams the server takes.
    turns.add_permits(1);
    assert_eq!(exchange(&front, GET).await.1, "ok");
    let mut clients = Vec::new();
    for number in 1..=30 {
        let mut client = RawConnection::connect(front.address).await;
        client.send(GET).await;
        until("in flight", || {
            front.gate.upstream.endpoints()[0].in_flight() == number
        })
        .await;
        clients.push(client);
    }
    until("the connections are there", || server.connections() >= 3).await;
    turns.add_permits(30);
    for client in &mut clients {
        assert!(client.head().await.starts_with("HTTP/1.1 200"));
    }
    // A connection that has not heard of the server's bound yet may have been given more.
    assert_eq!(server.connections(), 3);
    until("all are idle", || front.gate.proxy.idle_connections() == 3).await;
}

#[tokio::test]
async fn requests_that_come_at_once_share_one_new_connection() {
    let server = Http2Server::start(100, |_, sender, _| async move { answer(sender, "ok") }).await;
    let front = server.behind().await;
    let all = (0..50).map(|_| exchange(&front, GET));
    for (status, body) in futures_util::future::join_all(all).await {
        assert_eq!((&*status, &*body), ("200", "ok"));
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn at_the_bounds_requests_wait_for_a_stream() {
    let server = Http2Server::start(1, |_, sender, _| async move { answer(sender, "ok") }).await;
    let front = server
        .behind_with(|plan| plan.spec.bounds.connections = NonZeroUsize::new(1))
        .await;
    for _ in 0..3 {
        let all = (0..20).map(|_| exchange(&front, GET));
        for (status, body) in futures_util::future::join_all(all).await {
            assert_eq!((&*status, &*body), ("200", "ok"));
        }
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_shared_connection_gives_way_to_a_request_of_another_worker() {
    let turns = Arc::new(Semaphore::new(0));
    let released = Arc::clone(&turns);
    let server = Http2Server::start(100, move |_, sender, _| {
        let turns = Arc::clone(&released);
        async move {
            turns.acquire().await.unwrap().forget();
            answer(sender, "ok");
        }
    })
    .await;
    let mut plan = ForwarderConfig::new(&[]);
    plan.spec.endpoints = vec![format!("h2c://{}", server.address).parse().unwrap()];
    plan.spec.bounds.connections = NonZeroUsize::new(1);
    let one = Forwarder::new(plan);
    let mut other = Forwarder::new(ForwarderConfig::new(&["127.0.0.1:1".parse().unwrap()]));
    (other.upstream, other.proxy) = (Arc::clone(&one.upstream), Proxy::default());
    let ask = async |gate: &Forwarder| {
        let request = Request::get("/")
            .header("host", "a")
            .body(Body::empty())
            .unwrap();
        let response = gate.answer(request, "127.0.0.1:1".parse().unwrap()).await;
        response.into_body().collect().await.unwrap().to_bytes()
    };
    let release = async {
        until("all are in flight or wait", || {
            one.upstream.endpoints()[0].in_flight() == 4
        })
        .await;
        turns.add_permits(4);
    };
    let (first, second, third, fourth, ()) =
        tokio::join!(ask(&one), ask(&one), ask(&other), ask(&other), release);
    assert_eq!(
        [first, second, third, fourth].map(|body| body == "ok"),
        [true; 4]
    );
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn both_messages_flow_at_the_same_time() {
    let server = Http2Server::start(100, |request, mut sender, _| async move {
        let mut body = request.into_body();
        let mut stream = respond(&mut sender);
        while let Some(Ok(piece)) = body.data().await {
            body.flow_control().release_capacity(piece.len()).unwrap();
            stream.send_data(piece, false).unwrap();
        }
        stream.send_trailers(HeaderMap::new()).unwrap();
    })
    .await;
    let front = server.behind().await;
    let socket = TcpStream::connect(front.address).await.unwrap();
    let (mut sender, connection) = client::handshake(socket).await.unwrap();
    let driver = tokio::spawn(connection);
    let request = Request::post("http://a/").body(()).unwrap();
    let (response, mut upload) = sender.send_request(request, false).unwrap();
    upload.send_data(Bytes::from_static(b"0"), false).unwrap();
    let mut body = response.await.unwrap().into_body();
    for round in 0..20 {
        assert_eq!(body.data().await.unwrap().unwrap(), round.to_string());
        upload
            .send_data(Bytes::from((round + 1).to_string()), false)
            .unwrap();
    }
    upload.send_data(Bytes::new(), true).unwrap();
    assert_eq!(whole(body).await.0, b"20");
    driver.abort();
}

#[tokio::test]
async fn a_response_that_nobody_reads_does_not_keep_the_upload_waiting() {
    let received = Arc::new(Mutex::new(0));
    let count = Arc::clone(&received);
    let server = Http2Server::start(100, move |request, mut sender, _| {
        let received = Arc::clone(&count);
        async move {
            let mut stream = respond(&mut sender);
            stream
                .send_data(Bytes::from(vec![b'x'; 4 << 20]), false)
                .unwrap();
            let mut body = request.into_body();
            while let Some(Ok(piece)) = body.data().await {
                body.flow_control().release_capacity(piece.len()).unwrap();
                *received.lock().unwrap() += piece.len();
            }
            stream.send_data(Bytes::new(), true).unwrap();
        }
    })
    .await;
    let front = server.behind().await;
    let socket = TcpStream::connect(front.address).await.unwrap();
    let (mut sender, connection) = client::handshake(socket).await.unwrap();
    let driver = tokio::spawn(connection);
    let (response, mut upload) = sender
        .send_request(Request::post("http://a/").body(()).unwrap(), false)
        .unwrap();
    let response = response.await.unwrap();
    upload
        .send_data(Bytes::from(vec![b'y'; 1 << 20]), true)
        .unwrap();
    until("the whole upload arrives", || {
        *received.lock().unwrap() == 1 << 20
    })
    .await;
    assert_eq!(whole(response.into_body()).await.0.len(), 4 << 20);
    driver.abort();
}

#[tokio::test]
async fn a_stalled_response_does_not_hold_up_the_others_of_its_connection() {
    let server = Http2Server::start(100, |request, sender, _| async move {
        let long = request.uri().path() == "/long";
        answer(sender, vec![b'x'; if long { 8 << 20 } else { 100_000 }]);
    })
    .await;
    let front = server.behind().await;
    let mut stalled = Vec::new();
    for _ in 0..20 {
        let mut client = RawConnection::connect(front.address).await;
        client.send("GET /long HTTP/1.1\r\nHost: a\r\n\r\n").await;
        client.head().await;
        stalled.push(client);
    }
    assert_eq!(exchange(&front, GET).await.1.len(), 100_000);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_stream_and_no_other() {
    let (resets, mut reset) = mpsc::unbounded_channel();
    let server = Http2Server::start(100, move |request, mut sender, _| {
        let resets = resets.clone();
        async move {
            if request.uri().path() == "/slow" {
                let reason = std::future::poll_fn(|cx| sender.poll_reset(cx)).await;
                let _ = resets.send(reason.unwrap());
            } else {
                answer(sender, "ok");
            }
        }
    })
    .await;
    let front = server.behind().await;
    let mut client = RawConnection::connect(front.address).await;
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    until("in flight", || {
        front.gate.upstream.endpoints()[0].in_flight() == 1
    })
    .await;
    assert_eq!(exchange(&front, GET).await.1, "ok");
    drop(client);
    assert_eq!(reset.recv().await, Some(Reason::CANCEL));
    assert_eq!(exchange(&front, GET).await.1, "ok");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_client_that_expects_a_continue_is_asked_for_its_body_when_the_upstream_asks() {
    let server = Http2Server::start(100, |request, mut sender, _| async move {
        if request.uri().path() == "/refused" {
            let mut response = http::Response::new(());
            *response.status_mut() = http::StatusCode::FORBIDDEN;
            sender.send_response(response, true).unwrap();
            return;
        }
        let mut interim = http::Response::new(());
        *interim.status_mut() = http::StatusCode::CONTINUE;
        sender.send_informational(interim).unwrap();
        let body = whole(request.into_body()).await.0;
        answer(sender, body);
    })
    .await;
    let front = server.behind().await;
    let head = |path: &str| {
        format!(
            "PUT {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
        )
    };
    let mut client = RawConnection::connect(front.address).await;
    client.send(head("/")).await;
    assert!(client.head().await.starts_with("HTTP/1.1 100"));
    client.send("abc").await;
    client.head().await;
    assert_eq!(content(&client.rest().await), "abc");
    let mut client = RawConnection::connect(front.address).await;
    client.send(head("/refused")).await;
    assert!(client.head().await.starts_with("HTTP/1.1 403"));
}

#[tokio::test]
async fn interim_responses_are_passed_on() {
    let server = Http2Server::start(100, |_, mut sender, _| async move {
        let mut hints = http::Response::new(());
        *hints.status_mut() = http::StatusCode::EARLY_HINTS;
        hints
            .headers_mut()
            .insert("link", "</style.css>".parse().unwrap());
        sender.send_informational(hints).unwrap();
        answer(sender, "ok");
    })
    .await;
    let front = server.behind().await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(GET).await;
    let hints = client.head().await;
    assert!(hints.starts_with("HTTP/1.1 103"), "{hints}");
    assert_eq!(values(&hints, "link"), ["</style.css>"]);
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let server = Http2Server::start(100, |_, sender, _| async move { answer(sender, "ok") }).await;
    let front = server
        .behind_with(|plan| plan.spec.keepalive_timeout = Duration::from_millis(1))
        .await;
    assert_eq!(exchange(&front, GET).await.1, "ok");
    until("it is swept away", || front.keeps_no_connection()).await;
    assert_eq!(exchange(&front, GET).await.1, "ok");
    assert_eq!(server.connections(), 2);
}
