use std::future::poll_fn;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use tollgate_wire::http::min_rate::MinBodyRates;
use tollgate_wire::transport::{Stream, WriteHalf};

const REQUEST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";

/// A reader, its client, and the write half that must live as long.
async fn connected() -> (ClientReader, TcpStream, WriteHalf) {
    connected_with(BodyLag::default()).await
}

async fn connected_with(lag: BodyLag) -> (ClientReader, TcpStream, WriteHalf) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (read, write) = Stream::from(listener.accept().await.unwrap().0).into_split();
    let minute = Duration::from_secs(60);
    let spec = ListenerSpec {
        header_timeout: minute,
        keepalive_timeout: minute,
        body_timeout: minute,
        ..ListenerSpec::at(SocketAddr::from(([127, 0, 0, 1], 0)).into())
    };
    (
        ClientReader::new(read, ConnectionPermit::unlimited(), &spec, lag),
        client,
        write,
    )
}

async fn is_silent(reader: &mut ClientReader) -> bool {
    poll_fn(|cx| Poll::Ready(reader.poll_arrival(cx, false).is_pending())).await
}

/// Reads one request and its content.
async fn read(reader: &mut ClientReader) -> Vec<u8> {
    let Arrival::Head(length) = poll_fn(|cx| reader.poll_arrival(cx, false)).await else {
        panic!("no request")
    };
    reader.take_head(length, &mut Request::new(())).unwrap();
    let mut content = Vec::new();
    while let Some(frame) = poll_fn(|cx| reader.poll_content(cx)).await {
        content.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
    content
}

#[tokio::test]
async fn a_connection_that_waits_holds_no_buffer() {
    let (mut reader, mut client, _write) = connected().await;
    for _ in 0..3 {
        assert!(is_silent(&mut reader).await);
        assert_eq!(reader.read.capacity(), 0);
        client
            .write_all(format!("{REQUEST}abc").as_bytes())
            .await
            .unwrap();
        assert_eq!(read(&mut reader).await, b"abc");
    }
}

#[tokio::test]
async fn bytes_read_ahead_are_bounded() {
    let (mut reader, mut client, _write) = connected().await;
    let flood = tokio::spawn(async move { while client.write_all(&[b'x'; 4096]).await.is_ok() {} });
    while reader.read.len() < MAX_AHEAD {
        poll_fn(|cx| Poll::Ready(reader.poll_gone(cx).is_pending())).await;
        tokio::task::yield_now().await;
    }
    assert!(poll_fn(|cx| Poll::Ready(reader.poll_gone(cx).is_pending())).await);
    assert!(
        reader.read.len() <= MAX_AHEAD + buffers::LARGE,
        "{}",
        reader.read.len()
    );
    flood.abort();
}

#[tokio::test]
async fn unread_content_is_skipped_if_it_is_here_or_short_and_not_withheld() {
    for (head, content, worth) in [
        ("Content-Length: 3", "abc", true),
        ("Content-Length: 65536", "", true),
        ("Content-Length: 65537", "", false),
        ("Content-Length: 3\r\nExpect: 100-continue", "", false),
        ("Content-Length: 3\r\nExpect: 100-continue", "abc", true),
        ("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n", true),
        ("Transfer-Encoding: chunked", "3\r\nabc\r\n", false),
        ("Transfer-Encoding: chunked", "x", false),
    ] {
        let (mut reader, mut client, _write) = connected().await;
        client
            .write_all(format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n{content}").as_bytes())
            .await
            .unwrap();
        let Arrival::Head(length) = poll_fn(|cx| reader.poll_arrival(cx, false)).await else {
            panic!("no request")
        };
        reader.take_head(length, &mut Request::new(())).unwrap();
        assert_eq!(reader.can_skip_content(), worth, "{head} {content}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_content_does_not_count_for_the_next_header_section() {
    let (mut reader, mut client, _write) = connected().await;
    client.write_all(REQUEST.as_bytes()).await.unwrap();
    let Arrival::Head(length) = poll_fn(|cx| reader.poll_arrival(cx, false)).await else {
        panic!("no request")
    };
    reader.take_head(length, &mut Request::new(())).unwrap();
    assert!(poll_fn(|cx| Poll::Ready(reader.poll_content(cx).is_pending())).await);
    tokio::time::advance(Duration::from_secs(59)).await;
    // Nobody reads the content any more: it is only noticed that it is there.
    client.write_all(b"abcG").await.unwrap();
    while reader.read.len() < 4 {
        assert!(poll_fn(|cx| Poll::Ready(reader.poll_gone(cx).is_pending())).await);
        tokio::task::yield_now().await;
    }
    assert!(reader.can_skip_content());
    reader.begin_keepalive(clock::now());
    for _ in 0..2 {
        assert!(is_silent(&mut reader).await);
        tokio::time::advance(Duration::from_secs(30)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_time_in_which_content_is_awaited_counts_against_the_least_rate() {
    let (mut reader, mut client, _write) =
        connected_with(MinBodyRates::new(NonZeroU64::new(1)).request).await;
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
        .await
        .unwrap();
    let Arrival::Head(length) = poll_fn(|cx| reader.poll_arrival(cx, false)).await else {
        panic!("no request")
    };
    reader.take_head(length, &mut Request::new(())).unwrap();
    for _ in 0..3 {
        client.write_all(b"x").await.unwrap();
        poll_fn(|cx| reader.poll_content(cx))
            .await
            .unwrap()
            .unwrap();
        // Nobody reads: the upstream takes nothing, say.
        tokio::time::advance(Duration::from_secs(3_600)).await;
    }
    for _ in 0..2 {
        assert!(poll_fn(|cx| Poll::Ready(reader.poll_content(cx).is_pending())).await);
        tokio::time::advance(Duration::from_secs(25)).await;
        client.write_all(b"x").await.unwrap();
        poll_fn(|cx| reader.poll_content(cx))
            .await
            .unwrap()
            .unwrap();
    }
    // Behind by twice 25 seconds less one for each byte: 12 of the minute are left.
    let begun = clock::now();
    let failed = poll_fn(|cx| reader.poll_content(cx))
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(failed.downcast_ref(), Some(&BodyFailure::TooSlow));
    assert_eq!((clock::now() - begun).as_secs(), 12);
}

#[tokio::test(start_paused = true)]
async fn unread_content_has_one_limit_however_it_drips() {
    let (mut reader, mut client, _write) = connected().await;
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
        .await
        .unwrap();
    let Arrival::Head(length) = poll_fn(|cx| reader.poll_arrival(cx, false)).await else {
        panic!("no request")
    };
    reader.take_head(length, &mut Request::new(())).unwrap();
    let begun = clock::now();
    for _ in 0..2 {
        assert!(poll_fn(|cx| Poll::Ready(reader.poll_skip_content(cx).is_pending())).await);
        tokio::time::advance(Duration::from_secs(25)).await;
        client.write_all(b"x").await.unwrap();
    }
    assert!(!poll_fn(|cx| reader.poll_skip_content(cx)).await);
    assert_eq!((clock::now() - begun).as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn content_that_nobody_reads_any_more_is_not_behind() {
    let (mut reader, mut client, _write) =
        connected_with(MinBodyRates::new(NonZeroU64::new(1)).request).await;
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n")
        .await
        .unwrap();
    let Arrival::Head(length) = poll_fn(|cx| reader.poll_arrival(cx, false)).await else {
        panic!("no request")
    };
    reader.take_head(length, &mut Request::new(())).unwrap();
    assert!(poll_fn(|cx| Poll::Ready(reader.poll_content(cx).is_pending())).await);
    tokio::time::advance(Duration::from_secs(50)).await;
    client.write_all(b"x").await.unwrap();
    assert!(poll_fn(|cx| reader.poll_content(cx)).await.unwrap().is_ok());
    assert!(poll_fn(|cx| Poll::Ready(reader.poll_skip_content(cx).is_pending())).await);
    let begun = clock::now();
    assert!(!poll_fn(|cx| reader.poll_skip_content(cx)).await);
    assert_eq!(clock::now() - begun, Duration::from_secs(60));
}
