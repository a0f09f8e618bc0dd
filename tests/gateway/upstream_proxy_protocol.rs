//! The PROXY protocol to upstreams: to a server of bytes, and to nginx.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use tollgate_testing::PATIENCE;
use tollgate_testing::nginx::NginxServer;
use tollgate_testing::raw_http2::{END_STREAM, FrameClient, request};
use tollgate_testing::topology::CertificateAuthority;

use crate::process::{Gateway, curl};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Answers one request on each of so many connections. Returns what came before each.
fn answer(upstream: TcpListener, connections: usize) -> JoinHandle<Vec<Vec<u8>>> {
    thread::spawn(move || {
        let one = |_| {
            let (stream, _) = upstream.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut reader = BufReader::new(&stream);
            let mut header = vec![0; 16];
            reader.read_exact(&mut header).unwrap();
            let mut addresses = vec![0; usize::from(header[15])];
            reader.read_exact(&mut addresses).unwrap();
            header.extend(addresses);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert!(reader.read_line(&mut head).unwrap() > 0);
            }
            assert!(
                head.to_lowercase().contains("\r\nconnection: close\r\n"),
                "{head}"
            );
            (&stream)
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .unwrap();
            // It would take another request; none may come.
            assert_eq!(reader.read(&mut [0]).unwrap(), 0);
            header
        };
        (0..connections).map(one).collect()
    })
}

fn routes(upstream: SocketAddr, listener: &str) -> String {
    format!(
        "workers: 1
listeners: [{{address: '{listener}'}}]
admin: off
upstreams: {{up: {{endpoints: ['http://{upstream}'], proxy_protocol: v2}}}}
routes: [{{name: all, upstream: up}}]
"
    )
}

/// Sends a request and reads its answer.
fn ask(stream: &mut (impl Read + Write)) {
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\nok") {
        let mut some = [0; 1024];
        let length = stream.read(&mut some).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&some[..length]);
    }
}

#[test]
fn each_request_has_a_connection_that_begins_with_its_client() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(&routes(upstream.local_addr().unwrap(), "127.0.0.1:0"));
    let answered = answer(upstream, 3);
    let mut clients = [(); 2].map(|()| TcpStream::connect(gateway.listeners[0]).unwrap());
    let mut expected = Vec::new();
    for index in [0, 1, 0] {
        let client = &mut clients[index];
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        ask(client);
        let ports = [
            client.local_addr().unwrap().port(),
            gateway.listeners[0].port(),
        ]
        .map(u16::to_be_bytes);
        expected.push(
            [
                SIGNATURE,
                b"\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01",
                &ports.concat(),
            ]
            .concat(),
        );
    }
    assert_eq!(answered.join().unwrap(), expected);
}

#[test]
fn a_client_of_ipv4_is_named_so_on_a_socket_for_both() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(&routes(upstream.local_addr().unwrap(), "[::]:0"));
    let answered = answer(upstream, 1);
    let port = gateway.listeners[0].port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    ask(&mut client);
    let ports = [client.local_addr().unwrap().port(), port].map(u16::to_be_bytes);
    let expected = [
        SIGNATURE,
        b"\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01",
        &ports.concat(),
    ]
    .concat();
    assert_eq!(answered.join().unwrap(), [expected]);
}

#[test]
fn the_client_that_a_header_named_is_named_on() {
    for (header, named) in [
        ("PROXY TCP4 192.0.2.7 192.0.2.1 4321 80", true),
        ("PROXY UNKNOWN", false),
    ] {
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        let routes = routes(upstream.local_addr().unwrap(), "127.0.0.1:0");
        let routes = routes.replace(
            "listeners: [{",
            "trusted_proxies: [127.0.0.1]\nlisteners: [{proxy_protocol: true, ",
        );
        let gateway = Gateway::start(&routes);
        let answered = answer(upstream, 1);
        let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
            .write_all(format!("{header}\r\n").as_bytes())
            .unwrap();
        ask(&mut client);
        let port = gateway.listeners[0].port().to_be_bytes();
        let addresses = [
            b"\x21\x11\0\x0c\xc0\0\x02\x07\x7f\0\0\x01\x10\xe1",
            &port[..],
        ]
        .concat();
        let expected = if named { &addresses[..] } else { b"\x20\0\0\0" };
        assert_eq!(
            answered.join().unwrap(),
            [[SIGNATURE, expected].concat()],
            "{header}"
        );
    }
}

#[tokio::test]
async fn each_stream_of_a_client_of_http2_has_a_connection_of_its_own() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(&routes(upstream.local_addr().unwrap(), "127.0.0.1:0"));
    let answered = answer(upstream, 3);
    let mut client = FrameClient::connect(gateway.listeners[0]).await;
    for stream in [1, 3, 5] {
        client
            .request(stream, END_STREAM, &request("GET", "/", &[]))
            .await;
        assert_eq!(client.of_stream(stream).await.status(), 200);
    }
    let ports = [client.stream.local_addr().unwrap(), gateway.listeners[0]]
        .map(|end| end.port().to_be_bytes());
    let expected = [
        SIGNATURE,
        b"\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01",
        &ports.concat(),
    ]
    .concat();
    assert_eq!(answered.join().unwrap(), vec![expected; 3]);
}

#[test]
fn a_client_without_an_address_is_not_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("http.sock");
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = upstream.local_addr().unwrap();
    let _gateway = Gateway::start(&routes(address, &format!("unix:{}", path.display())));
    let answered = answer(upstream, 1);
    let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    ask(&mut client);
    assert_eq!(
        answered.join().unwrap(),
        [[SIGNATURE, b"\x20\0\0\0"].concat()]
    );
}

#[test]
fn nginx_reads_the_header_before_tls() {
    let authority = CertificateAuthority::create();
    authority.issue("server", "DNS:localhost");
    let path = |file: &str| authority.path(file).display().to_string();
    let said = "$proxy_protocol_addr:$proxy_protocol_port to $proxy_protocol_server_addr over $ssl_protocol";
    let server = NginxServer::start(
        "ssl http2 proxy_protocol",
        &format!(
            "ssl_protocols TLSv1.3; ssl_certificate {}; ssl_certificate_key {}; location / {{ return 200 '{said} in $server_protocol'; }}",
            path("server.pem"),
            path("server.key")
        ),
    );
    let gateway = Gateway::start(&format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: off
upstreams: {{up: {{endpoints: ['https://localhost:{}'], tls: {{ca: '{}'}}, proxy_protocol: v2}}}}
routes: [{{name: all, upstream: up}}]
",
        server.address.port(),
        path("ca.pem")
    ));
    let answer = curl(&[
        "-w",
        "\n127.0.0.1:%{local_port} to 127.0.0.1 over TLSv1.3 in HTTP/1.1",
        &gateway.url("/"),
    ]);
    let (seen, expected) = answer.split_once('\n').unwrap();
    assert_eq!(seen, expected);
}
