//! Bodies that are large, slow or not HTTP any more pass through a running gateway as they come.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;
use tollgate_testing::pace;

use crate::process::Gateway;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

fn routes(upstream: SocketAddr) -> String {
    format!(
        "listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
upstreams: {{up: {{endpoints: ['http://{upstream}']}}}}
routes: [{{name: all, match: {{path: '/*'}}, upstream: up}}]
"
    )
}

/// Accepts one connection after the other and hands each to `serve` with its request's head.
fn upstream(
    serve: impl Fn(String, BufReader<TcpStream>) + Send + Sync + Clone + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = serve.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.unwrap());
                let head = read_head(&mut reader);
                serve(head, reader);
            });
        }
    });
    address
}

fn read_head(reader: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(
            reader.read_line(&mut head).unwrap() > 0,
            "closed within a head: {head:?}"
        );
    }
    head
}

fn length_of(head: &str) -> u64 {
    let lower = head.to_ascii_lowercase();
    lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap()
        .parse()
        .unwrap()
}

fn send_zeros(out: &mut impl Write, count: u64) {
    let chunk = vec![0; 256 * 1024];
    for _ in 0..count / chunk.len() as u64 {
        out.write_all(&chunk).unwrap();
    }
}

/// The most memory the gateway had while `work` ran.
fn peak_memory_during(gateway: &Gateway, work: impl FnOnce()) -> u64 {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = 0;
            while !done.load(Ordering::Relaxed) {
                peak = peak.max(gateway.memory());
                pace::pause(std::time::Duration::from_millis(10));
            }
            peak
        });
        work();
        done.store(true, Ordering::Relaxed);
        let peak = watcher.join().unwrap();
        assert!(peak > 0, "nobody looked while it ran");
        peak
    })
}

#[test]
fn a_gibibyte_passes_down_in_little_memory() {
    let address = upstream(|_, mut reader| {
        let stream = reader.get_mut();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {GIB}\r\n\r\n").unwrap();
        send_zeros(stream, GIB);
    });
    let gateway = Gateway::start(&routes(address));
    let peak = peak_memory_during(&gateway, || {
        let mut client = BufReader::new(TcpStream::connect(gateway.listeners[0]).unwrap());
        client
            .get_mut()
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        assert_eq!(length_of(&read_head(&mut client)), GIB);
        assert_eq!(
            std::io::copy(&mut client.take(GIB), &mut std::io::sink()).unwrap(),
            GIB
        );
    });
    assert!(peak < 40 * MIB, "{} MiB", peak / MIB);
}

#[test]
fn a_gibibyte_passes_up_in_little_memory() {
    let address = upstream(|head, mut reader| {
        let length = length_of(&head);
        let received =
            std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink()).unwrap();
        let text = received.to_string();
        write!(
            reader.get_mut(),
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        )
        .unwrap();
    });
    let gateway = Gateway::start(&routes(address));
    let peak = peak_memory_during(&gateway, || {
        let mut client = BufReader::new(TcpStream::connect(gateway.listeners[0]).unwrap());
        write!(
            client.get_mut(),
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {GIB}\r\n\r\n"
        )
        .unwrap();
        send_zeros(client.get_mut(), GIB);
        let length = length_of(&read_head(&mut client));
        let mut text = String::new();
        client.take(length).read_to_string(&mut text).unwrap();
        assert_eq!(text, GIB.to_string());
    });
    assert!(peak < 40 * MIB, "{} MiB", peak / MIB);
}

#[test]
fn an_event_arrives_while_the_next_one_is_not_sent_yet() {
    let (seen, go_on): (Sender<()>, Receiver<()>) = channel();
    let go_on = std::sync::Arc::new(std::sync::Mutex::new(go_on));
    let address = upstream(move |_, mut reader| {
        let stream = reader.get_mut();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            .unwrap();
        for event in ["one", "two", "three"] {
            let chunk = format!("{:x}\r\ndata: {event}\n\n\r\n", event.len() + 8);
            stream.write_all(chunk.as_bytes()).unwrap();
            go_on.lock().unwrap().recv().unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
    });
    let gateway = Gateway::start(&routes(address));
    let mut client = BufReader::new(TcpStream::connect(gateway.listeners[0]).unwrap());
    client
        .get_mut()
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n")
        .unwrap();
    read_head(&mut client);
    for event in ["one", "two", "three"] {
        let mut received = String::new();
        while received != format!("data: {event}\n\n") {
            received.push_str(&read_chunk(&mut client));
        }
        seen.send(()).unwrap();
    }
}

fn read_chunk(reader: &mut impl BufRead) -> String {
    let mut size = String::new();
    reader.read_line(&mut size).unwrap();
    let mut data = vec![0; usize::from_str_radix(size.trim_end(), 16).unwrap() + 2];
    reader.read_exact(&mut data).unwrap();
    data.truncate(data.len() - 2);
    String::from_utf8(data).unwrap()
}

#[test]
fn a_websocket_echoes() {
    tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(echo_through_a_websocket());
}

async fn echo_through_a_websocket() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() || message.is_binary() {
                socket.send(message).await.unwrap();
            }
        }
    });
    let gateway = Gateway::start(&routes(address));
    let url = format!("ws://{}/chat", gateway.listeners[0]);
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    for text in ["hello", "", &"x".repeat(100_000)] {
        socket.send(Message::text(text)).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(text));
    }
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    echo.await.unwrap();
}
