//! A client that writes raw HTTP/2 frames, and reads them.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::PATIENCE;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

const HEADER_TABLE_SIZE: u16 = 1;

/// The text before the first frame.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A client that writes raw frames.
pub struct FrameClient {
    pub stream: TcpStream,
    /// SETTINGS are acknowledged once they are read. Not by a server: tests say all that it sends.
    pub acknowledges: bool,
    buffer: Vec<u8>,
}

/// A frame as it came.
#[derive(Debug, PartialEq, Eq)]
pub struct RawFrame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header block of fields that no table remembers.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // HPACK's integers, with a prefix of 7 bits.
            match text.len().checked_sub(127) {
                None => block.push(u8::try_from(text.len()).unwrap()),
                Some(mut rest) => {
                    block.push(127);
                    while rest >= 128 {
                        block.push(u8::try_from(rest % 128 + 128).unwrap());
                        rest /= 128;
                    }
                    block.push(u8::try_from(rest).unwrap());
                }
            }
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// The fields of a request, with `more` behind them.
pub fn request<'a>(
    method: &'a str,
    path: &'a str,
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    [
        &[
            (":method", method),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", path),
        ],
        more,
    ]
    .concat()
}

impl RawFrame {
    /// The error code of a RST_STREAM or GOAWAY.
    pub fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    pub fn ends_stream(&self) -> bool {
        self.flags & END_STREAM != 0
    }

    /// The status of a response whose block begins with it, as that of every server does.
    pub fn status(&self) -> u16 {
        let block = match self.payload[..] {
            // The table's new size: none.
            [0x20, ref rest @ ..] => rest,
            ref block => block,
        };
        match block[0] {
            indexed @ 0x88..=0x8e => {
                [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)]
            }
            0x08 | 0x48 if block[1] & 0x80 == 0 => {
                std::str::from_utf8(&block[2..5]).unwrap().parse().unwrap()
            }
            0x08 | 0x48 => huffman_digits(&block[2..]),
            other => panic!("the block begins with {other:#x}"),
        }
    }
}

/// Three digits in HPACK's Huffman code: `0` to `2` have 5 bits, the others 6.
fn huffman_digits(bytes: &[u8]) -> u16 {
    let mut bits = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| u16::from(byte >> bit & 1)));
    (0..3).fold(0, |status, _| {
        let five = bits.by_ref().take(5).fold(0, |code, bit| code << 1 | bit);
        let digit = if five <= 2 {
            five
        } else {
            (five << 1 | bits.next().unwrap()) - 0x19 + 3
        };
        status * 10 + digit
    })
}

impl FrameClient {
    /// Connects, with its preface and SETTINGS.
    pub async fn connect(address: SocketAddr) -> Self {
        Self::with_settings(address, &[]).await
    }

    /// Connects, with its preface and these SETTINGS.
    pub async fn with_settings(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let mut client = Self::silent(address).await;
        // No table of fields: each response can be read by itself.
        let pairs = [(HEADER_TABLE_SIZE, 0)]
            .iter()
            .chain(settings)
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
        let payload: Vec<u8> = pairs.collect();
        client
            .send([PREFACE, &frame(SETTINGS, 0, 0, &payload)].concat())
            .await;
        client
    }

    /// Connects, and says nothing.
    pub async fn silent(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            acknowledges: true,
            buffer: Vec::new(),
        }
    }

    /// The server's side of a connection: reads the client's preface, and sends these SETTINGS.
    pub async fn accepted(stream: TcpStream, settings: &[(u16, u32)]) -> Self {
        stream.set_nodelay(true).unwrap();
        let mut server = Self {
            stream,
            acknowledges: false,
            buffer: Vec::new(),
        };
        let mut preface = [0; PREFACE.len()];
        server.stream.read_exact(&mut preface).await.unwrap();
        let pairs = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
        server
            .send(frame(SETTINGS, 0, 0, &pairs.collect::<Vec<u8>>()))
            .await;
        server
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends a request. `flags` besides END_HEADERS.
    pub async fn request(&mut self, stream: u32, flags: u8, fields: &[(&str, &str)]) {
        self.send(frame(HEADERS, END_HEADERS | flags, stream, &block(fields)))
            .await;
    }

    /// The next frame. `None`: the server has closed.
    pub async fn frame(&mut self) -> Option<RawFrame> {
        loop {
            if let Some(came) = self.take() {
                if self.acknowledges && came.kind == SETTINGS && came.flags & ACK == 0 {
                    // A server that has closed meanwhile is noticed by the next read.
                    let _ = self.stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await;
                }
                return Some(came);
            }
            let read = timeout(PATIENCE, self.stream.read_buf(&mut self.buffer)).await;
            match read.expect("the server neither answered nor closed") {
                Ok(1..) => {}
                _ => return None,
            }
        }
    }

    fn take(&mut self) -> Option<RawFrame> {
        let [high, middle, low, kind, flags, a, b, c, d, ..] = self.buffer[..] else {
            return None;
        };
        let end = 9 + u32::from_be_bytes([0, high, middle, low]) as usize;
        let payload = self.buffer.get(9..end)?.to_vec();
        self.buffer.drain(..end);
        Some(RawFrame {
            kind,
            flags,
            stream: u32::from_be_bytes([a, b, c, d]),
            payload,
        })
    }

    /// The next frame of `kind`. Others are skipped.
    pub async fn next(&mut self, kind: u8) -> RawFrame {
        loop {
            let frame = self.frame().await.expect("closed before such a frame");
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// The next frame of `stream`.
    pub async fn of_stream(&mut self, stream: u32) -> RawFrame {
        loop {
            let frame = self.frame().await.expect("closed before such a frame");
            if frame.stream == stream && frame.kind != WINDOW_UPDATE {
                return frame;
            }
        }
    }

    /// The code of the last GOAWAY before the server closes. `None`: there was none.
    pub async fn last_error(&mut self) -> Option<u32> {
        let mut last = None;
        while let Some(frame) = self.frame().await {
            if frame.kind == GOAWAY {
                last = Some(frame.code());
            }
        }
        last
    }
}
