//! Connections of the server: keep-alive, timeouts, bounds, clients that leave.

mod bodies;
mod http2;
mod upgrade;

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::test_server::{TestServer, spec};
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;
use tollgate_spec::listener::ListenerSpec;
use tollgate_testing::{PATIENCE, until};

const SHORT: Duration = Duration::from_millis(50);
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn a_connection_serves_a_thousand_requests() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    for n in 0..1000 {
        client
            .send(format!(
                "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n{n:04}"
            ))
            .await;
        assert_eq!(client.answer().await.body, format!("{n:04}").as_bytes());
    }
}

#[tokio::test]
async fn a_thousand_pipelined_requests_are_answered_in_order() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    let all: String = (0..1000)
        .map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n"))
        .collect();
    client.send(all).await;
    for n in 0..1000 {
        assert_eq!(client.answer().await.body, format!("GET /{n}").as_bytes());
    }
}

#[tokio::test]
async fn http_1_0_closes_unless_it_asks_to_stay() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        .await;
    assert_eq!(
        client.answer().await.field("connection"),
        Some("keep-alive")
    );
    client.send("GET /b HTTP/1.0\r\n\r\n").await;
    assert_eq!(client.answer().await.body, b"GET /b");
    client.closed().await;
}

#[tokio::test]
async fn a_client_that_asks_to_close_gets_an_answer_and_an_end() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await;
    assert!(client.answer().await.says_close());
    client.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_header_section_is_answered_with_408() {
    let server = TestServer::start(ListenerSpec {
        header_timeout: SHORT,
        ..spec()
    });
    for begun in [
        "G",
        "P",
        "PRI * HTTP/2.0\r\n\r\nSM",
        "GET / HTTP/1.1\r\nHost: a\r\nX",
    ] {
        let mut client = server.connect().await;
        client.send(begun).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.says_close()), (408, true), "{begun}");
        client.closed().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_header_section_behind_a_good_request_is_answered_with_408_too() {
    let server = TestServer::start(ListenerSpec {
        header_timeout: SHORT,
        ..spec()
    });
    let mut client = server.connect().await;
    client
        .send("GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b")
        .await;
    assert_eq!(client.answer().await.status, 200);
    assert_eq!(client.answer().await.status, 408);
    client.closed().await;
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_without_a_response() {
    let server = TestServer::start(ListenerSpec {
        header_timeout: SHORT,
        ..spec()
    });
    server.connect().await.closed().await;
    assert_eq!(*server.seen.refused.lock(), []);
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_a_response() {
    let server = TestServer::start(ListenerSpec {
        keepalive_timeout: SHORT,
        ..spec()
    });
    for after in [
        NEXT,
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\r\n",
    ] {
        let mut client = server.connect().await;
        client.send(after).await;
        assert_eq!(client.answer().await.status, 200);
        client.closed().await;
    }
    assert_eq!(*server.seen.refused.lock(), []);
}

#[tokio::test]
async fn a_request_under_way_is_not_idle() {
    let server = TestServer::start(ListenerSpec {
        keepalive_timeout: SHORT,
        ..spec()
    });
    let mut patient = server.connect().await;
    patient.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n").await;
    server.handled(1).await;
    // Another connection lives through an idle time meanwhile.
    let mut other = server.connect().await;
    other.send(NEXT).await;
    assert_eq!(other.answer().await.status, 200);
    other.closed().await;
    server.seen.gate.add_permits(1);
    assert_eq!(patient.answer().await.status, 200);
    patient.closed().await;
}

#[tokio::test]
async fn a_client_that_leaves_within_a_header_section_is_no_request() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\nHost").await;
    client.stream.shutdown().await.unwrap();
    client.closed().await;
    assert_eq!(server.requests(), Vec::<String>::new());
    assert_eq!(*server.seen.refused.lock(), []);
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_request() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n").await;
    server.handled(1).await;
    drop(client);
    until("the handler is dropped", || {
        server.seen.cancelled.load(Ordering::Relaxed) == 1
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_while_nobody_reads_its_body_cancels_its_request() {
    for framing in [
        "Content-Length: 5\r\n\r\nhello",
        "Content-Length: 5\r\n\r\nhe",
        "Transfer-Encoding: chunked\r\n\r\n",
    ] {
        let server = TestServer::start(spec());
        let mut client = server.connect().await;
        client
            .send(format!("POST /never HTTP/1.1\r\nHost: a\r\n{framing}"))
            .await;
        server.handled(1).await;
        drop(client);
        until("the handler is dropped", || {
            server.seen.cancelled.load(Ordering::Relaxed) == 1
        })
        .await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_response() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        .await;
    while !client.buffer.ends_with(b"begun\r\n") {
        assert!(client.more().await > 0);
    }
    assert_eq!(server.seen.cancelled.load(Ordering::Relaxed), 0);
    drop(client);
    until("the response is dropped", || {
        server.seen.cancelled.load(Ordering::Relaxed) == 1
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_after_pipelining_cancels_its_request() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send(format!("GET /never HTTP/1.1\r\nHost: a\r\n\r\n{NEXT}"))
        .await;
    server.handled(1).await;
    client.send(NEXT).await;
    drop(client);
    until("the handler is dropped", || {
        server.seen.cancelled.load(Ordering::Relaxed) == 1
    })
    .await;
    assert_eq!(server.requests(), ["GET /never"]);
}

#[tokio::test]
async fn open_connections_are_counted() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let server = metrics::with_local_recorder(&recorder, || TestServer::start(spec()));
    let mut client = server.connect().await;
    client.send(NEXT).await;
    assert_eq!(client.answer().await.status, 200);
    assert!(metrics.render().contains("tollgate_connections 1\n"));
    drop(client);
    until("it is counted out", || {
        metrics.render().contains("tollgate_connections 0\n")
    })
    .await;
    assert!(metrics.render().contains("tollgate_connections_total 1\n"));
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_dropped() {
    let server = TestServer::start(ListenerSpec {
        body_timeout: SHORT,
        ..spec()
    });
    let mut client = server.connect().await;
    let big = "x".repeat(1 << 20);
    let one = format!(
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{big}",
        big.len()
    );
    let flood = async { while client.stream.write_all(one.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, flood)
        .await
        .expect("the server drops the connection");
}

#[tokio::test]
async fn the_host_of_an_absolute_target_wins() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send("GET http://b:81/host HTTP/1.1\r\nHost: a\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.field("seen-host"), Some("b:81"));
}

#[tokio::test]
async fn no_more_connections_are_served_than_allowed() {
    let server = TestServer::start(ListenerSpec {
        max_connections: 2,
        ..spec()
    });
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = server.connect().await;
        client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n").await;
        clients.push(client);
    }
    server.handled(2).await;
    server.seen.gate.add_permits(2);
    for client in &mut clients[..2] {
        assert_eq!(client.answer().await.status, 200);
    }
    // Kept alive, the first two still hold their places.
    assert_eq!(
        server
            .requests()
            .iter()
            .filter(|line| line.ends_with("waiting"))
            .count(),
        2
    );
    clients.drain(..2);
    server.handled(6).await;
    server.seen.gate.add_permits(2);
    for client in &mut clients {
        assert_eq!(client.answer().await.status, 200);
    }
    assert_eq!(server.stop(PATIENCE).await, 0);
}

/// A request and the line its handler makes of it.
fn any_request() -> impl Strategy<Value = (String, String)> {
    let get = "[a-z]{1,8}".prop_map(|p| {
        (
            format!("GET /{p} HTTP/1.1\r\nHost: a\r\n\r\n"),
            format!("GET /{p}"),
        )
    });
    let sized = "[a-zA-Z0-9]{1,40}".prop_map(|body| {
        let head = format!(
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        (head + &body, format!("POST /echo {body}"))
    });
    let chunked = (
        prop::collection::vec("[a-zA-Z0-9]{1,20}", 0..4),
        any::<bool>(),
    )
        .prop_map(|(chunks, trailer)| {
            let data: String = chunks
                .iter()
                .map(|c| format!("{:x};n=v\r\n{c}\r\n", c.len()))
                .collect();
            let (end, suffix) = if trailer {
                ("x: y\r\n", " 1")
            } else {
                ("", "")
            };
            let head = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            (
                format!("{head}{data}0\r\n{end}\r\n"),
                format!("POST /echo {}{suffix}", chunks.concat()),
            )
        });
    prop_oneof![get, sized, chunked]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn however_requests_are_split_the_handler_sees_the_same(
        requests in prop::collection::vec(any_request(), 1..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = TestServer::start(spec());
            let mut client = server.connect().await;
            let bytes: String = requests.iter().map(|(bytes, _)| bytes.as_str()).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).chain([bytes.len()]).collect();
            cuts.sort_unstable();
            let mut sent = 0;
            for cut in cuts {
                client.send(&bytes.as_bytes()[sent..cut]).await;
                sent = cut;
                tokio::task::yield_now().await;
            }
            for _ in &requests {
                assert_eq!(client.answer().await.status, 200);
            }
            let lines: Vec<&str> = requests.iter().map(|(_, line)| line.as_str()).collect();
            assert_eq!(server.requests(), lines);
        });
    }
}
