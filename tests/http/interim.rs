//! Interim responses on their way to the client, and bodies that do not wait for one.

use crate::replayed_bodies::{keeping, on_busy};
use crate::support::proxy_server::ProxyServer;
use crate::support::test_server::{TestServer, spec};
use tokio::sync::mpsc;
use tollgate_testing::raw_http2::{
    END_HEADERS, END_STREAM, FrameClient, HEADERS, block, frame, request,
};
use tollgate_testing::upstream::{RawConnection, ScriptedUpstream, values};

/// An upstream that gives two hints, and then its response.
const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n\
                     HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn hints_reach_a_client_of_http_1_in_order() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client.send("GET /hints HTTP/1.1\r\nHost: a\r\n\r\n").await;
    for link in ["</a>", "</b>"] {
        let hint = client.answer().await;
        assert_eq!((hint.status, hint.field("link")), (103, Some(link)));
    }
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test]
async fn hints_reach_a_client_of_http_2_in_order() {
    let server = TestServer::start(spec());
    let mut client = FrameClient::connect(server.address).await;
    client
        .request(1, END_STREAM, &request("GET", "/hints", &[]))
        .await;
    for _ in 0..2 {
        let hint = client.of_stream(1).await;
        assert_eq!(
            (hint.kind, hint.status(), hint.ends_stream()),
            (HEADERS, 103, false)
        );
    }
    let head = client.of_stream(1).await;
    assert_eq!((head.kind, head.flags), (HEADERS, END_HEADERS));
}

#[tokio::test]
async fn hints_of_an_upstream_pass_without_the_fields_of_its_connection() {
    let upstream = ScriptedUpstream::answering(HINTS).await;
    let gate = ProxyServer::to(&[upstream.address]).await;
    let mut client = RawConnection::connect(gate.address).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(
        client.head().await,
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    );
    assert_eq!(client.head().await, "HTTP/1.1 102 Processing\r\n\r\n");
    assert!(client.head().await.starts_with("HTTP/1.1 200 OK\r\n"));

    let mut client = FrameClient::connect(gate.address).await;
    client
        .request(1, END_STREAM, &request("GET", "/", &[]))
        .await;
    for status in [103, 102, 200] {
        assert_eq!(client.of_stream(1).await.status(), status);
    }
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_no_hints() {
    let upstream = ScriptedUpstream::answering(HINTS).await;
    let gate = ProxyServer::to(&[upstream.address]).await;
    let mut client = RawConnection::connect(gate.address).await;
    client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.0 200 OK\r\n"));
}

#[tokio::test]
async fn hints_without_end_are_bounded() {
    let flood = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100);
    let upstream = ScriptedUpstream::start(move |mut wire, _| {
        let flood = flood.clone();
        async move {
            wire.head().await;
            wire.send(flood).await;
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                .await;
        }
    })
    .await;
    let gate = ProxyServer::to(&[upstream.address]).await;
    let mut client = RawConnection::connect(gate.address).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut hints = 0;
    while client.head().await.starts_with("HTTP/1.1 103") {
        hints += 1;
    }
    assert_eq!(hints, 16);
}

/// The status of the answer of an upstream that gives so many hints before it, over HTTP/1.1 and
/// HTTP/2.
async fn answer_after(hints: usize) -> [String; 2] {
    let scripts = [false, true].map(|is_http2| async move {
        ScriptedUpstream::start(move |mut wire, _| async move {
            if !is_http2 {
                wire.head().await;
                wire.send("HTTP/1.1 103 Early Hints\r\n\r\n".repeat(hints))
                    .await;
                wire.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    .await;
                wire.rest().await;
                return;
            }
            let mut peer = FrameClient::accepted(wire.stream, &[]).await;
            let stream = peer.next(HEADERS).await.stream;
            let hint = frame(HEADERS, END_HEADERS, stream, &block(&[(":status", "103")]));
            peer.send(hint.repeat(hints)).await;
            peer.send(frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                stream,
                &block(&[(":status", "200")]),
            ))
            .await;
            while peer.frame().await.is_some() {}
        })
        .await
    });
    let mut statuses = Vec::new();
    for (script, scheme) in scripts.into_iter().zip(["http", "h2c"]) {
        let upstream = script.await;
        let gate = ProxyServer::with(&[upstream.address], |plan| {
            plan.spec.endpoints = vec![format!("{scheme}://{}", upstream.address).parse().unwrap()];
        })
        .await;
        let mut client = RawConnection::connect(gate.address).await;
        client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
        statuses.push(client.head().await[9..12].to_owned());
    }
    statuses.try_into().unwrap()
}

#[tokio::test]
async fn an_upstream_that_only_gives_hints_is_not_waited_for() {
    assert_eq!(answer_after(1000).await, ["200", "200"]);
    assert_eq!(answer_after(1001).await, ["502", "502"]);
}

#[tokio::test]
async fn a_handler_learns_that_a_body_is_here_without_asking_for_it() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client.send("POST /arrived HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n").await;
    tokio::task::yield_now().await;
    client.send("body").await;
    assert_eq!(client.answer().await.status, 200);

    let mut client = FrameClient::connect(server.address).await;
    let expects = [("expect", "100-continue"), ("content-length", "4")];
    client
        .request(1, 0, &request("POST", "/arrived", &expects))
        .await;
    tokio::task::yield_now().await;
    client.send(frame(0, END_STREAM, 1, b"body")).await;
    assert_eq!(client.of_stream(1).await.status(), 200);
}

/// An upstream that asks for no body, and answers once it has it.
async fn silent_upstream() -> ScriptedUpstream {
    ScriptedUpstream::start(|mut wire, _| async move {
        while wire.try_head().await.is_some() {
            wire.until(b"body").await;
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                .await;
        }
    })
    .await
}

#[tokio::test]
async fn a_body_that_came_with_its_expect_waits_for_no_100() {
    let upstream = silent_upstream().await;
    let gate = ProxyServer::to(&[upstream.address]).await;
    let mut client = RawConnection::connect(gate.address).await;
    let head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    client.send(format!("{head}body")).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    // It may also come a little later.
    client.send(head).await;
    tokio::task::yield_now().await;
    client.send("body").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));

    let mut client = FrameClient::connect(gate.address).await;
    let fields = block(&request(
        "POST",
        "/",
        &[("expect", "100-continue"), ("content-length", "4")],
    ));
    client
        .send(
            [
                frame(HEADERS, END_HEADERS, 1, &fields),
                frame(0, END_STREAM, 1, b"body"),
            ]
            .concat(),
        )
        .await;
    assert_eq!(client.of_stream(1).await.status(), 200);
}

const EXPECTING: &str =
    "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";

/// An upstream that reads each request to its end, and answers it without a 100. It sends on
/// whether a request has an expectation.
async fn unasking_upstream() -> (ScriptedUpstream, mpsc::UnboundedReceiver<bool>) {
    let (expectations, expected) = mpsc::unbounded_channel();
    let upstream = ScriptedUpstream::start(move |mut wire, _| {
        let expectations = expectations.clone();
        async move {
            while let Some(head) = wire.try_head().await {
                expectations
                    .send(!values(&head, "expect").is_empty())
                    .unwrap();
                wire.exactly(4).await;
                wire.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    .await;
            }
        }
    })
    .await;
    (upstream, expected)
}

#[tokio::test]
async fn no_upstream_is_asked_for_a_100_about_a_body_that_is_here() {
    let (upstream, mut expected) = unasking_upstream().await;
    let gate = ProxyServer::to(&[upstream.address]).await;
    let mut client = RawConnection::connect(gate.address).await;
    for _ in 0..2 {
        client.send(format!("{EXPECTING}body")).await;
        assert!(client.head().await.starts_with("HTTP/1.1 200"));
        assert_eq!(expected.recv().await, Some(false));
    }
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn a_connection_on_which_a_100_did_not_come_carries_no_other_request() {
    let (upstream, mut expected) = unasking_upstream().await;
    let gate = ProxyServer::to(&[upstream.address]).await;
    let mut client = RawConnection::connect(gate.address).await;
    for connections in 1..3 {
        client.send(EXPECTING).await;
        assert_eq!(expected.recv().await, Some(true));
        client.send("body").await;
        assert!(client.head().await.starts_with("HTTP/1.1 200"));
        assert_eq!(upstream.connections(), connections);
    }
}

#[tokio::test]
async fn a_request_that_is_sent_again_asks_for_no_100() {
    let upstream = ScriptedUpstream::start(|mut wire, number| async move {
        let expects = !values(&wire.head().await, "expect").is_empty();
        assert_eq!(expects, number == 0);
        if expects {
            wire.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        }
        assert_eq!(wire.exactly(4).await, "body");
        let status = if expects { "503 Busy" } else { "200 OK" };
        wire.send(format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        ))
        .await;
    })
    .await;
    let gate = ProxyServer::with(&[upstream.address], |plan| {
        plan.retry = Some(keeping(on_busy(), 1024));
    })
    .await;
    let mut client = RawConnection::connect(gate.address).await;
    client.send(EXPECTING).await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("body").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
}
