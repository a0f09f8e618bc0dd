//! How exchanges end that do not end well: a response that breaks off, an answer before the upload
//! has ended.

use std::time::Duration;

use crate::support::proxy_server::{ForwarderConfig, ProxyServer};
use crate::support::test_server::{TestServer, spec};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{sleep, timeout};
use tollgate_testing::PATIENCE;
use tollgate_testing::upstream::{RawConnection, ScriptedUpstream};

/// More than the kernel takes at once.
const LARGE: usize = 4_000_000;
/// A body that clients write before they read: more than all buffers on the way.
const UPLOAD: usize = 20_000_000;

const FRAMINGS: [&str; 2] = ["content-length: 9000000", "transfer-encoding: chunked"];

/// An upstream that sends a part of a response and closes.
async fn breaking_off(framing: &'static str) -> ScriptedUpstream {
    ScriptedUpstream::start(move |mut wire, _| async move {
        wire.head().await;
        wire.send(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n"))
            .await;
        if framing.ends_with("chunked") {
            wire.send(format!("{LARGE:x}\r\n")).await;
        }
        wire.send(vec![b'x'; LARGE]).await;
    })
    .await
}

#[tokio::test]
async fn what_came_of_a_response_that_breaks_off_is_delivered_before_the_close() {
    for framing in FRAMINGS {
        let upstream = breaking_off(framing).await;
        let front = ProxyServer::to(&[upstream.address]).await;
        let mut client = RawConnection::connect(front.address).await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        // In order: a reset would have discarded what the client had not read yet.
        let rest = read_to_end(&mut client.stream).await.unwrap();
        assert!(
            rest.iter().filter(|byte| **byte == b'x').count() >= LARGE - 4096,
            "{framing}: {}",
            rest.len()
        );
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{framing}");
    }
}

#[tokio::test]
async fn a_client_that_takes_the_close_for_the_end_sees_a_reset_after_what_came() {
    let upstream = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhalf.\r\n")
            .await;
    })
    .await;
    let front = ProxyServer::to(&[upstream.address]).await;
    let mut client = RawConnection::connect(front.address).await;
    client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
    assert!(
        client
            .until(b"half.")
            .await
            .unwrap()
            .starts_with("HTTP/1.0 200")
    );
    assert_eq!(
        read_to_end(&mut client.stream).await.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionReset
    );
}

#[tokio::test]
async fn a_client_of_http_2_gets_what_came_of_a_response_that_breaks_off_and_then_an_error() {
    for framing in FRAMINGS {
        let upstream = breaking_off(framing).await;
        let front = ProxyServer::to(&[upstream.address]).await;
        let stream = TcpStream::connect(front.address).await.unwrap();
        let (mut sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let request = http::Request::get("http://a/")
            .body(Empty::<Bytes>::new())
            .unwrap();
        let mut body = sender.send_request(request).await.unwrap().into_body();
        let mut received = 0;
        let end = loop {
            match timeout(PATIENCE, body.frame()).await.unwrap() {
                Some(Ok(frame)) => received += frame.data_ref().map_or(0, Bytes::len),
                end => break end,
            }
        };
        assert!(matches!(end, Some(Err(_))), "{framing}: it looks whole");
        assert!(received >= LARGE - 4096, "{framing}: {received}");
    }
}

async fn read_to_end(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut rest = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut rest))
        .await
        .map_err(std::io::Error::from)?
        .map(|_| rest)
}

#[tokio::test(start_paused = true)]
async fn a_response_may_pause_while_its_upload_moves() {
    const IDLE: Duration = Duration::from_secs(10);
    let upstream = ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
            .await;
        wire.exactly(50).await;
        wire.send("4\r\nlast\r\n0\r\n\r\n").await;
    })
    .await;
    let patient = |plan: &mut ForwarderConfig| plan.spec.idle_timeout = IDLE;
    let front = ProxyServer::with(&[upstream.address], patient).await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n")
        .await;
    client.until(b"first").await.unwrap();
    for _ in 0..5 {
        sleep(IDLE * 3 / 4).await;
        client.send("ten bytes.").await;
    }
    client.until(b"last\r\n0\r\n\r\n").await.unwrap();
}

/// An upstream that answers as soon as it has a head, and closes without reading the rest.
async fn answering_early() -> ScriptedUpstream {
    ScriptedUpstream::start(|mut wire, _| async move {
        wire.head().await;
        wire.send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nno\n")
            .await;
    })
    .await
}

#[tokio::test]
async fn a_client_that_writes_all_before_it_reads_gets_an_early_answer() {
    let server = TestServer::start(spec());
    let upstream = answering_early().await;
    let front = ProxyServer::to(&[upstream.address]).await;
    for (address, path, status) in [
        (server.address, "/deny", "429"),
        (front.address, "/", "413"),
    ] {
        for framing in ["length", "chunked"] {
            let mut client = TcpStream::connect(address).await.unwrap();
            let body = vec![b'x'; UPLOAD];
            let message = match framing {
                "length" => format!("Content-Length: {UPLOAD}\r\n\r\n"),
                _ => format!("Transfer-Encoding: chunked\r\n\r\n{UPLOAD:x}\r\n"),
            };
            let message = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{message}");
            let sent = async {
                client.write_all(message.as_bytes()).await?;
                client.write_all(&body).await
            };
            timeout(PATIENCE, sent)
                .await
                .expect("the server reads")
                .expect("the server keeps the connection");
            let answer = String::from_utf8(read_to_end(&mut client).await.unwrap()).unwrap();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{path} {framing}: {answer}"
            );
        }
    }
}

/// The status that a program prints. `arguments` come before the URL.
async fn status_of(program: &str, arguments: &[&str], url: String) -> String {
    let output = timeout(
        PATIENCE * 2,
        Command::new(program).args(arguments).arg(url).output(),
    );
    let output = output.await.unwrap().unwrap();
    assert!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn curl_and_python_get_an_early_answer_to_a_large_upload() {
    const PYTHON: &str = "import http.client, sys, urllib.parse\n\
                          url = urllib.parse.urlsplit(sys.argv[1])\n\
                          connection = http.client.HTTPConnection(url.netloc)\n\
                          connection.request('POST', url.path, body=b'x' * 20_000_000)\n\
                          print(connection.getresponse().status)";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![b'x'; UPLOAD]).unwrap();
    let data = format!("@{}", file.path().display());
    let server = TestServer::start(spec());
    let upstream = answering_early().await;
    let front = ProxyServer::to(&[upstream.address]).await;
    for (url, status) in [
        (format!("http://{}/deny", server.address), "429"),
        (format!("http://{}/", front.address), "413"),
    ] {
        let curl = [
            "-sS",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-H",
            "Expect:",
            "--data-binary",
            &data,
        ];
        assert_eq!(status_of("curl", &curl, url.clone()).await, status);
        assert_eq!(status_of("python3", &["-c", PYTHON], url).await, status);
    }
}
