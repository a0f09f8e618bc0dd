//! A client that writes raw bytes, and reads HTTP/1.1 responses.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::PATIENCE;

/// A client that writes raw bytes.
pub struct RawClient {
    pub stream: TcpStream,
    pub buffer: Vec<u8>,
}

/// A response as it came.
#[derive(Debug)]
pub struct RawResponse {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl RawResponse {
    /// A field's value; the first one where there are several.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn says_close(&self) -> bool {
        self.field("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

impl RawClient {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The next response, which must have a Content-Length (or none: 1xx).
    pub async fn answer(&mut self) -> RawResponse {
        let end = loop {
            if let Some(at) = memchr::memmem::find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            assert!(
                self.more().await > 0,
                "closed before an answer: {}",
                String::from_utf8_lossy(&self.buffer)
            );
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect()).unwrap();
        let status = head[9..12].parse().unwrap();
        let mut answer = RawResponse {
            status,
            head,
            body: Vec::new(),
        };
        let length = answer
            .field("content-length")
            .map_or(0, |length| length.parse().unwrap());
        while self.buffer.len() < length {
            assert!(self.more().await > 0, "closed within an answer");
        }
        answer.body = self.buffer.drain(..length).collect();
        answer
    }

    /// Asserts that the server has closed and sent nothing more.
    pub async fn closed(&mut self) {
        assert_eq!(self.until_end().await, "");
    }

    /// All that still comes, up to the end.
    pub async fn until_end(&mut self) -> String {
        while self.more().await > 0 {}
        String::from_utf8(std::mem::take(&mut self.buffer)).unwrap()
    }

    /// Reads. How much; 0: the server has closed.
    pub async fn more(&mut self) -> usize {
        let read = timeout(PATIENCE, self.stream.read_buf(&mut self.buffer)).await;
        read.expect("the server neither answered nor closed")
            .unwrap()
    }
}
