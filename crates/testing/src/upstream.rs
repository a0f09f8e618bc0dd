//! Servers and clients over real sockets, for tests. A server's own panic is raised again when it
//! is dropped.

use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::PATIENCE;

/// A short response that leaves its connection open.
pub const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A server that runs a script on each connection.
pub struct ScriptedUpstream {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    panic: Arc<Mutex<Option<String>>>,
    acceptor: JoinHandle<()>,
}

/// An end of a connection, spoken by hand.
pub struct RawConnection {
    pub stream: TcpStream,
    read: Vec<u8>,
}

impl ScriptedUpstream {
    /// `script` gets each connection with its number, from 0.
    pub async fn start<F, S>(script: F) -> Self
    where
        F: Fn(RawConnection, usize) -> S + Send + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let panic = Arc::new(Mutex::new(None));
        let count = Arc::clone(&connections);
        let failure = Arc::clone(&panic);
        let acceptor = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let conversation = script(
                    RawConnection::new(stream),
                    count.fetch_add(1, Ordering::SeqCst),
                );
                let failure = Arc::clone(&failure);
                tokio::spawn(async move {
                    if let Err(cause) = AssertUnwindSafe(conversation).catch_unwind().await {
                        let text = cause.downcast_ref::<String>().cloned();
                        let text =
                            text.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string));
                        *failure.lock().unwrap() = Some(text.unwrap_or_default());
                    }
                });
            }
        });
        Self {
            address,
            connections,
            panic,
            acceptor,
        }
    }

    /// Answers every request of every connection with `response`, once its head is read.
    pub async fn answering(response: &'static str) -> Self {
        Self::start(move |mut wire, _| async move {
            while wire.try_head().await.is_some() {
                wire.send(response).await;
            }
        })
        .await
    }

    /// Answers the first request of each connection with `response`, and closes it: to a client
    /// that keeps it, it is stale.
    pub async fn answering_once(response: &'static str) -> Self {
        Self::start(move |mut wire, _| async move {
            wire.head().await;
            wire.send(response).await;
        })
        .await
    }

    /// How many connections came.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for ScriptedUpstream {
    fn drop(&mut self) {
        self.acceptor.abort();
        if let Some(cause) = self.panic.lock().unwrap().take()
            && !std::thread::panicking()
        {
            panic!("the test's server panicked: {cause}");
        }
    }
}

impl RawConnection {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }

    pub async fn connect(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).await.unwrap())
    }

    pub async fn send(&mut self, text: impl AsRef<[u8]>) {
        self.stream.write_all(text.as_ref()).await.unwrap();
    }

    /// A header section, or `None` when the peer closed before one.
    pub async fn try_head(&mut self) -> Option<String> {
        self.until(b"\r\n\r\n").await
    }

    pub async fn head(&mut self) -> String {
        self.try_head()
            .await
            .expect("the peer closed before it sent a header section")
    }

    /// Everything up to and including `end`.
    pub async fn until(&mut self, end: &[u8]) -> Option<String> {
        loop {
            if let Some(at) = self
                .read
                .windows(end.len())
                .position(|window| window == end)
            {
                return Some(self.take(at + end.len()));
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// Everything until what came ends with `end`. Takes no time to look for it, however much that
    /// is.
    pub async fn ending(&mut self, end: &[u8]) -> Option<String> {
        while !self.read.ends_with(end) {
            if !self.more().await {
                return None;
            }
        }
        Some(self.take(self.read.len()))
    }

    pub async fn exactly(&mut self, count: usize) -> String {
        while self.read.len() < count {
            assert!(
                self.more().await,
                "the peer closed after {:?}",
                String::from_utf8_lossy(&self.read)
            );
        }
        self.take(count)
    }

    /// Everything until the peer closes.
    pub async fn rest(&mut self) -> String {
        while self.more().await {}
        self.take(self.read.len())
    }

    fn take(&mut self, count: usize) -> String {
        String::from_utf8(self.read.drain(..count).collect()).unwrap()
    }

    /// `false`: the peer closed or reset the connection.
    async fn more(&mut self) -> bool {
        let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.read)).await;
        matches!(read.expect("the peer sends nothing"), Ok(count) if count > 0)
    }
}

/// The values of a field, in order.
pub fn values<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields
        .filter(|(field, _)| field.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
        .collect()
}
