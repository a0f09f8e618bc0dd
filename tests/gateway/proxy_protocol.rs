//! The PROXY protocol on listeners, from curl and from bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use tollgate_testing::PATIENCE;
use tollgate_testing::topology::CertificateAuthority;

use crate::process::{Gateway, eventually};

fn start(trusted: &str) -> Gateway {
    start_with(trusted, "header_timeout: 1s")
}

fn start_with(trusted: &str, more: &str) -> Gateway {
    Gateway::start(&format!(
        "workers: 1
trusted_proxies: [{trusted}]
listeners: [{{address: '127.0.0.1:0', proxy_protocol: true, {more}}}]
admin: {{address: '127.0.0.1:0'}}
routes: [{{name: echo, echo: true}}]
"
    ))
}

/// The client that the gateway saw behind `header`. `None`: it closed the connection.
fn client(gateway: &Gateway, header: &[u8], fields: &str) -> Option<String> {
    let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n");
    stream
        .write_all(&[header, request.as_bytes()].concat())
        .unwrap();
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            panic!("the connection stays open")
        }
        _ => {}
    }
    let (_, rest) = answer.split_once("\"client\": \"")?;
    Some(rest.split('"').next().unwrap().to_owned())
}

fn connections(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&format!(
        "tollgate_proxy_protocol_connections_total{{outcome=\"{outcome}\"}}"
    ))
}

const V1: &[u8] = b"PROXY TCP4 203.0.113.7 198.51.100.1 40000 443\r\n";

#[test]
fn a_trusted_proxy_says_who_the_client_is() {
    let gateway = start("127.0.0.1");
    let v2 =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xcb\x00\x71\x08\xc6\x33\x64\x01\x9c\x40\x01\xbb";
    assert_eq!(client(&gateway, V1, "").as_deref(), Some("203.0.113.7"));
    assert_eq!(client(&gateway, v2, "").as_deref(), Some("203.0.113.8"));
    assert_eq!(
        client(&gateway, b"PROXY UNKNOWN\r\n", "").as_deref(),
        Some("127.0.0.1")
    );
    assert_eq!(
        client(&gateway, b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00", "").as_deref(),
        Some("127.0.0.1")
    );
    assert_eq!(connections(&gateway, "accepted"), 4.0);
    let output = Command::new("curl")
        .args(["-sS", "--haproxy-protocol", &gateway.url("/")])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"client\": \"127.0.0.1\""));
}

#[test]
fn a_client_that_a_proxy_names_has_as_many_connections_as_a_client_may() {
    let gateway = start_with("127.0.0.1", "max_connections_per_client: 2");
    let open = |header: &[u8]| {
        let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(&[header, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
        let is_served = stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0);
        is_served.then_some(stream)
    };
    let held: Vec<_> = (0..4).map(|_| open(V1)).collect();
    assert_eq!(
        held.iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, true, false, false]
    );
    assert_eq!(gateway.metric("tollgate_connections_refused_total"), 2.0);
    // Another client, a mapped address of the first, and the proxy itself.
    assert!(open(b"PROXY TCP4 203.0.113.8 198.51.100.1 40000 443\r\n").is_some());
    assert!(open(b"PROXY TCP6 ::ffff:203.0.113.7 ::1 40000 443\r\n").is_none());
    let own: Vec<_> = (0..4).map(|_| open(b"PROXY UNKNOWN\r\n")).collect();
    assert!(own.iter().all(Option::is_some));
    drop(held);
    eventually("there is room again", || open(V1));
}

#[test]
fn connections_that_have_sent_nothing_make_room_and_a_header_that_has_begun_does_not() {
    let gateway = start_with("127.0.0.1", "header_timeout: 60s, max_connections: 2");
    let mut begun = TcpStream::connect(gateway.listeners[0]).unwrap();
    begun.write_all(&V1[..9]).unwrap();
    eventually("it is accepted", || {
        (gateway.metric("tollgate_connections") == 1.0).then_some(())
    });
    let silent: Vec<_> = (0..4)
        .map(|_| TcpStream::connect(gateway.listeners[0]).unwrap())
        .collect();
    assert_eq!(client(&gateway, V1, "").as_deref(), Some("203.0.113.7"));
    assert_eq!(
        gateway.metric("tollgate_connections_closed_for_room_total"),
        4.0
    );
    // Nor has one whose header has come begun anything.
    let mut named = TcpStream::connect(gateway.listeners[0]).unwrap();
    named.write_all(V1).unwrap();
    assert_eq!(client(&gateway, V1, "").as_deref(), Some("203.0.113.7"));
    begun
        .write_all(
            &[
                &V1[9..],
                b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            ]
            .concat(),
        )
        .unwrap();
    begun.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = String::new();
    begun.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(silent);
}

#[test]
fn the_client_that_a_proxy_names_is_trusted_no_more_than_it_would_be_itself() {
    let gateway = start("127.0.0.1");
    let forged = "X-Forwarded-For: 192.0.2.99\r\n";
    assert_eq!(client(&gateway, V1, forged).as_deref(), Some("203.0.113.7"));
    // The proxy vouches for nobody: it may tunnel what a client wrote.
    for unnamed in [
        &b"PROXY UNKNOWN\r\n"[..],
        b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00",
    ] {
        assert_eq!(
            client(&gateway, unnamed, forged).as_deref(),
            Some("127.0.0.1")
        );
    }
}

#[test]
fn others_are_closed_unread() {
    let gateway = start("192.0.2.1");
    assert_eq!(client(&gateway, V1, ""), None);
    assert_eq!(
        (
            connections(&gateway, "untrusted"),
            connections(&gateway, "accepted")
        ),
        (1.0, 0.0)
    );
}

#[test]
fn a_connection_without_a_header_is_closed_without_an_answer() {
    let gateway = start("127.0.0.1");
    assert_eq!(client(&gateway, b"", ""), None);
    assert_eq!(
        client(&gateway, b"PROXY TCP4 1.1.1.1 2.2.2.2 1 99999\r\n", ""),
        None
    );
    let long = [&b"PROXY TCP4 "[..], &[b'1'; 500]].concat();
    assert_eq!(client(&gateway, &long, ""), None);
    eventually("all are counted", || {
        (connections(&gateway, "malformed") == 3.0).then_some(())
    });
}

#[test]
fn a_header_that_does_not_come_to_its_end_is_waited_for_as_long_as_a_head() {
    let gateway = start("127.0.0.1");
    for part in [&b""[..], &V1[..20], b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x40"] {
        let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(part).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    eventually("all are counted", || {
        (connections(&gateway, "timeout") == 3.0).then_some(())
    });
}

#[test]
fn the_header_comes_before_tls() {
    let authority = CertificateAuthority::create();
    authority.issue("a", "DNS:a.example");
    let folder = authority.path("ca.pem").with_file_name("");
    let gateway = Gateway::start(&format!(
        "workers: 1
trusted_proxies: [127.0.0.1]
listeners:
  - address: 127.0.0.1:0
    proxy_protocol: true
    tls: {{certificates: [{{cert: {0}/a.pem, key: {0}/a.key}}]}}
admin: {{address: '127.0.0.1:0'}}
routes: [{{name: echo, echo: true}}]
",
        folder.display()
    ));
    let port = gateway.listeners[0].port();
    let output = Command::new("curl")
        .args(["-sS", "--haproxy-protocol", "--cacert"])
        .arg(authority.path("ca.pem"))
        .args([
            "--resolve",
            &format!("a.example:{port}:127.0.0.1"),
            &format!("https://a.example:{port}/"),
        ])
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("\"client\": \"127.0.0.1\""),
        "{output:?}"
    );
}
