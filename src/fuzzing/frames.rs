//! Requests of HTTP/2 on their way to an upstream of HTTP/1: one message that says what the frames
//! say.
//!
//! An input is a request in text: a line for each field, the content behind an empty line, and
//! trailers behind another. A first byte of 0 makes it frames instead, as they are on the wire.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{RecvStream, server};
use http::{HeaderMap, HeaderName, Request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::request::{BOUNDS, read_everywhere, sent};
use tollgate_wire::body::Body;
use tollgate_wire::http::h2::ReceivedBody;
use tollgate_wire::http::request_rules;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames and their flags (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Bytes of content in one frame.
const PIECE: usize = 7;

/// Fields that the gateway writes itself, or takes from a request: what it sends under these names
/// is not what the client has sent.
const OWN: [&str; 11] = [
    "connection",
    "content-length",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "via",
    "x-request-id",
];

/// A client that sends all of its bytes at once, and takes whatever it gets.
struct Client(Bytes);

/// A request in text.
struct Script<'a> {
    fields: Vec<(&'a str, &'a str)>,
    content: &'a [u8],
    trailers: Vec<(&'a str, &'a str)>,
}

/// Upstreams get one message, and it says what the frames say.
pub fn a_forwarded_request_says_what_its_frames_say(data: &[u8]) {
    if let Some(frames) = data.strip_prefix(&[0]) {
        for request in forwarded(frames) {
            read_everywhere(&request);
        }
        return;
    }
    let Some(script) = Script::read(data) else {
        return;
    };
    let requests = forwarded(&script.frames());
    assert!(
        requests.len() < 2,
        "one stream is {} requests",
        requests.len()
    );
    for request in requests {
        for read in read_everywhere(&request) {
            assert_eq!(Some(read.method.as_str()), script.pseudo(":method"));
            assert_eq!(Some(read.target.as_str()), script.target());
            assert_eq!(read.content, script.content);
            script.check_host(&read.headers);
            script.check_fields(&read.headers);
        }
    }
}

impl<'a> Script<'a> {
    fn read(data: &'a [u8]) -> Option<Self> {
        let text = str::from_utf8(data).ok()?;
        let mut parts = text.splitn(3, "\n\n");
        Some(Self {
            fields: lines(parts.next()?),
            content: parts.next().unwrap_or_default().as_bytes(),
            trailers: lines(parts.next().unwrap_or_default()),
        })
    }

    /// The frames of stream 1.
    fn frames(&self) -> Vec<u8> {
        let mut frames = Vec::new();
        let ends = self.content.is_empty() && self.trailers.is_empty();
        push_frame(
            &mut frames,
            HEADERS,
            END_HEADERS | u8::from(ends),
            &block(&self.fields),
        );
        let mut left = self.content;
        while !left.is_empty() {
            let (piece, rest) = left.split_at(left.len().min(PIECE));
            let ends = rest.is_empty() && self.trailers.is_empty();
            push_frame(&mut frames, DATA, u8::from(ends), piece);
            left = rest;
        }
        if !self.trailers.is_empty() {
            push_frame(
                &mut frames,
                HEADERS,
                END_HEADERS | END_STREAM,
                &block(&self.trailers),
            );
        }
        frames
    }

    fn pseudo(&self, name: &str) -> Option<&'a str> {
        let mut fields = self.fields.iter();
        fields.find(|field| field.0 == name).map(|field| field.1)
    }

    /// The target without its fragment, which the library cuts off.
    fn target(&self) -> Option<&'a str> {
        self.pseudo(":path")?.split('#').next()
    }

    /// The host is the one that `:authority` or `Host` names.
    fn check_host(&self, read: &HeaderMap) {
        let host = self.pseudo(":authority").or(self.pseudo("host"));
        let sent = read.get("host").and_then(|host| host.to_str().ok());
        assert!(
            sent.zip(host)
                .is_some_and(|(sent, host)| sent.eq_ignore_ascii_case(host))
        );
    }

    /// No field is changed or made up, and none that is for the upstream is lost.
    fn check_fields(&self, read: &HeaderMap) {
        for name in read.keys().filter(|name| !is_own(name)) {
            let sent = read.get_all(name).iter().map(|value| value.as_bytes());
            assert_eq!(
                sent.collect::<Vec<_>>(),
                self.values(name.as_str()),
                "{name}"
            );
        }
        for (name, _) in &self.fields {
            let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if is_plain && !OWN.contains(name) {
                assert!(read.contains_key(*name), "{name} is lost");
            }
        }
    }

    fn values(&self, name: &str) -> Vec<&'a [u8]> {
        let mut values = Vec::new();
        for (field, value) in &self.fields {
            if *field == name {
                values.push(value.as_bytes());
            }
        }
        values
    }
}

fn is_own(name: &HeaderName) -> bool {
    OWN.contains(&name.as_str()) || name.as_str().starts_with("x-forwarded-")
}

/// The lines `name: value`. The colon of a pseudo-field is a part of its name.
fn lines(text: &str) -> Vec<(&str, &str)> {
    let mut fields = Vec::new();
    for line in text.lines() {
        if let Some((name, value)) = line.split_once(": ") {
            fields.push((name, value));
        }
    }
    fields
}

/// A header block of literals that are neither indexed nor compressed (RFC 7541 §6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        push_text(&mut block, name);
        push_text(&mut block, value);
    }
    block
}

/// A string, its length first (RFC 7541 §5.1, §5.2).
fn push_text(block: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    if length < 127 {
        block.push(length as u8);
    } else {
        block.push(127);
        length -= 127;
        while length >= 128 {
            block.push(length as u8 | 128);
            length /= 128;
        }
        block.push(length as u8);
    }
    block.extend_from_slice(text.as_bytes());
}

fn push_frame(frames: &mut Vec<u8>, kind: u8, flags: u8, payload: &[u8]) {
    frames.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    frames.extend_from_slice(&[kind, flags, 0, 0, 0, 1]);
    frames.extend_from_slice(payload);
}

/// The bytes that upstreams get of the requests in these frames.
fn forwarded(frames: &[u8]) -> Vec<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    // The waits for a client need a clock.
    let _clock = runtime.enter();
    let mut bytes = PREFACE.to_vec();
    push_frame(&mut bytes, SETTINGS, 0, &[]);
    let settings = bytes.len() - 4..bytes.len();
    bytes[settings].fill(0);
    bytes.extend_from_slice(frames);
    let mut cx = Context::from_waker(Waker::noop());
    let mut builder = Builder::new();
    builder.max_header_list_size(BOUNDS.bytes as u32);
    let mut handshake = pin!(builder.handshake::<_, Bytes>(Client(bytes.into())));
    let Poll::Ready(Ok(mut connection)) = handshake.as_mut().poll(&mut cx) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    // The connection has read all frames before it gives the first request. The streams end with
    // it.
    while let Poll::Ready(Some(Ok((request, _response)))) = poll_accept(&mut connection, &mut cx) {
        if let Some(request) = checked(request)
            && let Some(sent) = sent(request)
        {
            all.push(sent);
        }
    }
    all
}

type Accepted = Option<Result<(Request<RecvStream>, SendResponse<Bytes>), h2::Error>>;

fn poll_accept(
    connection: &mut server::Connection<Client, Bytes>,
    cx: &mut Context<'_>,
) -> Poll<Accepted> {
    pin!(poll_fn(|cx| connection.poll_accept(cx))).poll(cx)
}

/// The request as handlers get it. `None`: it breaks a rule.
fn checked(mut request: Request<RecvStream>) -> Option<Request<Body>> {
    request_rules::check(&mut request, &BOUNDS).ok()?;
    if request.body().is_end_stream() {
        return Some(request.map(|_| Body::empty()));
    }
    let (head, stream) = request.into_parts();
    let limit = Duration::from_secs(1);
    let body = ReceivedBody::new(stream, &head.headers, limit, BOUNDS.fields);
    Some(Request::from_parts(head, Body::from_source(Box::new(body))))
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            return Poll::Pending;
        }
        let length = self.0.len().min(buffer.remaining());
        buffer.put_slice(&self.0.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_requests_are_forwarded() {
        let head = ":method: POST\n:scheme: http\n:authority: a\n:path: /\nte: trailers\n";
        for (text, end) in [
            (head.to_owned(), "\r\n\r\n"),
            (
                format!("{head}content-length: 9\n\nsome\ntext"),
                "some\ntext",
            ),
            (
                format!("{head}trailer: x\n\nok\n\nx: y"),
                "2\r\nok\r\n0\r\nx: y\r\n\r\n",
            ),
        ] {
            let frames = Script::read(text.as_bytes()).unwrap().frames();
            let [request] = &forwarded(&frames)[..] else {
                panic!("{text} is not forwarded");
            };
            assert!(request.ends_with(end.as_bytes()), "{text}");
            a_forwarded_request_says_what_its_frames_say(&[&[0], &frames[..]].concat());
        }
    }
}
