//! HTTP/2 to upstreams: many exchanges on few connections, and what becomes of a request when a
//! stream or a connection ends.

pub mod endings;
mod lifetimes;
mod limits;
mod programs;
mod streams;
mod websocket;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::proxy_server::{ForwarderConfig, ProxyServer};
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tollgate_testing::raw_http2::FrameClient;
use tollgate_testing::upstream::RawConnection;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const POST: &str =
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";

/// A server of HTTP/2 without TLS. Stopped when dropped.
pub struct Http2Server {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    acceptor: JoinHandle<()>,
}

impl Http2Server {
    /// Each request is handled by `handler`, which gets it with the number of its connection.
    pub async fn start<F, S>(most_streams: u32, handler: F) -> Self
    where
        F: Fn(Request<RecvStream>, SendResponse<Bytes>, usize) -> S + Clone + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        Self::accepting(move |stream, number| {
            let handler = handler.clone();
            async move {
                let mut builder = h2::server::Builder::new();
                let mut connection = builder
                    .max_concurrent_streams(most_streams)
                    .handshake(stream)
                    .await
                    .unwrap();
                while let Some(Ok((request, sender))) = connection.accept().await {
                    tokio::spawn(handler(request, sender, number));
                }
            }
        })
        .await
    }

    /// Each connection is handled frame by frame.
    pub async fn raw<F, S>(settings: &'static [(u16, u32)], script: F) -> Self
    where
        F: Fn(FrameClient, usize) -> S + Clone + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        Self::accepting(move |stream, number| {
            let script = script.clone();
            async move { script(FrameClient::accepted(stream, settings).await, number).await }
        })
        .await
    }

    async fn accepting<F, S>(serve: F) -> Self
    where
        F: Fn(tokio::net::TcpStream, usize) -> S + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let acceptor = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, count.fetch_add(1, Ordering::SeqCst)));
            }
        });
        Self {
            address,
            connections,
            acceptor,
        }
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    async fn behind(&self) -> ProxyServer {
        self.behind_with(|_| {}).await
    }

    async fn behind_with(&self, change: impl FnOnce(&mut ForwarderConfig)) -> ProxyServer {
        ProxyServer::with(&[], |plan| {
            plan.spec.endpoints = vec![format!("h2c://{}", self.address).parse().unwrap()];
            change(plan);
        })
        .await
    }
}

impl Drop for Http2Server {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

/// Sends a response whose body goes on.
pub fn respond(sender: &mut SendResponse<Bytes>) -> SendStream<Bytes> {
    sender.send_response(Response::new(()), false).unwrap()
}

/// Answers 200 with `text`.
pub fn answer(mut sender: SendResponse<Bytes>, text: impl Into<Bytes>) {
    respond(&mut sender).send_data(text.into(), true).unwrap();
}

/// All of a body, with its trailers.
pub async fn whole(mut body: RecvStream) -> (Vec<u8>, Option<HeaderMap>) {
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        bytes.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len()).unwrap();
    }
    (bytes, body.trailers().await.unwrap())
}

/// The status and the body of the answer to `request`, which asks for the connection to be closed.
pub async fn exchange(front: &ProxyServer, request: &str) -> (String, String) {
    let mut client = RawConnection::connect(front.address).await;
    client.send(request).await;
    let head = client.head().await;
    let body = client.rest().await;
    let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    (
        head.split(' ').nth(1).unwrap().to_owned(),
        if is_chunked { content(&body) } else { body },
    )
}

/// The content of a body in chunks. One that is cut off ends in its last chunk's size.
fn content(mut chunks: &str) -> String {
    let mut content = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return content;
        }
        content.push_str(&rest[..size]);
        chunks = &rest[size + 2..];
    }
    content + " (cut off)"
}
