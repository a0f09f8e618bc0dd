//! Reads header sections and content from a client, within time limits.
//!
//! Guarantees that nothing passes that could be read in two ways, that no client takes longer than
//! its time limit, and that a connection which waits for a request holds no buffer.

#[cfg(test)]
mod tests;

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::Request;
use http_body::{Frame, SizeHint};

use super::connection_options::ConnectionOptions;
use super::request_head::RequestHead;
use crate::connection_limit::ConnectionPermit;
use crate::timeouts::client_timeouts;
use tollgate_limiter::clock::{self, Instant};
use tollgate_spec::listener::ListenerSpec;
use tollgate_wire::body::{BodyFailure, BoxError};
use tollgate_wire::error::Failure;
use tollgate_wire::http::deadline::{ClientWait, Deadline};
use tollgate_wire::http::h1::body_decoder::BodyDecoder;
use tollgate_wire::http::h1::{BodyFraming, SectionBounds, buffers};
use tollgate_wire::http::min_rate::BodyLag;
use tollgate_wire::transport::ReadHalf;

/// Unread content is skipped up to this many bytes; beyond, the connection closes.
const MAX_LEFTOVER: u64 = 64 * 1024;
/// Bytes read ahead to notice whether the client is still there, while its request is being
/// answered. More than that waits in the socket.
const MAX_AHEAD: usize = 16 * 1024;
/// Closing a socket with unread input resets the connection, and a reset can overtake the answer.
/// Input is therefore read before the close, but no more than this. A client that writes all before
/// it reads gets its answer, too.
const LINGER_BYTES: usize = 64 * 1024 * 1024;
/// The first bytes of an HTTP/2 connection (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The result of waiting for a request.
#[derive(Debug)]
pub enum Arrival {
    /// A header section of this many bytes.
    Head(usize),
    Refused(Failure),
    /// The client speaks HTTP/2.
    Http2,
    /// No request: the client has sent nothing for too long, or the server drains.
    Idle,
    /// The client has gone.
    Gone,
}

/// The reading side of a client's connection.
#[derive(Debug)]
pub struct ClientReader {
    half: ReadHalf,
    read: BytesMut,
    bounds: SectionBounds,
    head: RequestHead,
    /// Decodes the content of the latest request.
    content: BodyDecoder,
    /// The client waits for a 100 before it sends the content.
    awaits_continue: bool,
    deadline: Deadline<ClientWait>,
    /// The lag of the latest request's content.
    lag: BodyLag,
    /// The wait for the first request of the connection, or for the next one.
    idle_wait: ClientWait,
    /// The first bytes may still be those of HTTP/2.
    fresh: bool,
    ended: bool,
    /// Further input cannot be read as a request.
    broken: bool,
    permit: ConnectionPermit,
}

impl ClientReader {
    pub fn new(
        half: ReadHalf,
        permit: ConnectionPermit,
        spec: &ListenerSpec,
        lag: BodyLag,
    ) -> Self {
        let mut deadline = Deadline::new(client_timeouts(spec));
        deadline.begin(ClientWait::FirstByte, clock::now());
        // `RequestHead` counts in 32 bits.
        let bounds = SectionBounds {
            bytes: spec.max_header_bytes.min(u32::MAX as usize),
            fields: spec.max_headers,
        };
        Self {
            half,
            read: BytesMut::new(),
            bounds,
            head: RequestHead::default(),
            content: BodyDecoder::new(BodyFraming::Length(0), bounds),
            awaits_continue: false,
            deadline,
            lag,
            idle_wait: ClientWait::FirstByte,
            fresh: true,
            ended: false,
            broken: false,
            permit,
        }
    }

    /// Takes in bytes that were read before. `may_be_http2`: the client may begin with the preface
    /// of HTTP/2.
    pub fn begin_with(&mut self, early: &[u8], may_be_http2: bool) {
        self.read.extend_from_slice(early);
        self.fresh = may_be_http2;
    }

    /// Waits for a request. A request that has begun to arrive is read, also while the server
    /// drains (`draining`).
    pub fn poll_arrival(&mut self, cx: &mut Context<'_>, draining: bool) -> Poll<Arrival> {
        loop {
            if let Some(arrival) = self.parse() {
                return Poll::Ready(arrival);
            }
            // Reads grow with the section: otherwise each would move it to a slightly larger
            // buffer.
            match self.poll_fill(cx, buffers::SMALL.max(self.read.len())) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(Arrival::Gone),
                Poll::Pending => {
                    self.release_buffer();
                    return self.poll_head_deadline(cx, draining);
                }
            }
        }
    }

    /// The result, if enough bytes have arrived for one.
    fn parse(&mut self) -> Option<Arrival> {
        if self.read.is_empty() {
            return None;
        }
        if self.fresh {
            let compared = self.read.len().min(PREFACE.len());
            self.fresh = self.read[..compared] == PREFACE[..compared];
            if self.fresh && compared == PREFACE.len() {
                return Some(Arrival::Http2);
            }
            if self.fresh {
                return None;
            }
        }
        match self.head.read(&self.read, &self.bounds) {
            Ok(length) => length.map(Arrival::Head),
            Err(failure) => Some(Arrival::Refused(failure)),
        }
    }

    fn poll_head_deadline(&mut self, cx: &mut Context<'_>, draining: bool) -> Poll<Arrival> {
        let is_preface = self.fresh && !self.read.is_empty();
        if self.head.is_blank() && !is_preface {
            if self.permit.activity().must_close() {
                return Poll::Ready(Arrival::Idle);
            }
            if draining {
                self.idle_wait = ClientWait::LastRequest;
                self.deadline.go_on_as(self.idle_wait);
            }
            return self
                .deadline
                .poll(cx, self.idle_wait)
                .map(|()| Arrival::Idle);
        }
        self.permit.activity().set_active();
        let overdue = self.deadline.poll(cx, ClientWait::RequestHead);
        overdue.map(|()| Arrival::Refused(Failure::RequestTimeout))
    }

    /// Fills `request` from the header section that has arrived. Its content is read next.
    pub fn take_head<B>(
        &mut self,
        length: usize,
        request: &mut Request<B>,
    ) -> Result<ConnectionOptions, Failure> {
        let section = self.read.split_to(length).freeze();
        let options = self.head.finish(&section, request)?;
        self.deadline.end();
        self.lag.reset();
        self.content = BodyDecoder::new(options.framing, self.bounds);
        self.awaits_continue = options.awaits_continue;
        Ok(options)
    }

    /// Whether the request that is being read is a HEAD.
    pub fn is_head(&self) -> bool {
        self.head.is_head()
    }

    /// Reads no further request.
    pub fn stop_reading(&mut self) {
        self.broken = true;
    }

    /// The next piece of content, or the trailers.
    pub fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.poll_piece(cx, ClientWait::RequestBody)
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        wait: ClientWait,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            match self.content.decode(&mut self.read) {
                Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(None) if self.content.is_over() => return Poll::Ready(None),
                Ok(None) => {}
                Err(_) => return self.fail(BodyFailure::Malformed.into()),
            }
            match self.poll_fill(cx, self.content.wanted(buffers::LARGE)) {
                Poll::Ready(Ok(bytes @ 1..)) => self.record_piece(wait, bytes),
                Poll::Ready(Ok(0)) => {
                    return self.fail(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
                Poll::Ready(Err(error)) => return self.fail(error.into()),
                Poll::Pending => {
                    self.release_buffer();
                    let lag = &self.lag;
                    ready!(self.deadline.poll_from(cx, wait, |now| lag.count_from(now)));
                    return self.fail(self.lag.failure().into());
                }
            }
        }
    }

    /// Records the progress of a body that is read. Content that nobody reads has one limit
    /// altogether.
    fn record_piece(&mut self, wait: ClientWait, bytes: usize) {
        if wait == ClientWait::RequestBody {
            let waiting_since = self.deadline.end();
            self.lag.record(bytes, waiting_since, clock::now);
        }
    }

    fn fail(&mut self, error: BoxError) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.broken = true;
        Poll::Ready(Some(Err(error)))
    }

    /// Whether all content has been read.
    pub fn is_content_complete(&self) -> bool {
        self.content.is_over()
    }

    /// The size of the content that is left.
    pub fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }

    /// Whether the client waits for a 100 before it sends its content.
    pub fn awaits_continue(&self) -> bool {
        self.awaits_continue
    }

    /// Records that the client was sent a 100.
    pub fn set_continue_sent(&mut self) {
        self.awaits_continue = false;
    }

    /// Whether the unread content can be skipped: all of it is here, or little is left and the
    /// client will send it.
    pub fn can_skip_content(&mut self) -> bool {
        while !self.broken && !self.content.is_over() {
            match self.content.decode(&mut self.read) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => self.broken = true,
            }
        }
        if self.broken {
            return false;
        }
        if self.content.is_over() {
            return true;
        }
        match self.content.size_hint().exact() {
            Some(left) => left <= MAX_LEFTOVER && !self.awaits_continue,
            None => false,
        }
    }

    /// Skips the rest of the content. Returns whether another request may follow.
    pub fn poll_skip_content(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // Skipping has a time limit of its own, however far the content was behind.
        self.lag.reset();
        loop {
            match ready!(self.poll_piece(cx, ClientWait::UnreadContent)) {
                None => return Poll::Ready(true),
                Some(Ok(_)) => {}
                Some(Err(_)) => return Poll::Ready(false),
            }
        }
    }

    /// Begins the wait for the next request: the latest one is answered.
    pub fn begin_keepalive(&mut self, now: Instant) {
        self.idle_wait = ClientWait::NextRequest;
        self.deadline.begin(ClientWait::NextRequest, now);
    }

    /// Whether few connections are open: memory for their next requests is no matter.
    pub fn is_one_of_few(&self) -> bool {
        self.permit.is_one_of_few()
    }

    /// Whether bytes have come that were not read yet.
    pub fn has_input(&self) -> bool {
        !self.read.is_empty()
    }

    /// Ready when the client has gone. Keeps bytes that come instead.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.ended && self.read.len() < MAX_AHEAD {
            let _ = ready!(self.poll_fill(cx, buffers::SMALL));
        }
        if self.ended {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Discards further input, so that the client gets to read the last response (RFC 9112 §9.6).
    /// Waits for input only if the client is known to have more to send, and not for long once
    /// `hurried` is true.
    pub async fn linger(&mut self, hurried: impl Fn() -> bool) {
        let wait = self.broken || !self.read.is_empty() || !self.content.is_over();
        let mut left = LINGER_BYTES;
        self.deadline.begin(ClientWait::Linger, clock::now());
        // The whole wait and each piece of it are timed at once.
        let mut piece = Deadline::new(*self.deadline.timeouts());
        std::future::poll_fn(|cx| {
            while !self.ended && left > 0 {
                self.read.clear();
                match self.poll_fill(cx, buffers::LARGE) {
                    Poll::Ready(read) => {
                        left = left.saturating_sub(read.unwrap_or(0));
                        piece.end();
                    }
                    Poll::Pending if wait => {
                        self.release_buffer();
                        if piece.poll(cx, ClientWait::LingerPiece).is_ready() {
                            return Poll::Ready(());
                        }
                        if !hurried() {
                            return self.deadline.poll(cx, ClientWait::Linger);
                        }
                        self.deadline.go_on_as(ClientWait::ShortLinger);
                        return self.deadline.poll(cx, ClientWait::ShortLinger);
                    }
                    Poll::Pending => break,
                }
            }
            Poll::Ready(())
        })
        .await;
    }

    /// The read half of the socket, its permit, and the bytes read too early.
    pub fn into_parts(self) -> (ReadHalf, ConnectionPermit, Bytes) {
        (self.half, self.permit, self.read.freeze())
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<io::Result<usize>> {
        // Readiness is checked first, without a system call: a connection that waits needs no
        // buffer.
        let ready = ready!(self.half.poll_read_ready(cx));
        let filled = match ready {
            Ok(()) => ready!(buffers::poll_fill(
                &mut self.half,
                cx,
                &mut self.read,
                wanted
            )),
            Err(error) => Err(error),
        };
        self.ended = !matches!(filled, Ok(1..));
        Poll::Ready(filled)
    }

    /// Gives an empty buffer back.
    fn release_buffer(&mut self) {
        if self.read.is_empty() && self.read.capacity() > 0 {
            buffers::give_back(std::mem::take(&mut self.read));
        }
    }
}
