//! The socket of an HTTP/2 connection, as its codec reads and writes it.
//!
//! Guarantees that the codec never sees a frame that breaks a rule of [`FrameParser`], and that a
//! client which is still sending gets to read the last GOAWAY.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::StreamId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame_parser::{FrameParser, Violation};
use tollgate_limiter::clock::{self, Instant};
use tollgate_wire::http::timer::Timer;

/// Bytes of input that are read before the close. A socket that closes with unread input resets the
/// connection, and a reset can overtake the GOAWAY.
const LINGER_BYTES: usize = 1024 * 1024;
/// Time in which these bytes are read.
const LINGER: Duration = Duration::from_secs(2);

/// A client's socket, whose frames are followed.
pub struct ClientSocket<S> {
    io: S,
    frames: FrameParser,
    traffic: Arc<Traffic>,
    timer: Timer,
    /// The end of the wait for the client's end. `None`: the socket is open.
    lingers_until: Option<Instant>,
    lingered: usize,
}

/// The traffic of a connection's socket, as its task sees it. One thread writes and reads it.
#[derive(Debug, Default)]
pub struct Traffic {
    pub bytes_read: AtomicU64,
    /// Units that have come whole: see [`FrameParser::finished`].
    pub finished: AtomicU64,
    /// A frame or header block has begun and not ended.
    pub unfinished: AtomicBool,
    /// The client's socket takes no more for now.
    pub write_blocked: AtomicBool,
    /// The client has acknowledged our SETTINGS.
    pub acknowledged: AtomicBool,
    /// The rule that the client broke. Nothing is read any more.
    violation: AtomicU8,
    /// A stream with malformed trailers, until its task knows; 0: none.
    malformed: AtomicU32,
}

impl Traffic {
    /// Records the first violation.
    pub fn violate(&self, violation: Violation) {
        let code = match violation {
            Violation::Preface => 1,
            Violation::FrameSize => 2,
            Violation::ControlFrames => 3,
            Violation::Resets => 4,
            Violation::Window => 5,
            Violation::Trailers => 6,
        };
        let _ = self.violation.compare_exchange(0, code, Relaxed, Relaxed);
    }

    /// Records a stream with malformed trailers. The connection ends if another is not known yet.
    fn record_malformed(&self, stream: u32) {
        if self.malformed.swap(stream, Relaxed) != 0 {
            self.violate(Violation::Trailers);
        }
    }

    /// Whether the trailers of this stream are malformed. True once.
    pub fn is_malformed(&self, stream: StreamId) -> bool {
        let is_malformed = self.malformed.load(Relaxed) == stream.as_u32();
        if is_malformed {
            self.malformed.store(0, Relaxed);
        }
        is_malformed
    }

    /// The reason why the connection must end.
    pub fn violation(&self) -> Option<Violation> {
        match self.violation.load(Relaxed) {
            1 => Some(Violation::Preface),
            2 => Some(Violation::FrameSize),
            3 => Some(Violation::ControlFrames),
            4 => Some(Violation::Resets),
            5 => Some(Violation::Window),
            6 => Some(Violation::Trailers),
            _ => None,
        }
    }
}

impl<S> ClientSocket<S> {
    /// A socket from which nothing was read, not even the preface.
    pub fn new(io: S, traffic: Arc<Traffic>) -> Self {
        Self {
            io,
            frames: FrameParser::new(),
            traffic,
            timer: Timer::default(),
            lingers_until: None,
            lingered: 0,
        }
    }

    fn follow(&mut self, buf: &mut ReadBuf<'_>, before: usize) -> Poll<()> {
        let Self {
            frames, traffic, ..
        } = self;
        let followed = frames.follow(&buf.filled()[before..]);
        traffic
            .bytes_read
            .fetch_add((buf.filled().len() - before) as u64, Relaxed);
        traffic.finished.store(frames.finished, Relaxed);
        traffic.unfinished.store(frames.is_unfinished(), Relaxed);
        traffic.acknowledged.store(frames.acknowledged, Relaxed);
        if let Some(stream) = frames.malformed.take() {
            traffic.record_malformed(stream);
        }
        let Err((good, violation)) = followed else {
            return Poll::Ready(());
        };
        traffic.violate(violation);
        buf.set_filled(before + good);
        // A read of no bytes would be the end of the input.
        if good > 0 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    fn record_blocked(&mut self, is_blocked: bool) {
        self.frames.write_blocked = is_blocked;
        self.traffic.write_blocked.store(is_blocked, Relaxed);
    }

    fn wrote(&mut self, written: &Poll<io::Result<usize>>) {
        self.record_blocked(written.is_pending());
        if let Poll::Ready(Ok(bytes)) = written {
            self.frames.wrote(*bytes);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.traffic.violation().is_some() {
            return Poll::Pending;
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        if buf.filled().len() == before {
            return Poll::Ready(Ok(()));
        }
        self.follow(buf, before).map(Ok)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.record_blocked(flushed.is_pending());
        flushed
    }

    /// Ends the output, and waits for the client's end if it is still sending.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let until = match this.lingers_until {
            Some(until) => until,
            None => {
                ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
                *this.lingers_until.insert(clock::now() + LINGER)
            }
        };
        let mut room = [0; 4096];
        loop {
            let mut buf = ReadBuf::new(&mut room);
            match Pin::new(&mut this.io).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() && this.lingered < LINGER_BYTES => {
                    this.lingered += buf.filled().len();
                }
                Poll::Pending if this.lingered > 0 => return this.timer.poll(cx, until).map(Ok),
                _ => return Poll::Ready(Ok(())),
            }
        }
    }
}
