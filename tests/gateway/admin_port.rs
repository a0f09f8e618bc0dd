//! The admin port among clients that mean no good.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use tollgate_testing::raw_http2::{END_STREAM, FrameClient, HEADERS};

use crate::process::{Gateway, curl, eventually, status};

const ROUTES: &str = "
workers: 1
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
routes: [{name: all, match: {path: '/*'}, respond: {status: 200}}]
";

/// Connections that the port serves at once.
const PLACES: usize = 768;

/// Those of one address.
const PLACES_OF_ONE: usize = 24;

/// The setting of HTTP/2 by which a client says how much of an answer it takes unasked (RFC 9113
/// §6.5.2).
const INITIAL_WINDOW_SIZE: u16 = 4;

fn send(gateway: &Gateway, bytes: &[u8]) -> TcpStream {
    send_from(Ipv4Addr::LOCALHOST, gateway, bytes)
}

fn send_from(own: Ipv4Addr, gateway: &Gateway, bytes: &[u8]) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((own, 0)).into()).unwrap();
    socket.connect(&gateway.admin.into()).unwrap();
    let mut client = TcpStream::from(socket);
    client
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    client.write_all(bytes).unwrap();
    client
}

/// A connection with half a request, unless the port refuses it.
fn connect_from(own: Ipv4Addr, gateway: &Gateway) -> Option<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((own, 0)).into()).unwrap();
    socket.connect(&gateway.admin.into()).ok()?;
    let mut client = TcpStream::from(socket);
    client
        .write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        .ok()?;
    Some(client)
}

/// All that the port says before it closes.
fn last_words(client: &mut TcpStream) -> String {
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn unfinished_requests_block_the_admin_port_for_seconds_only() {
    let gateway = Gateway::start(ROUTES);
    let started = Instant::now();
    let half = b"GET /livez HTTP/1.1\r\nHost: a\r\nX-Slow: ";
    let addresses = (0..PLACES).map(|place| 2 + u8::try_from(place / PLACES_OF_ONE).unwrap());
    let mut slow: Vec<TcpStream> = addresses
        .map(|last| send_from(Ipv4Addr::new(127, 0, 0, last), &gateway, half))
        .collect();
    assert_eq!(status(&[&format!("http://{}/livez", gateway.admin)]), 200);
    assert!(
        started.elapsed() > Duration::from_secs(4),
        "no more than {PLACES} are served at once"
    );
    for client in &mut slow {
        let answer = last_words(client);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    assert_eq!(
        gateway.metric("tollgate_connections"),
        0.0,
        "these are no clients of the gateway"
    );
}

#[test]
fn a_few_addresses_do_not_hold_all_connections() {
    let gateway = Gateway::start(ROUTES);
    let addresses =
        (0..300_u16).map(|place| Ipv4Addr::new(127, 0, 0, if place % 2 == 0 { 2 } else { 3 }));
    let held: Vec<Option<TcpStream>> = addresses.map(|own| connect_from(own, &gateway)).collect();
    assert_eq!(status(&[&format!("http://{}/livez", gateway.admin)]), 200);
    for mut client in held.into_iter().flatten() {
        client.set_nonblocking(true).unwrap();
        let answer = client.read(&mut [0; 64]);
        assert!(
            !matches!(answer, Ok(1..)),
            "nobody has waited for the end of one"
        );
    }
}

/// The statuses of the answers to `count` requests for `path` on one connection, of whose content
/// the client takes nothing.
async fn untaken_answers(gateway: &Gateway, path: &str, count: u32) -> (FrameClient, Vec<u16>) {
    let mut client = FrameClient::with_settings(gateway.admin, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "127.0.0.1"),
        (":path", path),
    ];
    for stream in 0..count {
        client.request(2 * stream + 1, END_STREAM, &fields).await;
    }
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(client.next(HEADERS).await.status());
    }
    (client, statuses)
}

#[tokio::test]
async fn answers_that_a_client_does_not_take_are_few() {
    let gateway = Gateway::start(ROUTES);
    for (path, most) in [("/metrics", 2), ("/", 32)] {
        let (client, statuses) = untaken_answers(&gateway, path, 100).await;
        let answered = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!((answered, statuses.len()), (most, 100), "{path}");
        assert!(
            statuses.iter().all(|status| [200, 503].contains(status)),
            "{path}: {statuses:?}"
        );
        let url = |path: &str| format!("http://{}{path}", gateway.admin);
        let refused = curl(&["-i", &url(path)]);
        assert!(
            refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after: 1\r\n"),
            "{path}: {refused}"
        );
        assert_eq!(
            status(&[&url("/livez")]),
            200,
            "probes are answered all the same"
        );
        assert_eq!(
            status(&["--interface", "127.0.0.2", &url(path)]),
            200,
            "{path}: others have their own share"
        );
        drop(client);
        eventually("what it held is given back", || {
            (status(&[&url(path)]) == 200).then_some(())
        });
    }
}

#[test]
fn behind_a_trusted_proxy_each_client_has_a_share() {
    let gateway = Gateway::start(&format!("trusted_proxies: [127.0.0.1]\n{ROUTES}"));
    let slow = b"GET /metrics HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.1\r\n\r\n";
    let held: Vec<Option<TcpStream>> = (0..140)
        .map(|_| connect_from(Ipv4Addr::LOCALHOST, &gateway))
        .collect();
    let mut more = send(&gateway, slow);
    let mut first = [0; 15];
    more.read_exact(&mut first).unwrap();
    assert_eq!(
        &first, b"HTTP/1.1 200 OK",
        "a proxy has more connections than a client"
    );
    drop(held);
}

#[test]
fn the_admin_port_refuses_ambiguous_requests() {
    let gateway = Gateway::start(ROUTES);
    let smuggled = b"DELETE /buckets/x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = last_words(&mut send(&gateway, smuggled));
    assert!(
        answer.starts_with("HTTP/1.1 400 ") && answer.contains("application/problem+json"),
        "{answer}"
    );
    let target = "x".repeat(20_000);
    assert_eq!(
        status(&["-g", &format!("http://{}/{target}", gateway.admin)]),
        414
    );
    assert_eq!(
        curl(&[&format!("http://{}/livez", gateway.admin)]),
        "live\n"
    );
}
