//! Requests that RFC 9112 wants refused are refused and answered, and nothing after them is
//! handled.

mod reader;
mod through;

use super::refused_messages::table::{CHUNKED, CHUNKS, Outcome, PATHS, refused_messages};
use crate::support::test_server::{TestServer, spec};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate_testing::PATIENCE;
use tollgate_wire::error::Failure;

/// A request that must never be handled.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// (why, bytes, status): the request itself is never handled, and nothing after it.
fn refused() -> Vec<(&'static str, Vec<u8>, u16)> {
    let heads = refused_messages()
        .into_iter()
        .filter(|row| ![CHUNKED, PATHS].contains(&row.group));
    let refused = heads.filter_map(|row| match row.http_1? {
        (bytes, Outcome::Status(status)) => Some((row.what, bytes, status)),
        _ => None,
    });
    refused.collect()
}

#[tokio::test]
async fn every_ambiguous_request_is_answered_and_nothing_after_it_is_handled() {
    let server = TestServer::start(spec());
    for (why, bytes, status) in refused() {
        let mut client = server.connect().await;
        client
            .send([&bytes, SMUGGLED.as_bytes(), SMUGGLED.as_bytes()].concat())
            .await;
        let answer = client.answer().await;
        assert_eq!(answer.status, status, "{why}: {answer:?}");
        assert!(answer.says_close(), "{why}");
        assert_eq!(
            answer.field("content-type"),
            Some("application/problem+json"),
            "{why}"
        );
        assert_eq!(answer.field("x-request-id"), Some("id"), "{why}");
        client.closed().await;
        assert_eq!(server.requests(), Vec::<String>::new(), "{why}");
    }
    assert_eq!(server.seen.refused.lock().len(), refused().len());
    assert_eq!(server.stop(PATIENCE).await, 0);
}

#[tokio::test]
async fn every_ambiguous_request_is_refused_the_same_when_it_arrives_byte_by_byte() {
    let server = TestServer::start(spec());
    for (why, bytes, status) in refused() {
        let mut client = server.connect().await;
        for byte in &bytes {
            // The server may have refused already: its answer is what counts.
            let Ok(()) = tokio::io::AsyncWriteExt::write_all(&mut client.stream, &[*byte]).await
            else {
                break;
            };
            tokio::task::yield_now().await;
        }
        assert_eq!(client.answer().await.status, status, "{why}");
        client.closed().await;
        assert_eq!(server.requests(), Vec::<String>::new(), "{why}");
    }
}

#[tokio::test]
async fn a_refusal_waits_for_its_turn_behind_pipelined_requests() {
    let server = TestServer::start(spec());
    for (why, bytes, status) in refused() {
        let mut client = server.connect().await;
        let good = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
        client
            .send([good.as_bytes(), &bytes, SMUGGLED.as_bytes()].concat())
            .await;
        assert_eq!(client.answer().await.body, b"GET /1", "{why}");
        assert_eq!(client.answer().await.body, b"hi", "{why}");
        server.handled(2).await;
        assert_eq!(client.answer().await.status, status, "{why}");
        client.closed().await;
        assert_eq!(
            std::mem::take(&mut *server.seen.requests.lock()),
            ["GET /1", "POST /echo hi"],
            "{why}"
        );
    }
}

#[tokio::test]
async fn a_malformed_chunked_body_fails_its_reader_and_nothing_after_it_is_handled() {
    let server = TestServer::start(spec());
    for (why, rest) in CHUNKS {
        let mut client = server.connect().await;
        let head =
            "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
        client.send(format!("{head}{rest}{SMUGGLED}")).await;
        let answer = client.answer().await;
        assert_eq!(answer.status, 400, "{why}");
        assert!(answer.says_close(), "{why}");
        client.closed().await;
        assert_eq!(
            std::mem::take(&mut *server.seen.requests.lock()),
            ["POST /echo failed"],
            "{why}"
        );
    }
}

#[tokio::test]
async fn a_malformed_chunked_body_that_nobody_reads_smuggles_nothing_in() {
    let server = TestServer::start(spec());
    for (why, rest) in CHUNKS {
        let mut client = server.connect().await;
        let head =
            "POST /deny HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
        client.send(format!("{head}{rest}{SMUGGLED}")).await;
        assert_eq!(client.answer().await.status, 429, "{why}");
        client.closed().await;
        assert_eq!(
            std::mem::take(&mut *server.seen.requests.lock()),
            ["POST /deny"],
            "{why}"
        );
    }
}

#[tokio::test]
async fn endless_chunk_extensions_are_malformed() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client
        .send(format!(
            "{head}{}0\r\n\r\n",
            "1;x=yyyyyyyyyyyyyy\r\na\r\n".repeat(600)
        ))
        .await;
    assert_eq!(client.answer().await.status, 400);
    client.closed().await;
}

#[tokio::test]
async fn unusual_but_valid_requests_are_handled() {
    let server = TestServer::start(spec());
    let cases = [
        ("\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a"),
        (
            "GET /a HTTP/1.1\r\nHOST:a:80\r\nX:\t \r\nY: \u{e9}\r\n\r\n",
            "GET /a",
        ),
        (
            "GET /a?b={c|d}[e] HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
            "GET /a?b={c|d}[e]",
        ),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS *"),
        ("GET http://b/c HTTP/1.1\r\nHost: a\r\n\r\n", "GET /c"),
        ("PURGE-X /a HTTP/1.1\r\nHost: a\r\n\r\n", "PURGE-X /a"),
        (
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 000\r\n\r\n",
            "POST /a",
        ),
    ];
    let mut client = server.connect().await;
    for (bytes, line) in cases {
        client.send(bytes).await;
        assert_eq!(client.answer().await.body, line.as_bytes(), "{bytes}");
    }
    client
        .send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n")
        .await;
    client
        .send("002;a=\"b\"\r\nhi\r\nA ;x\r\n0123456789\r\n000\r\nx: y\r\nz:\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.body, b"hi0123456789");
    assert_eq!(
        server.requests().pop().unwrap(),
        "POST /echo hi0123456789 2"
    );
}

#[tokio::test]
async fn a_section_over_its_bounds_is_431_and_a_target_414() {
    let server = TestServer::start(spec());
    let many = "x: y\r\n".repeat(100);
    let cases = [
        (
            format!(
                "GET / HTTP/1.1\r\nHost: a\r\nx: {}\r\n\r\n",
                "y".repeat(16 * 1024)
            ),
            431,
        ),
        (
            format!(
                "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
                "abcdefg: hijklmn\r\n".repeat(2000)
            ),
            431,
        ),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431),
        (
            format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "y".repeat(8 * 1024)),
            414,
        ),
        (format!("GET /{}", "y".repeat(9 * 1024)), 414),
        ("y".repeat(20 * 1024), 414),
    ];
    for (bytes, status) in cases {
        let mut client = server.connect().await;
        client.send(&bytes).await;
        assert_eq!(client.answer().await.status, status, "{}", &bytes[..40]);
        client.closed().await;
    }
    assert_eq!(server.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_section_just_within_its_bounds_is_handled() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    let many = "x: y\r\n".repeat(99);
    client
        .send(format!("GET /many HTTP/1.1\r\nHost: a\r\n{many}\r\n"))
        .await;
    assert_eq!(client.answer().await.status, 200);
    let frame = "GET /full HTTP/1.1\r\nHost: a\r\nx: \r\n\r\n".len();
    client
        .send(format!(
            "GET /full HTTP/1.1\r\nHost: a\r\nx: {}\r\n\r\n",
            "y".repeat(16 * 1024 - frame)
        ))
        .await;
    assert_eq!(client.answer().await.status, 200);
    client
        .send(format!(
            "GET /{} HTTP/1.1\r\nHost: a\r\n\r\n",
            "y".repeat(8 * 1024 - 1)
        ))
        .await;
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test]
async fn a_refused_head_request_gets_no_body() {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    client.send("HEAD / HTTP/1.1\r\n\r\n").await;
    let head = client.until_end().await;
    assert!(
        head.starts_with("HTTP/1.1 400 ") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
}

/// Bytes that look like HTTP, more or less.
fn almost_http() -> impl Strategy<Value = Vec<u8>> {
    let whole = prop::sample::select(vec![
        "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nx: y\r\n\r\n",
        "POST /deny HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /",
        "POST /deny HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\n",
        "GET /decline HTTP/1.1\r\nHost: a\r\nUpgrade: z\r\n\r\n",
        "HEAD /2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "\r\n",
    ]);
    let part = prop::sample::select(vec![
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "POST /deny HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\n",
        "Host: a\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\n",
        "hello",
        "5\r\nhello\r\n",
        "0\r\n\r\n",
        ":",
        "\0",
    ]);
    prop::collection::vec(prop_oneof![6 => whole, 1 => part], 0..12)
        .prop_map(|words| words.concat().into_bytes())
}

/// The handled requests, and why others were refused, of bytes that come in pieces which end
/// there. Then the client is done.
async fn made_of(bytes: &[u8], ends: &[usize]) -> (Vec<String>, Vec<Failure>) {
    let server = TestServer::start(spec());
    let mut client = server.connect().await;
    let mut sent = 0;
    for end in ends.iter().copied().chain([bytes.len()]) {
        // The server may have closed already: what it made of the rest is what counts.
        let _ = client.stream.write_all(&bytes[sent..end]).await;
        sent = end;
        tokio::task::yield_now().await;
    }
    let _ = client.stream.shutdown().await;
    let read = tokio::time::timeout(PATIENCE, client.stream.read_to_end(&mut client.buffer));
    assert!(read.await.is_ok(), "the server neither answers nor closes");
    let refused = server.seen.refused.lock().clone();
    (server.requests(), refused)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn requests_are_read_alike_however_their_bytes_are_split(
        bytes in almost_http(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (whole, refused) = runtime.block_on(made_of(&bytes, &[]));
        let (pieces, refused_of_pieces) = runtime.block_on(made_of(&bytes, &cuts));
        // A body that has not all arrived when it is denied ends the connection: then less is read,
        // and never other things. Stray bytes before a request become a part of its method.
        prop_assert!(whole.starts_with(&pieces) && refused_of_pieces.len() <= refused.len(), "{whole:?} {refused:?}, {pieces:?} {refused_of_pieces:?}");
        prop_assert!(pieces == whole || pieces.last().is_some_and(|last| last.ends_with("POST /deny")), "{whole:?} {pieces:?}");
    }
}
