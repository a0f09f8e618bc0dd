//! Bodies: slow ones, large ones, broken ones, and those that nobody reads.

use tokio::io::AsyncReadExt;
use tollgate_spec::listener::ListenerSpec;

use super::{NEXT, SHORT};
use crate::support::test_server::{TestServer, spec};

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_coming_fails_with_a_timeout() {
    let server = TestServer::start(ListenerSpec {
        body_timeout: SHORT,
        ..spec()
    });
    for framing in [
        "Content-Length: 9\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let mut client = server.connect().await;
        client
            .send(format!("POST /echo HTTP/1.1\r\nHost: a\r\n{framing}"))
            .await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.says_close()), (408, true));
        client.closed().await;
    }
}

/// (why, request, whether the connection goes on): denied without its body being read.
fn denied() -> Vec<(&'static str, String, bool)> {
    let post = "POST /deny HTTP/1.1\r\nHost: a\r\n";
    let chunks = |count| "4\r\nGET \r\n".repeat(count);
    vec![
        (
            "a short body",
            format!("{post}Content-Length: 5\r\n\r\nGET /"),
            true,
        ),
        (
            "a chunked body",
            format!(
                "{post}Transfer-Encoding: chunked\r\n\r\n{}0\r\nx: y\r\n\r\n",
                chunks(3)
            ),
            true,
        ),
        (
            "a body of 64 KiB",
            format!("{post}Content-Length: 65536\r\n\r\n{}", "x".repeat(65536)),
            true,
        ),
        (
            "a body of 10 MB",
            format!(
                "{post}Content-Length: 10000000\r\n\r\n{}",
                NEXT.repeat(1000)
            ),
            false,
        ),
        (
            "an endless chunked body",
            format!("{post}Transfer-Encoding: chunked\r\n\r\n{}", chunks(3000)),
            false,
        ),
        (
            "a fulfilled expectation",
            format!("{post}Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"),
            true,
        ),
    ]
}

#[tokio::test]
async fn an_unread_body_is_never_taken_for_a_request() {
    let server = TestServer::start(spec());
    for (why, request, stays) in denied() {
        let mut client = server.connect().await;
        client.send(format!("{request}{NEXT}")).await;
        let answer = client.answer().await;
        assert_eq!(answer.status, 429, "{why}");
        if stays {
            assert!(!answer.says_close(), "{why}");
            assert_eq!(client.answer().await.body, b"GET /next", "{why}");
            assert_eq!(
                std::mem::take(&mut *server.seen.requests.lock()),
                ["POST /deny", "GET /next"],
                "{why}"
            );
        } else {
            assert!(answer.says_close(), "{why}");
            client.closed().await;
            assert_eq!(
                std::mem::take(&mut *server.seen.requests.lock()),
                ["POST /deny"],
                "{why}"
            );
        }
    }
}

#[tokio::test]
async fn a_short_body_that_comes_after_its_denial_is_read_past() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send("POST /deny HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
        .await;
    assert!(!client.answer().await.says_close());
    client.send(format!("GET /{NEXT}")).await;
    assert_eq!(client.answer().await.body, b"GET /next");
}

#[tokio::test]
async fn a_denied_client_can_read_its_answer_while_it_still_sends() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send("POST /deny HTTP/1.1\r\nHost: a\r\nContent-Length: 800000\r\n\r\n")
        .await;
    for _ in 0..100 {
        client.send([b'x'; 8000]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.answer().await.status, 429);
    client.closed().await;
}

#[tokio::test]
async fn a_100_continue_is_sent_only_when_the_body_is_read() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.status, 100);
    client.send("hello").await;
    assert_eq!(client.answer().await.body, b"hello");
    client
        .send("POST /deny HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.status, 429);
    client.closed().await;
}

#[tokio::test]
async fn a_slow_denial_sends_no_100_continue() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    let head =
        "POST /deny-later HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    client.send(format!("{head}hello{NEXT}")).await;
    server.handled(1).await;
    server.seen.gate.add_permits(1);
    assert_eq!(client.answer().await.status, 429);
    assert_eq!(client.answer().await.body, b"GET /next");
}

#[tokio::test]
async fn a_response_that_breaks_off_never_looks_complete() {
    let server = TestServer::start(spec());
    for version in ["1.0", "1.1"] {
        let mut client = server.connect().await;
        client
            .send(format!("GET /break HTTP/{version}\r\nHost: a\r\n\r\n"))
            .await;
        let end = loop {
            match client.stream.read_buf(&mut client.buffer).await {
                Ok(1..) => {}
                end => break end,
            }
        };
        assert!(client.buffer.windows(5).any(|content| content == b"begun"));
        assert!(!client.buffer.ends_with(b"0\r\n\r\n"));
        // The last chunk is missing; in HTTP/1.0, a close would mark the end.
        let reset =
            matches!(end, Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset);
        assert_eq!(reset, version == "1.0", "HTTP/{version}");
    }
}

#[tokio::test]
async fn a_large_body_passes_unchanged() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    let body: Vec<u8> = (0..2_000_000_u32)
        .map(|n| b"0123456789abcdef\r\n"[n as usize % 18])
        .collect();
    let mut bytes =
        b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for (n, chunk) in body.chunks(12_345).enumerate() {
        for part in chunk.chunks(1 + n * 97) {
            bytes.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
            bytes.extend_from_slice(part);
            bytes.extend_from_slice(b"\r\n");
        }
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    client.send(&bytes).await;
    assert!(client.answer().await.body == body);
    client
        .send(format!(
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ))
        .await;
    client.send(&body).await;
    assert!(client.answer().await.body == body);
}

#[tokio::test]
async fn a_connection_with_a_malformed_body_closes_even_if_the_handler_answers() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send(format!(
            "POST /forgive HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n{NEXT}"
        ))
        .await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.says_close()), (200, true));
    client.closed().await;
    assert_eq!(server.requests(), ["POST /forgive"]);
}

#[tokio::test]
async fn a_body_may_be_read_after_the_answer_and_the_next_request_waits_for_it() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    for framing in [
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        client
            .send(format!(
                "POST /later HTTP/1.1\r\nHost: a\r\n{framing}{NEXT}"
            ))
            .await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.says_close()), (200, false));
        assert_eq!(server.requests(), ["POST /later"]);
        server.seen.gate.add_permits(1);
        assert_eq!(client.answer().await.body, b"GET /next");
        let lines = std::mem::take(&mut *server.seen.requests.lock());
        assert_eq!(lines, ["POST /later", "read hello", "GET /next"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_may_be_read_by_another_task() {
    let server = TestServer::start(ListenerSpec {
        body_timeout: SHORT * 20,
        ..spec()
    });
    let mut client = server.connect().await;
    for _ in 0..3 {
        client.send("POST /elsewhere HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n").await;
        assert_eq!(client.answer().await.status, 100);
        for piece in ["one", "two", "end"] {
            client.send(piece).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(client.answer().await.body, b"onetwoend");
    }
    client.send(NEXT).await;
    assert_eq!(client.answer().await.body, b"GET /next");
}

#[tokio::test]
async fn a_body_of_http_1_0_is_not_asked_for() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send("POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        .await;
    tokio::task::yield_now().await;
    client.send("hello").await;
    assert_eq!(client.answer().await.body, b"hello");
    client.closed().await;
}

#[tokio::test]
async fn a_body_that_was_never_asked_for_is_not_waited_for() {
    for path in ["/glance", "/glance?later"] {
        let server = TestServer::start(spec());
        let mut client = server.connect().await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        );
        client.send(head).await;
        if path.ends_with("later") {
            server.handled(1).await;
            server.seen.gate.add_permits(1);
        }
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.says_close()), (429, true), "{path}");
        client.send(NEXT).await;
        client.closed().await;
        assert!(
            !server.requests().iter().any(|line| line.contains("next")),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_response_before_100_continue_ends_the_connection() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client
        .send(
            "POST /later HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        )
        .await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.says_close()), (200, true));
}
