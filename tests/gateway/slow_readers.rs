//! Clients that read slowly without a pause. The kernel tells the gateway late, and in large steps,
//! what they have taken.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpSocket, UnixStream};
use tokio::time::{Interval, interval, timeout};
use tollgate_testing::topology::CertificateAuthority;

use crate::process::Gateway;

/// More than the kernel holds for a client.
const LENGTH: usize = 64 << 20;

/// Some times `body_timeout`.
const A_WHILE: Duration = Duration::from_secs(7);

/// Between two reads.
const PAUSE: Duration = Duration::from_millis(100);

/// Within `body_timeout`, so much is less than what the kernel waits for before it says so: a third
/// of its buffer over TCP, three quarters over a Unix socket.
const TCP_PIECE: usize = 30 * 1024;
const UNIX_PIECE: usize = 9 * 1024;

/// A stream that is read slowly.
struct SlowReader<S> {
    stream: S,
    pauses: Interval,
    piece: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for SlowReader<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.pauses.poll_tick(cx));
        let mut piece = vec![0; self.piece.min(buf.remaining())];
        let mut read = ReadBuf::new(&mut piece);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
        buf.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SlowReader<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// An upstream whose responses are long.
fn long_responses() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                let read = stream.read(&mut [0; 4096]).unwrap();
                assert!(read > 0);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
                // The gateway closes the connection when its client leaves.
                let _ = stream.write_all(&[head.as_bytes(), &vec![b'x'; LENGTH]].concat());
            });
        }
    });
    address
}

fn slow<S>(stream: S, piece: usize) -> SlowReader<S> {
    SlowReader {
        stream,
        pauses: interval(PAUSE),
        piece,
    }
}

async fn connect(address: SocketAddr) -> SlowReader<tokio::net::TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    // Set, it does not grow: what the client does not read waits at the gateway.
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    slow(socket.connect(address).await.unwrap(), TCP_PIECE)
}

/// How a response ends that is read for a while. `None`: it goes on.
async fn http1(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Option<String> {
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await
        .unwrap();
    let (mut piece, mut read) = (vec![0; 64 * 1024], 0);
    let reading = async {
        loop {
            match stream.read(&mut piece).await {
                Ok(0) => return format!("the end after {read} bytes"),
                Ok(count) => read += count,
                Err(error) => return format!("{error} after {read} bytes"),
            }
        }
    };
    timeout(A_WHILE, reading).await.ok()
}

/// Like `http1`, for a client of HTTP/2 that opens its windows wide.
async fn http2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Option<String> {
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size((1 << 31) - 1)
        .initial_connection_window_size((1 << 31) - 1);
    let (mut sender, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("http://a.example/").body(()).unwrap();
    let (response, _) = sender.send_request(request, true).unwrap();
    let reading = async {
        let mut body = match response.await {
            Ok(response) => response.into_body(),
            Err(error) => return format!("{error} before the response"),
        };
        let mut read = 0;
        loop {
            match body.data().await {
                None => return format!("the end after {read} bytes"),
                Some(Ok(data)) => read += data.len(),
                Some(Err(error)) => return format!("{error} after {read} bytes"),
            }
        }
    };
    timeout(A_WHILE, reading).await.ok()
}

#[tokio::test]
async fn clients_that_read_slowly_and_steadily_are_not_cut_off() {
    let authority = CertificateAuthority::create();
    authority.issue("a", "DNS:a.example");
    let folder = authority
        .path("ca.pem")
        .with_file_name("")
        .display()
        .to_string();
    let folder = folder.trim_end_matches('/');
    let (socket, upstream) = (format!("{folder}/http.sock"), long_responses());
    let gateway = Gateway::start(&format!(
        "workers: 1
listeners:
  - {{address: 127.0.0.1:0, body_timeout: 2s}}
  - {{address: 127.0.0.1:0, body_timeout: 2s, min_body_rate: 20000/s}}
  - {{address: 127.0.0.1:0, body_timeout: 2s, tls: {{certificates: [{{cert: {folder}/a.pem, key: {folder}/a.key}}]}}}}
  - {{address: 'unix:{socket}', body_timeout: 2s}}
admin: {{address: '127.0.0.1:0'}}
upstreams: {{u: {{endpoints: ['http://{upstream}']}}}}
routes: [{{name: long, upstream: u}}]
"
    ));
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(&authority.pem("ca.pem")).unwrap())
        .unwrap();
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let [clear, with_rate, tls] = [0, 1, 2].map(|at| gateway.listeners[at]);
    let over_tls = async || {
        let stream = connector
            .connect("a.example".try_into().unwrap(), connect(tls).await)
            .await
            .unwrap();
        http1(stream).await
    };
    let over_unix = async || {
        http1(slow(
            UnixStream::connect(&socket).await.unwrap(),
            UNIX_PIECE,
        ))
        .await
    };
    let ends = tokio::join!(
        async { http1(connect(clear).await).await },
        async { http1(connect(with_rate).await).await },
        over_tls(),
        over_unix(),
        async { http2(connect(clear).await).await },
        async { http2(connect(with_rate).await).await },
    );
    assert_eq!(ends, (None, None, None, None, None, None));
}
