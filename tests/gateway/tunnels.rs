//! Tunnels, such as WebSockets: counted, logged, bounded and ended.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use bytes::Bytes;
use serde_json::Value;

use crate::process::{Gateway, eventually, status};
use tollgate_testing::PATIENCE;

/// An upstream that switches to a protocol in which everything is sent back, where it is asked to.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(stream));
        }
    });
    address
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    if !String::from_utf8_lossy(&head)
        .to_lowercase()
        .contains("upgrade: echo")
    {
        return stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    }
    stream.write_all(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\nhello",
    )?;
    std::io::copy(&mut stream.try_clone()?, &mut stream).map(drop)
}

/// An upstream of HTTP/2 that grants WebSockets in which everything is sent back.
fn upstream_of_http2() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                let mut server = h2::server::Builder::new();
                let mut connection = server
                    .enable_connect_protocol()
                    .handshake::<_, Bytes>(socket)
                    .await
                    .unwrap();
                tokio::spawn(async move {
                    while let Some(Ok((request, mut sender))) = connection.accept().await {
                        let stream = sender
                            .send_response(http::Response::new(()), false)
                            .unwrap();
                        tokio::spawn(send_back(request.into_body(), stream));
                    }
                });
            }
        });
    });
    address
}

async fn send_back(mut body: h2::RecvStream, mut stream: h2::SendStream<Bytes>) {
    while let Some(Ok(piece)) = body.data().await {
        stream.send_data(piece, false).unwrap();
    }
    let _ = stream.send_data(Bytes::new(), true);
}

fn gateway(more: &str, of_upstream: &str, of_route: &str) -> Gateway {
    gateway_before(
        &format!("http://{}", upstream()),
        more,
        of_upstream,
        of_route,
    )
}

fn gateway_before(endpoint: &str, more: &str, of_upstream: &str, of_route: &str) -> Gateway {
    Gateway::start(&format!(
        "workers: 1
access_log: json
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
upstreams: {{up: {{endpoints: ['{endpoint}']{of_upstream}}}}}
routes: [{{name: all, upstream: up{of_route}}}]
{more}
"
    ))
}

/// A tunnel through which its greeting has come.
fn tunnel(gateway: &Gateway) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
        .unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\nhello") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
    }
    assert!(read.starts_with(b"HTTP/1.1 101 "));
    stream
}

fn echo(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).unwrap();
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, text.as_bytes());
}

/// The line of the access log about the tunnel.
fn logged(gateway: &Gateway) -> Option<Value> {
    let log = gateway.log();
    let mut lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.find(|line| line["status"] == 101)
}

#[test]
fn a_tunnel_counts_to_its_end_and_is_logged_then() {
    let limits = "limits: {one: {key: {constant: all}, algorithm: concurrency, max_in_flight: 1}}";
    let gateway = gateway(limits, "", ", limits: [one]");
    let mut stream = tunnel(&gateway);
    echo(&mut stream, "some bytes");
    assert_eq!(gateway.metric("tollgate_tunnels"), 1.0);
    assert_eq!(gateway.metric("tollgate_requests_in_flight"), 1.0);
    assert_eq!(status(&[&gateway.url("/")]), 429);
    assert!(logged(&gateway).is_none());
    drop(stream);
    let line = eventually("the tunnel is logged", || logged(&gateway));
    assert_eq!(
        (&line["bytes"], &line["received_bytes"]),
        (&Value::from(15), &Value::from(10)),
        "{line}"
    );
    assert_eq!(
        (&line["complete"], &line["path"], &line["route"]),
        (&true.into(), &"/chat".into(), &"all".into())
    );
    assert!(line["duration_ms"].as_f64().unwrap() > 0.0, "{line}");
    assert_eq!(gateway.metric("tollgate_tunnels"), 0.0);
    assert_eq!(gateway.metric("tollgate_requests_in_flight"), 0.0);
    assert_eq!(status(&[&gateway.url("/")]), 200);
    // Latency is that of answers, not of conversations.
    assert_eq!(
        gateway.metric("tollgate_request_duration_seconds_count{route=\"all\"}"),
        2.0
    );
}

#[test]
fn a_tunnel_over_http_2_counts_and_is_logged_like_others() {
    let gateway = gateway_before(&format!("h2c://{}", upstream_of_http2()), "", "", "");
    let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(
        head.starts_with(b"HTTP/1.1 101 "),
        "{}",
        head.escape_ascii()
    );
    echo(&mut stream, "some bytes");
    assert_eq!(gateway.metric("tollgate_tunnels"), 1.0);
    assert_eq!(gateway.metric("tollgate_requests_in_flight"), 1.0);
    assert!(logged(&gateway).is_none());
    drop(stream);
    let line = eventually("the tunnel is logged", || logged(&gateway));
    assert_eq!(
        (&line["bytes"], &line["received_bytes"]),
        (&Value::from(10), &Value::from(10)),
        "{line}"
    );
    assert_eq!(
        (&line["complete"], &line["path"], &line["route"]),
        (&true.into(), &"/chat".into(), &"all".into())
    );
    assert_eq!(gateway.metric("tollgate_tunnels"), 0.0);
    assert_eq!(gateway.metric("tollgate_requests_in_flight"), 0.0);
    assert_eq!(
        gateway.metric("tollgate_upstream_connections{upstream=\"up\"}"),
        1.0
    );
}

#[test]
fn tunnels_count_as_requests_in_flight_unless_they_are_not_to() {
    for (file, expected) in [
        ("max_requests: 1", 503),
        ("max_requests: 1\ntunnels_count: false", 200),
    ] {
        let gateway = gateway(file, "", "");
        let mut streams = [tunnel(&gateway)];
        assert_eq!(status(&[&gateway.url("/")]), expected, "{file}");
        echo(&mut streams[0], "still there");
    }
}

#[test]
fn a_tunnel_without_a_byte_either_way_ends_after_its_idle_time() {
    let gateway = gateway("", ", tunnel_idle_timeout: 2s", "");
    let mut stream = tunnel(&gateway);
    echo(&mut stream, "a byte");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    let line = eventually("the tunnel is logged", || logged(&gateway));
    assert_eq!(
        (&line["complete"], &line["received_bytes"]),
        (&false.into(), &Value::from(6)),
        "{line}"
    );
}

#[test]
fn a_route_has_an_idle_time_of_its_own_for_tunnels() {
    let gateway = gateway(
        "",
        ", tunnel_idle_timeout: 1d",
        ", timeouts: {tunnel_idle: 2s}",
    );
    let mut stream = tunnel(&gateway);
    echo(&mut stream, "a byte");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    let line = eventually("the tunnel is logged", || logged(&gateway));
    assert_eq!(
        (&line["complete"], &line["received_bytes"]),
        (&false.into(), &Value::from(6)),
        "{line}"
    );
}

#[test]
fn a_tunnel_goes_on_in_a_drain_and_ends_at_its_deadline() {
    let mut gateway = gateway("drain_timeout: 5s", "", "");
    let mut stream = tunnel(&gateway);
    gateway.signal("TERM");
    eventually("it drains", || {
        gateway.log().contains("draining").then_some(())
    });
    eventually("nothing is accepted", || {
        TcpStream::connect(gateway.listeners[0])
            .is_err()
            .then_some(())
    });
    echo(&mut stream, "on and on");
    let mut rest = Vec::new();
    // An end, or a reset: what is cut is cut.
    let _ = stream.read_to_end(&mut rest);
    assert!(gateway.wait().success());
    let line = logged(&gateway).unwrap_or_else(|| panic!("not logged: {}", gateway.log()));
    assert_eq!(
        (&line["complete"], &line["received_bytes"]),
        (&false.into(), &Value::from(9)),
        "{line}"
    );
    let stopped = || gateway.log().contains("\"message\":\"stopped\",\"cut\":1");
    eventually("its last line has come", || stopped().then_some(()));
}
