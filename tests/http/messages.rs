//! Messages on their way through, in both versions of HTTP: targets, fields and trailers as each
//! side gets them.

use std::sync::Arc;

use crate::support::proxy_server::ProxyServer;
use http::header::TRAILER;
use parking_lot::Mutex;
use tollgate_testing::raw_http2::{
    DATA, END_HEADERS, END_STREAM, FrameClient, HEADERS, block, frame, request,
};
use tollgate_testing::upstream::{OK, RawConnection, ScriptedUpstream, values};

/// An upstream that answers every request with `response`, and what it has seen.
async fn recording(response: &'static str) -> (ScriptedUpstream, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let upstream = ScriptedUpstream::start(move |mut wire, _| {
        let record = Arc::clone(&record);
        async move {
            while let Some(head) = wire.try_head().await {
                let chunked = values(&head, "transfer-encoding") == ["chunked"];
                let body = if chunked {
                    wire.until(b"\r\n\r\n").await.unwrap()
                } else {
                    String::new()
                };
                record.lock().push(head + &body);
                wire.send(response).await;
            }
        }
    })
    .await;
    (upstream, seen)
}

/// The message that the upstream gets for a request of HTTP/1, with its status.
async fn over_http_1(head: &str) -> (u16, String) {
    let (upstream, seen) = recording(OK).await;
    let front = ProxyServer::to(&[upstream.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(head).await;
    let status = client.head().await[9..12].parse().unwrap();
    let seen = seen.lock().pop().unwrap_or_default();
    (status, seen)
}

/// The message that the upstream gets for a request of HTTP/2, with its status.
async fn over_http_2(fields: &[(&str, &str)]) -> (u16, String) {
    let (upstream, seen) = recording(OK).await;
    let front = ProxyServer::to(&[upstream.address]).await;
    let mut client = FrameClient::connect(front.address).await;
    client.request(1, END_STREAM, fields).await;
    let status = client.of_stream(1).await.status();
    let seen = seen.lock().pop().unwrap_or_default();
    (status, seen)
}

fn request_line(seen: &str) -> &str {
    seen.lines().next().unwrap_or_default()
}

#[tokio::test]
async fn an_absolute_target_becomes_the_path_that_it_stands_for() {
    for (sent, expected) in [
        ("GET http://b?q=1", "GET /?q=1 HTTP/1.1"),
        ("GET http://b", "GET / HTTP/1.1"),
        ("OPTIONS http://b", "OPTIONS * HTTP/1.1"),
        ("OPTIONS http://b/", "OPTIONS / HTTP/1.1"),
        ("OPTIONS http://b?q", "OPTIONS /?q HTTP/1.1"),
        ("GET HTTPS://b:81/x?y", "GET /x?y HTTP/1.1"),
    ] {
        let (status, seen) = over_http_1(&format!("{sent} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!((status, request_line(&seen)), (200, expected), "{sent}");
        assert!(values(&seen, "host")[0].starts_with('b'), "{seen}");
    }
    let (status, seen) = over_http_2(&request("OPTIONS", "*", &[])).await;
    assert_eq!((status, request_line(&seen)), (200, "OPTIONS * HTTP/1.1"));
}

#[tokio::test]
async fn a_query_arrives_as_browsers_leave_it() {
    let target = "/a|b?q=`[]{}|\\^'&r=$!*();:@,~";
    let (status, seen) = over_http_1(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
    assert_eq!(
        (status, request_line(&seen)),
        (200, &*format!("GET {target} HTTP/1.1"))
    );
    let (status, seen) = over_http_2(&request("GET", target, &[])).await;
    assert_eq!(
        (status, request_line(&seen)),
        (200, &*format!("GET {target} HTTP/1.1"))
    );
}

#[tokio::test]
async fn crumbs_of_a_cookie_count_as_one_field_and_arrive_as_one() {
    let crumbs: Vec<_> = (0..300).map(|n| format!("c{n}=1")).collect();
    let cookie = crumbs.join("; ");
    let lines: String = crumbs
        .iter()
        .map(|crumb| format!("Cookie: {crumb}\r\n"))
        .collect();
    let (status, seen) = over_http_1(&format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")).await;
    assert_eq!((status, values(&seen, "cookie")), (200, vec![&*cookie]));
    let fields: Vec<_> = crumbs.iter().map(|crumb| ("cookie", &**crumb)).collect();
    let (status, seen) = over_http_2(&request("GET", "/", &fields)).await;
    assert_eq!((status, values(&seen, "cookie")), (200, vec![&*cookie]));
}

/// Trailers, of which only the first may pass.
const TRAILERS: [(&str, &str); 7] = [
    ("x-sum", "1"),
    ("content-length", "2"),
    ("set-cookie", "a=b"),
    ("x-request-id", "theirs"),
    ("x_forwarded_for", "10.0.0.1"),
    ("authorization", "Basic x"),
    ("host", "b"),
];

/// The last chunk with the trailers, and the `Trailer` field that announces them.
fn chunked_trailers() -> (String, String) {
    let names = TRAILERS.map(|(name, _)| name).join(", ");
    let lines: String = TRAILERS
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    (format!("2\r\nhi\r\n0\r\n{lines}\r\n"), names)
}

#[tokio::test]
async fn no_trailer_of_a_request_passes_that_belongs_before_the_content() {
    let (body, names) = chunked_trailers();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: {names}\r\n\r\n"
    );
    let (status, seen) = over_http_1(&format!("{head}{body}")).await;
    assert_eq!(status, 200);
    assert!(seen.ends_with("2\r\nhi\r\n0\r\nx-sum: 1\r\n\r\n"), "{seen}");

    let (upstream, seen) = recording(OK).await;
    let front = ProxyServer::to(&[upstream.address]).await;
    let mut client = FrameClient::connect(front.address).await;
    client
        .request(1, 0, &request("POST", "/", &[(TRAILER.as_str(), &names)]))
        .await;
    client.send(frame(DATA, 0, 1, b"hi")).await;
    client
        .send(frame(
            HEADERS,
            END_STREAM | END_HEADERS,
            1,
            &block(&TRAILERS),
        ))
        .await;
    assert_eq!(client.of_stream(1).await.status(), 200);
    let seen = seen.lock().pop().unwrap();
    assert!(seen.ends_with("2\r\nhi\r\n0\r\nx-sum: 1\r\n\r\n"), "{seen}");
}

#[tokio::test]
async fn no_trailer_of_a_response_passes_that_belongs_before_the_content() {
    let upstream = ScriptedUpstream::start(|mut wire, _| async move {
        while wire.try_head().await.is_some() {
            let (body, names) = chunked_trailers();
            let head = format!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: {names}\r\n\r\n"
            );
            wire.send(head + &body).await;
        }
    })
    .await;
    let front = ProxyServer::to(&[upstream.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te\r\n\r\n")
        .await;
    client.head().await;
    assert_eq!(
        client.until(b"\r\n\r\n").await.unwrap(),
        "2\r\nhi\r\n0\r\nx-sum: 1\r\n\r\n"
    );

    let mut client = FrameClient::connect(front.address).await;
    client
        .request(1, END_STREAM, &request("GET", "/", &[("te", "trailers")]))
        .await;
    assert_eq!(client.of_stream(1).await.status(), 200);
    let mut last = client.of_stream(1).await;
    while !last.ends_stream() {
        last = client.of_stream(1).await;
    }
    assert_eq!(last.kind, HEADERS);
    // A field whose name and value have less than 16 bytes.
    assert!(last.payload.len() < 16, "{last:?}");
}

/// The head of a response of the upstream, as a client of HTTP/1 sees it.
async fn relayed(response: &'static str) -> String {
    let (upstream, _) = recording(response).await;
    let front = ProxyServer::to(&[upstream.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.head().await
}

#[tokio::test]
async fn a_204_has_no_length() {
    const RESPONSE: &str = "HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n";
    assert_eq!(values(&relayed(RESPONSE).await, "content-length"), [""; 0]);
    let upstream = ScriptedUpstream::answering(RESPONSE).await;
    let front = ProxyServer::to(&[upstream.address]).await;
    let curl = tokio::process::Command::new("curl")
        .args([
            "-sS",
            "-i",
            "--http2-prior-knowledge",
            &format!("http://{}/", front.address),
        ])
        .output();
    let head = String::from_utf8(curl.await.unwrap().stdout).unwrap();
    assert!(head.starts_with("HTTP/2 204"), "{head}");
    assert!(!head.contains("content-length"), "{head}");
}

#[tokio::test]
async fn a_426_says_to_which_protocol() {
    let response = "HTTP/1.1 426 Upgrade Required\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
                    content-length: 0\r\n\r\n";
    let head = relayed(response).await;
    assert_eq!(
        (values(&head, "upgrade"), values(&head, "connection")),
        (vec!["websocket"], vec!["upgrade"])
    );
    // Another status says nothing of the kind: the field is for one connection only.
    let head = relayed(
        "HTTP/1.1 200 OK\r\nupgrade: h2c\r\nconnection: upgrade\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    assert_eq!(values(&head, "upgrade"), [""; 0]);
}
