//! The admin port among clients that mean no good.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use tollgate_test_support::turns;

use crate::process::{Gateway, curl, status};

const ROUTES: &str = "
workers: 1
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
routes: [{name: all, match: {path: '/*'}, respond: {status: 200}}]
";

/// Connections that the port serves at once, half of them to one address.
const PLACES: usize = 256;

fn send(gateway: &Gateway, bytes: &[u8]) -> TcpStream {
    send_from(Ipv4Addr::LOCALHOST, gateway, bytes)
}

fn send_from(own: Ipv4Addr, gateway: &Gateway, bytes: &[u8]) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((own, 0)).into()).unwrap();
    socket.connect(&gateway.admin.into()).unwrap();
    let mut client = TcpStream::from(socket);
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    client.write_all(bytes).unwrap();
    client
}

/// All that the port says before it closes.
fn last_words(client: &mut TcpStream) -> String {
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn unfinished_requests_block_the_admin_port_for_seconds_only() {
    let _turn = turns::beside_others();
    let gateway = Gateway::start(ROUTES);
    let started = Instant::now();
    let half = b"GET /livez HTTP/1.1\r\nHost: a\r\nX-Slow: ";
    let addresses = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];
    let places = addresses.iter().cycle().take(PLACES);
    let mut slow: Vec<TcpStream> = places.map(|own| send_from(*own, &gateway, half)).collect();
    assert_eq!(status(&[&format!("http://{}/livez", gateway.admin)]), 200);
    assert!(started.elapsed() > Duration::from_secs(4), "no more than {PLACES} are served at once");
    for client in &mut slow {
        let answer = last_words(client);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    assert_eq!(gateway.metric("tollgate_connections"), 0.0, "these are no clients of the gateway");
}

#[test]
fn the_admin_port_refuses_ambiguous_requests() {
    let _turn = turns::beside_others();
    let gateway = Gateway::start(ROUTES);
    let smuggled = b"DELETE /buckets/x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = last_words(&mut send(&gateway, smuggled));
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("application/problem+json"), "{answer}");
    let target = "x".repeat(20_000);
    assert_eq!(status(&["-g", &format!("http://{}/{target}", gateway.admin)]), 414);
    assert_eq!(curl(&[&format!("http://{}/livez", gateway.admin)]), "live\n");
}
