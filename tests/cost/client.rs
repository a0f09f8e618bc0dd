//! An upstream and a client of blocking sockets and fixed buffers: what is counted while they run
//! is the gateway's alone.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use tollgate_testing::answer_of;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: test\r\n\
    content-type: text/plain\r\ncontent-length: 12\r\n\r\nhello world\n";

/// Serves until the test's process ends.
pub fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || answer_all(stream));
        }
    });
    address
}

/// To requests without a body, one at a time: as many as a gateway sends.
fn answer_all(mut stream: TcpStream) {
    let (mut buffer, mut filled) = ([0; 8192], 0);
    while let Ok(read @ 1..) = stream.read(&mut buffer[filled..]) {
        filled += read;
        if buffer[..filled].ends_with(b"\r\n\r\n") {
            filled = 0;
            if stream.write_all(ANSWER).is_err() {
                return;
            }
        }
    }
}

/// A connection to the gateway.
pub struct BlockingClient {
    stream: TcpStream,
    buffer: Box<[u8; 8192]>,
}

impl BlockingClient {
    /// Connects as soon as somebody listens.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = answer_of("somebody listens", || TcpStream::connect(address).ok());
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Self {
            stream,
            buffer: Box::new([0; 8192]),
        }
    }

    /// The connection alone, without memory of its own.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Sends a request.
    pub fn send(&mut self, request: &[u8]) {
        self.stream.write_all(request).unwrap();
    }

    /// The answer's status, once all of it is there.
    pub fn receive(&mut self) -> u16 {
        let mut filled = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[filled..]).unwrap();
            assert!(read > 0, "closed within an answer");
            filled += read;
            if let Some(status) = whole(&self.buffer[..filled]) {
                return status;
            }
        }
    }

    pub fn ask(&mut self, request: &[u8]) -> u16 {
        self.send(request);
        self.receive()
    }
}

pub fn request(path: &str) -> Vec<u8> {
    format!(
        "GET {path} HTTP/1.1\r\nhost: api.example.com\r\nuser-agent: test/1.0\r\naccept: */*\r\n\
         authorization: Bearer 0123456789abcdef\r\n\r\n"
    )
    .into_bytes()
}

/// The status of an answer with a content-length, if this is all of it.
fn whole(answer: &[u8]) -> Option<u16> {
    const LENGTH: &[u8] = b"content-length: ";
    let head = memchr::memmem::find(answer, b"\r\n\r\n")? + 4;
    let digits = &answer[memchr::memmem::find(&answer[..head], LENGTH).unwrap() + LENGTH.len()..];
    let number = |digits: &[u8]| {
        digits
            .iter()
            .take_while(|digit| digit.is_ascii_digit())
            .fold(0, |n, digit| n * 10 + usize::from(digit - b'0'))
    };
    (answer.len() == head + number(digits)).then(|| u16::try_from(number(&answer[9..12])).unwrap())
}
