//! The way in: reads what a client sends, as header sections, as content, or as what nobody wants.
//!
//! Guarantees that nothing passes that could be read in two ways, that a client may keep us waiting for so long and no
//! longer, and that a connection which waits for a request holds no buffer. Knows nothing of answers.

#[cfg(test)]
mod tests;

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Request;
use http_body::{Frame, SizeHint};
use tokio::net::tcp::OwnedReadHalf;

use super::asked::Asked;
use super::head::Head;
use crate::body::{BodyFailure, BoxError};
use crate::clock::{self, Instant};
use crate::error::Failure;
use crate::http::h1::body_decoder::BodyDecoder;
use crate::http::h1::timer::Timer;
use crate::http::h1::{BodyFraming, SectionBounds, buffers};
use crate::server::listener::Slot;
use crate::server::{LONGEST_WAIT, ListenerSpec};

/// Content that nobody reads is read to its end up to this many bytes; beyond, the connection closes.
const MAX_LEFTOVER: u64 = 64 * 1024;
/// Bytes read ahead while an answer is under way, when all that matters is whether the client is still there. A client
/// that sends more waits in the socket.
const MAX_AHEAD: usize = 16 * 1024;
/// A close with unread input resets the connection, and a reset can overtake our answer; so input is read on, but no more
/// than this and no longer than [`LINGER`].
const LINGER_BYTES: usize = 1024 * 1024;
const LINGER: Duration = Duration::from_secs(2);
/// RFC 9113 §3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What came of waiting for a request.
#[derive(Debug)]
pub enum Arrival {
    /// A header section of so many bytes.
    Head(usize),
    Refused(Failure),
    /// The client speaks HTTP/2.
    Preface,
    /// None begins any more: the client has sent nothing for too long, or the server stops.
    Silence,
    /// The client has gone.
    Gone,
}

/// What one client sends.
#[derive(Debug)]
pub struct Inbound {
    half: OwnedReadHalf,
    read: BytesMut,
    bounds: SectionBounds,
    head: Head,
    /// The content of the request that arrived last.
    content: BodyDecoder,
    /// The client waits for a 100 before it sends that content.
    awaits_continue: bool,
    timer: Timer,
    limits: Limits,
    /// When the connection closes if no request has begun by then.
    expires: Instant,
    /// Since when the client keeps us waiting in the middle of something.
    since: Option<Instant>,
    /// Not even the first bytes have been told apart from HTTP/2.
    fresh: bool,
    ended: bool,
    /// What comes cannot be read any more.
    broken: bool,
    slot: Slot,
}

/// How long a client may take: over a header section, to its next request, over the next piece of content.
#[derive(Clone, Copy, Debug)]
struct Limits {
    header: Duration,
    keepalive: Duration,
    content: Duration,
}

impl Inbound {
    pub fn new(half: OwnedReadHalf, slot: Slot, spec: &ListenerSpec) -> Self {
        let limits = Limits {
            header: spec.header_timeout.min(LONGEST_WAIT),
            keepalive: spec.keepalive_timeout.min(LONGEST_WAIT),
            content: spec.body_timeout.min(LONGEST_WAIT),
        };
        // `Head` counts in 32 bits.
        let bounds = SectionBounds { bytes: spec.max_header_bytes.min(u32::MAX as usize), fields: spec.max_headers };
        Self {
            half,
            read: BytesMut::new(),
            bounds,
            head: Head::default(),
            content: BodyDecoder::new(BodyFraming::Length(0), bounds),
            awaits_continue: false,
            timer: Timer::default(),
            limits,
            expires: clock::now() + limits.header,
            since: None,
            fresh: true,
            ended: false,
            broken: false,
            slot,
        }
    }

    /// Waits for a request.
    pub fn poll_arrival(&mut self, cx: &mut Context<'_>) -> Poll<Arrival> {
        loop {
            if let Some(arrival) = self.look() {
                return Poll::Ready(arrival);
            }
            // A long section comes in long pieces, so that it is not moved to a larger buffer with each of them.
            match self.poll_fill(cx, buffers::USUAL.max(self.read.len())) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(Arrival::Gone),
                Poll::Pending => {
                    self.leave_buffer();
                    return self.poll_impatient(cx);
                }
            }
        }
    }

    /// What has arrived, if it is enough to tell.
    fn look(&mut self) -> Option<Arrival> {
        if self.read.is_empty() {
            return None;
        }
        if self.fresh {
            let compared = self.read.len().min(PREFACE.len());
            self.fresh = self.read[..compared] == PREFACE[..compared];
            if self.fresh {
                return (compared == PREFACE.len()).then_some(Arrival::Preface);
            }
        }
        match self.head.read(&self.read, &self.bounds) {
            Ok(length) => length.map(Arrival::Head),
            Err(failure) => Some(Arrival::Refused(failure)),
        }
    }

    fn poll_impatient(&mut self, cx: &mut Context<'_>) -> Poll<Arrival> {
        let is_preface = self.fresh && !self.read.is_empty();
        if self.head.is_blank() && !is_preface {
            return self.timer.poll(cx, self.expires).map(|()| Arrival::Silence);
        }
        self.poll_overdue(cx, self.limits.header).map(|()| Arrival::Refused(Failure::RequestTimeout))
    }

    /// Makes `request` of a header section that arrived; its content is next.
    pub fn take_head<B>(&mut self, length: usize, request: &mut Request<B>) -> Result<Asked, Failure> {
        let section = self.read.split_to(length).freeze();
        let asked = self.head.finish(&section, request)?;
        self.since = None;
        self.content = BodyDecoder::new(asked.framing, self.bounds);
        self.awaits_continue = asked.awaits_continue;
        Ok(asked)
    }

    /// Whether the request that is refused is a HEAD.
    pub fn is_head(&self) -> bool {
        self.head.is_head()
    }

    /// Nothing that comes is read as a request any more.
    pub fn give_up(&mut self) {
        self.broken = true;
    }

    /// The next piece of content.
    pub fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            match self.content.decode(&mut self.read) {
                Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(None) if self.content.is_over() => return Poll::Ready(None),
                Ok(None) => {}
                Err(_) => return self.fail(BodyFailure::Malformed.into()),
            }
            match self.poll_fill(cx, self.content.wanted(buffers::LARGE)) {
                Poll::Ready(Ok(1..)) => self.since = None,
                Poll::Ready(Ok(0)) => return self.fail(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Poll::Ready(Err(error)) => return self.fail(error.into()),
                Poll::Pending => {
                    self.leave_buffer();
                    ready!(self.poll_overdue(cx, self.limits.content));
                    return self.fail(BodyFailure::Timeout.into());
                }
            }
        }
    }

    fn fail(&mut self, error: BoxError) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.broken = true;
        Poll::Ready(Some(Err(error)))
    }

    /// All content has been read.
    pub fn is_whole(&self) -> bool {
        self.content.is_over()
    }

    /// How much content is left.
    pub fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }

    /// Whether the client holds its content back until it is told to send it.
    pub fn awaits_continue(&self) -> bool {
        self.awaits_continue
    }

    /// The client was told to send its content.
    pub fn told_to_continue(&mut self) {
        self.awaits_continue = false;
    }

    /// Whether the content that nobody has read is worth reading to its end: it is here already, or it will come and is
    /// short.
    pub fn is_drainable(&mut self) -> bool {
        while !self.broken && !self.content.is_over() {
            match self.content.decode(&mut self.read) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => self.broken = true,
            }
        }
        let is_short = || self.content.size_hint().exact().is_some_and(|left| left <= MAX_LEFTOVER);
        !self.broken && (self.content.is_over() || (!self.awaits_continue && is_short()))
    }

    /// Reads and forgets the rest of the content. Whether the next request follows.
    pub fn poll_drained(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            match ready!(self.poll_content(cx)) {
                None => return Poll::Ready(true),
                Some(Ok(_)) => {}
                Some(Err(_)) => return Poll::Ready(false),
            }
        }
    }

    /// The last answer has been given: another request may come until `keepalive` has passed.
    pub fn rest(&mut self, now: Instant) {
        self.expires = now + self.limits.keepalive;
        // What the client took for its content is not what it takes for its next request.
        self.since = None;
    }

    /// Ready when the client has gone. What comes instead is kept.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.ended && self.read.len() < MAX_AHEAD {
            let _ = ready!(self.poll_fill(cx, buffers::USUAL));
        }
        if self.ended { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Reads and forgets what the client still sends, so that it gets to read our last answer (RFC 9112 §9.6). Where it is
    /// not certain to have more to send, only what is already there.
    pub async fn linger(&mut self) {
        let wait = self.broken || !self.read.is_empty() || !self.content.is_over();
        let until = clock::now() + LINGER;
        let mut left = LINGER_BYTES;
        std::future::poll_fn(|cx| {
            while !self.ended && left > 0 {
                self.read.clear();
                match self.poll_fill(cx, buffers::USUAL) {
                    Poll::Ready(read) => left = left.saturating_sub(read.unwrap_or(0)),
                    Poll::Pending if wait => return self.timer.poll(cx, until),
                    Poll::Pending => break,
                }
            }
            Poll::Ready(())
        })
        .await;
    }

    /// The socket's half, its place, and what has been read of it.
    pub fn into_parts(self) -> (OwnedReadHalf, Slot, Bytes) {
        (self.half, self.slot, self.read.freeze())
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<io::Result<usize>> {
        // Asked first: who waits needs no buffer. This is no system call.
        let ready = ready!(self.half.as_ref().poll_read_ready(cx));
        let filled = match ready {
            Ok(()) => ready!(buffers::poll_fill(&mut self.half, cx, &mut self.read, wanted)),
            Err(error) => Err(error),
        };
        self.ended = !matches!(filled, Ok(1..));
        Poll::Ready(filled)
    }

    /// While nothing is there to be kept, others may use the buffer.
    fn leave_buffer(&mut self) {
        if self.read.is_empty() && self.read.capacity() > 0 {
            buffers::give_back(std::mem::take(&mut self.read));
        }
    }

    fn poll_overdue(&mut self, cx: &mut Context<'_>, limit: Duration) -> Poll<()> {
        let since = *self.since.get_or_insert_with(clock::now);
        self.timer.poll(cx, since + limit)
    }
}
