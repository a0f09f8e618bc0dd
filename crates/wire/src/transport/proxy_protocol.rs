//! The PROXY protocol, versions 1 and 2: the header in which a proxy in front names the client,
//! before anything else. Headers to upstreams have version 2.
//!
//! Guarantees that a header is read whole and within bounds, and that no byte behind it is lost.

use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::{Buf, BytesMut};
use ppp::v1::Addresses as V1Addresses;
use ppp::v2::{
    AddressFamily, Addresses as V2Addresses, Builder, Command, PROTOCOL_PREFIX, Protocol, Version,
};
use ppp::{v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::peer::SocketPair;

/// Longest header of version 1, line end included.
const MAX_V1: usize = 107;
/// Length of a header of version 2 before its addresses; the last two bytes are the length of the
/// addresses.
const MINIMUM_LENGTH: usize = 16;
/// Longest header of version 2: addresses take 216 bytes at most, certificates and other extensions
/// some hundreds.
const MAX_V2: usize = 4096;

/// The client of a connection, as the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxiedClient {
    At(SocketAddr),
    /// The proxy itself (LOCAL), or a client without an IP address (UNKNOWN, UNIX).
    Unnamed,
}

/// The reason why a header could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ProxyHeaderError {
    #[error("the header of the PROXY protocol is malformed or missing")]
    Malformed,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A header of version 2 for a connection on behalf of a client. `None`: a client without an IP
/// address, whose connection counts as the gateway's own (LOCAL).
///
/// # Errors
/// None: addresses always fit.
pub fn v2_header(sockets: Option<&SocketPair>) -> io::Result<Vec<u8>> {
    let Some(&SocketPair { client, server }) = sockets else {
        return Builder::new(
            Version::Two | Command::Local,
            AddressFamily::Unspecified | Protocol::Unspecified,
        )
        .build();
    };
    let addresses = if client.is_ipv4() == server.is_ipv4() {
        (client, server)
    } else {
        (mapped(client), mapped(server))
    };
    Builder::with_addresses(Version::Two | Command::Proxy, Protocol::Stream, addresses).build()
}

/// An IPv4 address as an IPv6 one: both addresses of a header have one family.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Reads a header. Leaves the bytes behind it in `read`.
///
/// # Errors
/// There is no header, or the connection ends within it.
pub async fn read_header(
    stream: &mut (impl AsyncRead + Unpin),
    read: &mut BytesMut,
) -> Result<ProxiedClient, ProxyHeaderError> {
    loop {
        if let Some((client, length)) = parse(read)? {
            read.advance(length);
            return Ok(client);
        }
        read.reserve(MAX_V1);
        if stream.read_buf(read).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}

/// The header at the beginning of `bytes`, and its length. `None`: more bytes are needed.
fn parse(bytes: &[u8]) -> Result<Option<(ProxiedClient, usize)>, ProxyHeaderError> {
    match bytes.first() {
        None => Ok(None),
        Some(b'P') => parse_v1(bytes),
        Some(_) => parse_v2(bytes),
    }
}

fn parse_v1(bytes: &[u8]) -> Result<Option<(ProxiedClient, usize)>, ProxyHeaderError> {
    let start = &bytes[..bytes.len().min(MAX_V1)];
    let known = v1::PROTOCOL_PREFIX.as_bytes();
    let compared = known.len().min(start.len());
    if start[..compared] != known[..compared] {
        return Err(ProxyHeaderError::Malformed);
    }
    let Some(line_end) = start.windows(2).position(|pair| pair == b"\r\n") else {
        return if start.len() == MAX_V1 {
            Err(ProxyHeaderError::Malformed)
        } else {
            Ok(None)
        };
    };
    let end = line_end + 2;
    let header = v1::Header::try_from(&bytes[..end]).map_err(|_| ProxyHeaderError::Malformed)?;
    let client = match header.addresses {
        V1Addresses::Tcp4(ip) => ProxiedClient::At((ip.source_address, ip.source_port).into()),
        V1Addresses::Tcp6(ip) => ProxiedClient::At((ip.source_address, ip.source_port).into()),
        V1Addresses::Unknown => ProxiedClient::Unnamed,
    };
    Ok(Some((client, end)))
}

fn parse_v2(bytes: &[u8]) -> Result<Option<(ProxiedClient, usize)>, ProxyHeaderError> {
    let compared = PROTOCOL_PREFIX.len().min(bytes.len());
    if bytes[..compared] != PROTOCOL_PREFIX[..compared] {
        return Err(ProxyHeaderError::Malformed);
    }
    if bytes.len() < MINIMUM_LENGTH {
        return Ok(None);
    }
    let length = MINIMUM_LENGTH + usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    if length > MAX_V2 {
        return Err(ProxyHeaderError::Malformed);
    }
    let Some(header) = bytes.get(..length) else {
        return Ok(None);
    };
    let header = v2::Header::try_from(header).map_err(|_| ProxyHeaderError::Malformed)?;
    let client = match (header.command, header.protocol, header.addresses) {
        (Command::Local, _, _) => ProxiedClient::Unnamed,
        (Command::Proxy, Protocol::Datagram, _) => return Err(ProxyHeaderError::Malformed),
        (_, _, V2Addresses::IPv4(ip)) => {
            ProxiedClient::At((ip.source_address, ip.source_port).into())
        }
        (_, _, V2Addresses::IPv6(ip)) => {
            ProxiedClient::At((ip.source_address, ip.source_port).into())
        }
        (_, _, V2Addresses::Unspecified | V2Addresses::Unix(_)) => ProxiedClient::Unnamed,
    };
    Ok(Some((client, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> ProxiedClient {
        ProxiedClient::At(address.parse().unwrap())
    }

    /// A header of version 2 with this command, family and payload.
    fn v2(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        [PROTOCOL_PREFIX, &[command, family], &length, payload].concat()
    }

    /// The client in a header that is sent byte by byte, and the bytes behind the header.
    async fn read(header: &[u8]) -> Result<(ProxiedClient, Vec<u8>), ProxyHeaderError> {
        let sent = [header, b"GET"].concat();
        let mut stream = tokio_test_stream(&sent);
        let mut read = BytesMut::new();
        let client = read_header(&mut stream, &mut read).await?;
        let mut rest = read.to_vec();
        stream.read_to_end(&mut rest).await?;
        Ok((client, rest))
    }

    fn tokio_test_stream(sent: &[u8]) -> impl AsyncRead + Unpin {
        sent.iter().fold(
            Box::new(tokio::io::empty()) as Box<dyn AsyncRead + Unpin>,
            |before, byte| Box::new(before.chain(io::Cursor::new(vec![*byte]))),
        )
    }

    #[tokio::test]
    async fn both_versions_name_the_client_and_leave_what_follows() {
        let four = [192, 0, 2, 1, 198, 51, 100, 1, 0x1f, 0x90, 0x01, 0xbb];
        let six = [
            &[0x20, 1, 0xd, 0xb8][..],
            &[0; 11],
            &[1],
            &[0; 16],
            &[0x1f, 0x90, 0x01, 0xbb],
        ]
        .concat();
        let extended = [&four[..], &[4, 0, 3, 1, 2, 3]].concat();
        for (header, client) in [
            (
                b"PROXY TCP4 192.0.2.1 198.51.100.1 8080 443\r\n".to_vec(),
                at("192.0.2.1:8080"),
            ),
            (
                b"PROXY TCP6 2001:db8::1 ::1 8080 443\r\n".to_vec(),
                at("[2001:db8::1]:8080"),
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), ProxiedClient::Unnamed),
            (
                b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n".to_vec(),
                ProxiedClient::Unnamed,
            ),
            (v2(0x21, 0x11, &four), at("192.0.2.1:8080")),
            (v2(0x21, 0x11, &extended), at("192.0.2.1:8080")),
            (v2(0x21, 0x21, &six), at("[2001:db8::1]:8080")),
            (v2(0x20, 0x00, &[]), ProxiedClient::Unnamed),
            (v2(0x20, 0x11, &four), ProxiedClient::Unnamed),
            (v2(0x21, 0x00, &[]), ProxiedClient::Unnamed),
            (v2(0x21, 0x31, &[0; 216]), ProxiedClient::Unnamed),
        ] {
            let (found, rest) = read(&header).await.unwrap();
            assert_eq!(
                (found, &*rest),
                (client, &b"GET"[..]),
                "{}",
                header.escape_ascii()
            );
        }
    }

    #[tokio::test]
    async fn anything_else_is_refused_within_bounds() {
        let long = [b"PROXY TCP4 ", &[b'1'; MAX_V1][..]].concat();
        for header in [
            b"GET / HTTP/1.1\r\n".to_vec(),
            b"POST / HTTP/1.1\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 198.51.100.1 8080\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 198.51.100.1 8080 99999\r\n".to_vec(),
            b"PROXY TCP4 ::1 ::1 8080 443\r\n".to_vec(),
            b"proxy TCP4 192.0.2.1 198.51.100.1 8080 443\r\n".to_vec(),
            b"\x16\x03\x01\x02\x00".to_vec(),
            long,
            v2(0x11, 0x11, &[0; 12]),
            v2(0x22, 0x11, &[0; 12]),
            v2(0x21, 0x12, &[0; 12]),
            v2(0x21, 0x11, &[0; 4]),
            v2(0x21, 0x11, &[0; MAX_V2]),
        ] {
            let refused = read(&header).await;
            assert!(
                matches!(refused, Err(ProxyHeaderError::Malformed)),
                "{}: {refused:?}",
                header.escape_ascii()
            );
        }
    }

    #[tokio::test]
    async fn a_header_that_is_written_is_read_as_it_was_meant() {
        for (sockets, client, length) in [
            (
                Some(pair("192.0.2.1:8080", "198.51.100.1:443")),
                at("192.0.2.1:8080"),
                28,
            ),
            (
                Some(pair("[2001:db8::1]:8080", "[::1]:443")),
                at("[2001:db8::1]:8080"),
                52,
            ),
            // Both addresses have one family.
            (
                Some(pair("192.0.2.1:8080", "[::1]:443")),
                at("[::ffff:192.0.2.1]:8080"),
                52,
            ),
            (
                Some(pair("[2001:db8::1]:8080", "198.51.100.1:443")),
                at("[2001:db8::1]:8080"),
                52,
            ),
            (None, ProxiedClient::Unnamed, 16),
        ] {
            let header = v2_header(sockets.as_ref()).unwrap();
            let (found, rest) = read(&header).await.unwrap();
            assert_eq!(
                (found, &*rest, header.len()),
                (client, &b"GET"[..], length),
                "{sockets:?}"
            );
        }
    }

    fn pair(client: &str, server: &str) -> SocketPair {
        SocketPair {
            client: client.parse().unwrap(),
            server: server.parse().unwrap(),
        }
    }

    #[test]
    fn a_part_of_a_header_is_waited_for() {
        let whole = v2(0x21, 0x11, &[1; 12]);
        assert!((0..whole.len()).all(|end| matches!(parse(&whole[..end]), Ok(None))));
        let whole = b"PROXY TCP4 192.0.2.1 198.51.100.1 8080 443\r\n";
        assert!((0..whole.len()).all(|end| matches!(parse(&whole[..end]), Ok(None))));
    }
}
