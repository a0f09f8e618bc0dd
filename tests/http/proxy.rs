//! Requests as an upstream sees them, and responses as a client does.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::support::proxy_server::{Forwarder, ForwarderConfig, ProxyServer};
use http::HeaderValue;
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Barrier, mpsc};
use tokio::task::coop;
use tollgate_proxy::upstream::Balance;
use tollgate_spec::route::{HostPolicy, Rewrite};
use tollgate_testing::until;
use tollgate_testing::upstream::{OK, RawConnection, ScriptedUpstream, values};
use tollgate_wire::body::Body;

/// An upstream that answers `response` and hands each header section it reads to the test.
async fn recording(response: &'static str) -> (ScriptedUpstream, mpsc::UnboundedReceiver<String>) {
    let (seen, heads) = mpsc::unbounded_channel();
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let seen = seen.clone();
        async move {
            while let Some(head) = wire.try_head().await {
                let _ = seen.send(head);
                wire.send(response).await;
            }
        }
    })
    .await;
    (server, heads)
}

/// The header section that an upstream sees of `request`.
async fn seen_of(request: &str, change: impl FnOnce(&mut ForwarderConfig)) -> String {
    let (server, mut heads) = recording(OK).await;
    let front = ProxyServer::with(&[server.address], change).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(request).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    heads.recv().await.unwrap()
}

/// The header section that a client sees of `response`, after which the connection must still be in
/// step.
async fn relayed(request: &str, response: &'static str) -> String {
    let server = ScriptedUpstream::answering(response).await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(request).await;
    let head = client.head().await;
    client.send(request).await;
    let next = client.head().await;
    assert_eq!(next.lines().next(), head.lines().next());
    head
}

fn trust_loopback(plan: &mut ForwarderConfig) {
    plan.trusted = vec!["127.0.0.0/8".parse().unwrap()].into();
}

#[tokio::test]
async fn hop_by_hop_fields_do_not_reach_the_upstream() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-Drop\r\nConnection: host, x-forwarded-for\r\nX-Drop: 1\r\n\
                   X-Drop: 2\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nUpgrade: websocket\r\nProxy-Authorization: x\r\n\
                   TE: gzip\r\nX-Keep: yes\r\n\r\n";
    let head = seen_of(request, |_| {}).await;
    for gone in [
        "connection",
        "x-drop",
        "keep-alive",
        "proxy-connection",
        "upgrade",
        "proxy-authorization",
        "te",
    ] {
        assert!(values(&head, gone).is_empty(), "{gone} in {head}");
    }
    assert_eq!(values(&head, "x-keep"), ["yes"]);
    assert_eq!(values(&head, "host"), ["a"]);
    assert_eq!(values(&head, "x-forwarded-for"), ["127.0.0.1"]);
}

#[tokio::test]
async fn naming_the_length_in_connection_does_not_unframe_the_body() {
    let request =
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: content-length\r\nContent-Length: 3\r\n\r\nabc";
    let head = seen_of(request, |_| {}).await;
    assert_eq!(values(&head, "content-length"), ["3"]);
}

#[tokio::test]
async fn the_upstream_learns_where_a_request_comes_from() {
    let request = "GET / HTTP/1.1\r\nHost: shop.example:8080\r\nX-Forwarded-For: 1.1.1.1\r\nForwarded: for=1.1.1.1\r\n\
                   X-Forwarded-Proto: https\r\nX-Forwarded-Port: 1\r\nX-Real-IP: 1.1.1.1\r\nX-Request-Id: theirs\r\n\r\n";
    let head = seen_of(request, |_| {}).await;
    assert_eq!(values(&head, "x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(values(&head, "x-forwarded-proto"), ["http"]);
    assert_eq!(values(&head, "x-forwarded-host"), ["shop.example:8080"]);
    assert_eq!(
        values(&head, "forwarded"),
        ["for=127.0.0.1;host=\"shop.example:8080\";proto=http"]
    );
    assert_eq!(values(&head, "via"), ["1.1 tollgate"]);
    assert_eq!(values(&head, "x-request-id"), ["id-1"]);
    assert!(values(&head, "x-forwarded-port").is_empty() && values(&head, "x-real-ip").is_empty());
}

#[tokio::test]
async fn connection_cannot_remove_the_fields_that_the_gateway_adds() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: x-forwarded-for, x-request-id, forwarded, via, x-forwarded-proto\r\n\
                   X-Forwarded-For: 1.1.1.1\r\nX-Request-Id: theirs\r\n\r\n";
    let head = seen_of(request, trust_loopback).await;
    for (name, value) in [
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("forwarded", "for=127.0.0.1;host=\"a\";proto=http"),
        ("via", "1.1 tollgate"),
        ("x-request-id", "id-1"),
    ] {
        assert_eq!(values(&head, name), [value]);
    }
}

#[tokio::test]
async fn forwarding_fields_of_a_trusted_peer_are_extended() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\nX-Forwarded-For: 127.0.0.2\r\n\
                   X-Forwarded-Proto: https\r\nX-Forwarded-Host: b\r\nForwarded: for=203.0.113.9\r\nVia: 1.0 edge\r\n\r\n";
    let head = seen_of(request, trust_loopback).await;
    assert_eq!(
        values(&head, "x-forwarded-for"),
        ["203.0.113.9, 127.0.0.2, 127.0.0.1"]
    );
    assert_eq!(values(&head, "x-forwarded-proto"), ["https"]);
    assert_eq!(values(&head, "x-forwarded-host"), ["b"]);
    assert_eq!(
        values(&head, "forwarded"),
        ["for=203.0.113.9, for=127.0.0.1;host=\"a\";proto=https"]
    );
    assert_eq!(values(&head, "via"), ["1.0 edge", "1.1 tollgate"]);
}

#[tokio::test]
async fn the_path_arrives_byte_for_byte() {
    let target = "/a%2Fb/%7e/../x//y;v=1?q=%20&&a=?b";
    let head = seen_of(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), |_| {}).await;
    assert_eq!(
        head.lines().next(),
        Some(&*format!("GET {target} HTTP/1.1"))
    );
}

#[tokio::test]
async fn the_path_is_rewritten_as_the_route_says() {
    let request = "GET /api/x%2Fy?q=%41 HTTP/1.1\r\nHost: a\r\n\r\n";
    let strip =
        |plan: &mut ForwarderConfig| plan.rule.rewrite = Rewrite::StripPrefix("/api".into());
    assert!(
        seen_of(request, strip)
            .await
            .starts_with("GET /x%2Fy?q=%41 HTTP/1.1\r\n")
    );
    let replace = |plan: &mut ForwarderConfig| {
        plan.rule.rewrite = Rewrite::ReplacePrefix {
            from: "/api".into(),
            to: "/v2".into(),
        }
    };
    assert!(
        seen_of(request, replace)
            .await
            .starts_with("GET /v2/x%2Fy?q=%41 HTTP/1.1\r\n")
    );
    let whole = |plan: &mut ForwarderConfig| plan.rule.rewrite = Rewrite::Replace("/z".into());
    assert!(
        seen_of(request, whole)
            .await
            .starts_with("GET /z?q=%41 HTTP/1.1\r\n")
    );
}

#[tokio::test]
async fn options_asterisk_is_forwarded_as_it_is() {
    assert!(
        seen_of("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", |_| {})
            .await
            .starts_with("OPTIONS * HTTP/1.1\r\n")
    );
}

#[tokio::test]
async fn the_authority_of_an_absolute_target_wins() {
    let head = seen_of(
        "GET http://b.example:81/x?y HTTP/1.1\r\nHost: a\r\n\r\n",
        |_| {},
    )
    .await;
    assert!(head.starts_with("GET /x?y HTTP/1.1\r\n"));
    assert_eq!(values(&head, "host"), ["b.example:81"]);
}

#[tokio::test]
async fn a_route_chooses_the_host_that_is_sent() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let fixed = |plan: &mut ForwarderConfig| {
        plan.rule.host = HostPolicy::Fixed(HeaderValue::from_static("fixed.example"))
    };
    assert_eq!(
        values(&seen_of(request, fixed).await, "host"),
        ["fixed.example"]
    );
    let endpoint = |plan: &mut ForwarderConfig| plan.rule.host = HostPolicy::Endpoint;
    let head = seen_of(request, endpoint).await;
    assert!(values(&head, "host")[0].starts_with("127.0.0.1:"));
    assert_eq!(values(&head, "x-forwarded-host"), ["a"]);
}

#[tokio::test]
async fn an_http_1_0_request_becomes_http_1_1_with_a_host() {
    let (server, mut heads) =
        recording("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
            .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    let answer = client.rest().await;
    assert!(
        answer.starts_with("HTTP/1.0 200") && answer.ends_with("\r\n\r\nok"),
        "{answer}"
    );
    assert!(values(&answer, "transfer-encoding").is_empty());
    let head = heads.recv().await.unwrap();
    assert!(head.starts_with("GET / HTTP/1.1\r\n"));
    assert_eq!(values(&head, "host"), [server.address.to_string()]);
    assert_eq!(values(&head, "via"), ["1.0 tollgate"]);
}

#[tokio::test]
async fn two_hosts_are_refused() {
    let server = ScriptedUpstream::answering(OK).await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
        .await;
    assert!(client.head().await.starts_with("HTTP/1.1 400"));
    assert_eq!(server.connections(), 0);
}

/// Some servers take it for POST, and a route may ask more for that.
#[tokio::test]
async fn a_method_in_small_letters_is_refused() {
    let server = ScriptedUpstream::answering(OK).await;
    let front = ProxyServer::to(&[server.address]).await;
    for method in ["post", "Post", "purge"] {
        let mut client = RawConnection::connect(front.address).await;
        client
            .send(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"))
            .await;
        assert!(client.head().await.starts_with("HTTP/1.1 400"), "{method}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn connect_is_refused() {
    let server = ScriptedUpstream::answering(OK).await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n")
        .await;
    assert!(client.head().await.starts_with("HTTP/1.1 501"));
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn an_http2_request_becomes_http_1_1() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        let head = wire.head().await;
        assert!(head.starts_with("POST /x%2F?q HTTP/1.1\r\n"), "{head}");
        assert_eq!(values(&head, "host"), ["shop.example"]);
        assert_eq!(values(&head, "via"), ["2 tollgate"]);
        assert_eq!(values(&head, "cookie"), ["a=1; b=2"]);
        assert_eq!(values(&head, "transfer-encoding"), ["chunked"]);
        assert_eq!(wire.until(b"0\r\n\r\n").await.unwrap(), "5\r\nhello\r\n0\r\n\r\n");
        wire.send(
            "HTTP/1.1 201 Created\r\nconnection: keep-alive\r\nkeep-alive: timeout=5\r\ncontent-length: 2\r\n\r\nok",
        )
        .await;
    })
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let stream = TcpStream::connect(front.address).await.unwrap();
    let shaken =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut client, connection) = shaken.unwrap();
    tokio::spawn(connection);
    let frame =
        Ok::<_, std::convert::Infallible>(http_body::Frame::data(bytes::Bytes::from("hello")));
    let body = http_body_util::StreamBody::new(futures_util::stream::iter([frame]));
    let request = http::Request::post("http://shop.example/x%2F?q")
        .header("cookie", "a=1")
        .header("cookie", "b=2");
    let answer = client
        .send_request(request.body(body).unwrap())
        .await
        .unwrap();
    assert_eq!(answer.status(), 201);
    assert!(!answer.headers().contains_key("keep-alive"));
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
}

#[tokio::test]
async fn hop_by_hop_fields_do_not_reach_the_client() {
    let head = relayed(
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "HTTP/1.1 200 Fine\r\nConnection: x-drop\r\nX-Drop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\n\
         Upgrade: h2c\r\nVia: 1.1 inner\r\nX-Keep: yes\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 200 Fine\r\n"));
    for gone in [
        "connection",
        "x-drop",
        "keep-alive",
        "proxy-authenticate",
        "upgrade",
    ] {
        assert!(values(&head, gone).is_empty(), "{gone} in {head}");
    }
    assert_eq!(values(&head, "x-keep"), ["yes"]);
    assert_eq!(values(&head, "via"), ["1.1 inner", "1.1 tollgate"]);
    assert_eq!(values(&head, "x-request-id"), ["id-1"]);
}

#[tokio::test]
async fn an_answer_to_head_keeps_its_length_and_has_no_body() {
    let head = relayed(
        "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n",
    )
    .await;
    assert_eq!(values(&head, "content-length"), ["1234"]);
    let head = relayed(
        "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
    )
    .await;
    assert!(values(&head, "content-length").is_empty(), "{head}");
}

#[tokio::test]
async fn answers_without_a_body_stay_without() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = relayed(request, "HTTP/1.1 204 No Content\r\n\r\n").await;
    assert!(
        values(&head, "content-length").is_empty() && values(&head, "transfer-encoding").is_empty()
    );
    let head = relayed(
        request,
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 99\r\netag: \"x\"\r\n\r\n",
    )
    .await;
    assert_eq!(values(&head, "etag"), ["\"x\""]);
}

#[tokio::test]
async fn a_length_beside_chunks_is_not_passed_on() {
    let server = ScriptedUpstream::answering(
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    )
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(values(&client.head().await, "content-length").is_empty());
    assert_eq!(
        client.until(b"0\r\n\r\n").await.unwrap(),
        "5\r\nhello\r\n0\r\n\r\n"
    );
}

#[tokio::test]
async fn a_length_said_twice_is_passed_on_once() {
    for twice in [
        "content-length: 2\r\ncontent-length: 2",
        "content-length: 2, 2",
    ] {
        let answer: &'static str = format!("HTTP/1.1 200 OK\r\n{twice}\r\n\r\nok").leak();
        let server = ScriptedUpstream::answering(answer).await;
        let front = ProxyServer::to(&[server.address]).await;
        let mut client = RawConnection::connect(front.address).await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(values(&client.head().await, "content-length"), ["2"]);
    }
}

#[tokio::test]
async fn a_100_is_for_the_gateway() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let response =
        "HTTP/1.1 100 Continue\r\nlink: </x>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    assert!(
        relayed(request, response)
            .await
            .starts_with("HTTP/1.1 200 OK\r\n")
    );
}

#[tokio::test]
async fn one_connection_serves_many_clients_in_turn() {
    let server = ScriptedUpstream::answering(OK).await;
    let front = ProxyServer::to(&[server.address]).await;
    for _ in 0..4 {
        let mut client = RawConnection::connect(front.address).await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        client.until(b"ok").await.unwrap();
    }
    assert_eq!(server.connections(), 1);
    assert_eq!(front.gate.upstream.endpoints()[0].in_flight(), 0);
}

#[tokio::test]
async fn no_more_connections_are_kept_without_use_than_asked_for() {
    let together = Arc::new(Barrier::new(4));
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let together = Arc::clone(&together);
        async move {
            wire.head().await;
            together.wait().await;
            wire.send(OK).await;
            wire.try_head().await;
        }
    })
    .await;
    let front = ProxyServer::with(&[server.address], |plan| {
        plan.spec.keepalive_connections = 2
    })
    .await;
    let clients = (0..4).map(|_| async {
        let mut client = RawConnection::connect(front.address).await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        client.until(b"ok").await.unwrap();
    });
    futures_util::future::join_all(clients).await;
    assert_eq!(
        (server.connections(), front.gate.proxy.idle_connections()),
        (4, 4)
    );
    // From one look to the next nobody needs any of them.
    front.gate.proxy.sweep();
    front.gate.proxy.sweep();
    assert_eq!(front.gate.proxy.idle_connections(), 2);
}

#[tokio::test]
async fn an_answer_that_closes_is_not_followed_by_reuse() {
    let server = ScriptedUpstream::answering(
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    for count in 1..=3 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(values(&client.head().await, "connection").is_empty());
        assert_eq!(server.connections(), count);
    }
    assert_eq!(front.gate.proxy.idle_connections(), 0);
}

#[tokio::test]
async fn old_connections_are_swept() {
    let server = ScriptedUpstream::answering(OK).await;
    let front = ProxyServer::with(&[server.address], |plan| {
        plan.spec.keepalive_timeout = std::time::Duration::ZERO
    })
    .await;
    let mut client = RawConnection::connect(front.address).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.until(b"ok").await.unwrap();
    front.gate.proxy.sweep();
    assert_eq!(front.gate.proxy.idle_connections(), 0);
}

#[tokio::test]
async fn requests_are_spread_over_all_endpoints() {
    for balance in [Balance::RoundRobin, Balance::LeastRequests] {
        let mut servers = Vec::new();
        let mut counts: HashMap<SocketAddr, mpsc::UnboundedReceiver<String>> = HashMap::new();
        for _ in 0..3 {
            let (server, heads) = recording(OK).await;
            counts.insert(server.address, heads);
            servers.push(server);
        }
        let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
        let front = ProxyServer::with(&addresses, |plan| plan.spec.balance = balance.clone()).await;
        let mut client = RawConnection::connect(front.address).await;
        for _ in 0..90 {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            client.until(b"ok").await.unwrap();
        }
        for heads in counts.values_mut() {
            let count = std::iter::from_fn(|| heads.try_recv().ok()).count();
            let fair = if balance == Balance::RoundRobin {
                30..=30
            } else {
                5..=70
            };
            assert!(fair.contains(&count), "{balance:?}: {count} of 90");
        }
    }
}

#[tokio::test]
async fn an_endpoint_may_be_a_name() {
    let server = ScriptedUpstream::answering(OK).await;
    let name = format!("http://localhost:{}", server.address.port())
        .parse()
        .unwrap();
    let front = ProxyServer::with(&[server.address], |plan| plan.spec.endpoints = vec![name]).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn an_endpoint_may_be_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let url = format!("unix:{}", path.display()).parse().unwrap();
    let front = ProxyServer::with(&[], |plan| {
        plan.spec.endpoints = vec![url];
        plan.rule.host = HostPolicy::Endpoint;
    })
    .await;
    let mut client = RawConnection::connect(front.address).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (mut socket, _) = listener.accept().await.unwrap();
    let mut head = vec![0; 4096];
    let read = socket.read(&mut head).await.unwrap();
    socket.write_all(OK.as_bytes()).await.unwrap();
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    assert_eq!(
        values(&String::from_utf8_lossy(&head[..read]), "host"),
        ["localhost"]
    );
}

#[tokio::test]
async fn requests_and_connections_are_counted_by_upstream() {
    let server = ScriptedUpstream::answering(OK).await;
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let gate = metrics::with_local_recorder(&recorder, || {
        Forwarder::new(ForwarderConfig::new(&[server.address]))
    });
    for _ in 0..2 {
        let request = http::Request::get("/")
            .header("host", "a")
            .body(Body::empty())
            .unwrap();
        let response = gate.answer(request, "127.0.0.1:1".parse().unwrap()).await;
        assert_eq!(
            response.into_body().collect().await.unwrap().to_bytes(),
            "ok"
        );
    }
    let page = recorder.handle().render();
    for line in [
        "tollgate_upstream_requests_total{upstream=\"test\",outcome=\"response\"} 2",
        "tollgate_upstream_requests_total{upstream=\"test\",outcome=\"connect_failed\"} 0",
        "tollgate_upstream_connects_total{upstream=\"test\",outcome=\"connected\"} 1",
        "tollgate_upstream_connections{upstream=\"test\"} 1",
        "tollgate_upstream_retries_total{upstream=\"test\"} 0",
        "tollgate_upstream_response_seconds_count{upstream=\"test\"} 2",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
}

#[tokio::test]
async fn a_closed_connection_is_noticed_by_a_task_without_budget() {
    let server = ScriptedUpstream::answering_once(OK).await;
    let front = ProxyServer::to(&[server.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.until(b"ok").await.unwrap();
    let swept = || {
        let mut cx = Context::from_waker(Waker::noop());
        while coop::has_budget_remaining() {
            let _ = std::pin::pin!(coop::consume_budget()).poll(&mut cx);
        }
        front.keeps_no_connection()
    };
    until("it is dropped", swept).await;
}

#[tokio::test]
async fn a_response_with_content_that_it_must_not_have_ends_the_connection() {
    for answer in [
        "HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\n",
        "HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\ncontent-length: 2\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ] {
        let server = ScriptedUpstream::answering(answer).await;
        let front = ProxyServer::to(&[server.address]).await;
        for count in 1..=2 {
            let mut client = RawConnection::connect(front.address).await;
            client
                .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                .await;
            assert!(client.rest().await.contains("HTTP/1.1 20"), "{answer}");
            assert_eq!(server.connections(), count, "{answer}");
        }
    }
}

#[tokio::test]
async fn the_length_of_a_response_without_content_is_validated() {
    for (request, status) in [("HEAD", "200 OK"), ("GET", "304 Not Modified")] {
        let request = format!("{request} / HTTP/1.1\r\nHost: a\r\n\r\n");
        for (length, sent) in [("7, 7", "7"), ("007", "7"), ("7", "7"), ("0", "0")] {
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n").leak();
            assert_eq!(
                values(&relayed(&request, answer).await, "content-length"),
                [sent],
                "{status} {length}"
            );
        }
        for length in ["7, 8", "x", "-1", ""] {
            let answer: &str =
                format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n").leak();
            let server = ScriptedUpstream::answering(answer).await;
            let front = ProxyServer::to(&[server.address]).await;
            let mut client = RawConnection::connect(front.address).await;
            client.send(&request).await;
            assert!(
                client.head().await.starts_with("HTTP/1.1 502"),
                "{status} {length}"
            );
        }
    }
}
