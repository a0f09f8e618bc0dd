//! Stands between the socket and hyper, and lets only requests through that can be read in one way.
//!
//! hyper's parser forgives: bare LF, obsolete folding next to the colon, both ways of framing at once. What it forgives,
//! another server on the way reads differently, and that is how requests are smuggled. So every byte is followed here
//! first (RFC 9112). Whole, good header sections go on, bodies go on as they come; what breaks a rule stays here, a
//! stand-in request takes its place, and the connection's service answers that one with the failure, after everything
//! that came before it.
//!
//! A request that arrives in one read is looked at where it lies: no copy, no allocation, no further system call.
//! Knows nothing of what requests mean, nor of what answers look like.

mod follow;
mod head;
mod output;
mod patience;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use self::follow::{Follower, Stop};
use self::output::Linger;
use self::patience::{Patience, Wait};
use super::ListenerSpec;
use super::connection::{Connection, Upgrade};
use crate::body::BodyFailure;
use crate::error::Failure;
use crate::http1::Bounds;

/// RFC 9113 §3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What hyper reads in place of a request that was refused.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";
/// The same where the refused request was a HEAD, whose answer has no body.
const HEAD_STAND_IN: &[u8] = b"HEAD / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";
/// Bytes kept while an upgrade is undecided. A client that sends more waits in the socket.
const MAX_UNDECIDED: usize = 16 * 1024;

/// What becomes of the client's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// They are followed.
    Follow,
    /// A request was refused: no more pass.
    Refused,
    /// A body cannot go on: reading it fails.
    Broken(BodyFailure),
    /// The client sent nothing for too long: it is as if it had closed.
    Expired,
    /// They are not HTTP/1 (any more).
    Transparent,
}

/// A socket whose input is followed. `G` is whatever must live as long as the socket.
#[derive(Debug)]
pub struct Screen<S, G = ()> {
    io: S,
    connection: Arc<Connection>,
    follower: Follower,
    patience: Patience,
    mode: Mode,
    /// Read, but not passed on.
    held: BytesMut,
    /// So many of `held` may pass.
    ready: usize,
    reads: u64,
    /// Not even the first bytes have been told apart from HTTP/2.
    fresh: bool,
    eof: bool,
    linger: Option<Linger>,
    _guard: G,
}

impl<S, G> Screen<S, G> {
    pub fn new(io: S, connection: Arc<Connection>, spec: &ListenerSpec, guard: G) -> Self {
        let bounds = Bounds { bytes: spec.max_header_bytes, fields: spec.max_headers };
        Self {
            io,
            connection,
            follower: Follower::new(bounds),
            patience: Patience::new(spec),
            mode: Mode::Follow,
            held: BytesMut::new(),
            ready: 0,
            reads: 0,
            fresh: true,
            eof: false,
            linger: None,
            _guard: guard,
        }
    }

    pub fn socket(&self) -> &S {
        &self.io
    }

    /// Moves what may pass. False: nothing may.
    fn give(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let given = self.ready.min(buf.remaining());
        if given == 0 {
            return false;
        }
        buf.put_slice(&self.held[..given]);
        self.held.advance(given);
        self.ready -= given;
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
        true
    }

    /// Judges what was just read to `buf` behind `before`, and takes back what may not pass yet.
    fn take_in(&mut self, buf: &mut ReadBuf<'_>, before: usize) {
        self.reads += 1;
        self.fresh &= !self.held.is_empty() || buf.filled()[before..].starts_with(&PREFACE[..1]);
        if !self.held.is_empty() || self.fresh {
            self.held.extend_from_slice(&buf.filled()[before..]);
            buf.set_filled(before);
            return self.judge_held();
        }
        let verdict = self.follower.follow(&buf.filled()[before..]);
        let kept = before + verdict.pass;
        self.held.extend_from_slice(&buf.filled()[kept..]);
        buf.set_filled(kept);
        self.apply(verdict.stop);
    }

    fn judge_held(&mut self) {
        if self.fresh && !self.rule_out_preface() {
            return;
        }
        let verdict = self.follower.follow(&self.held);
        self.ready = verdict.pass;
        self.apply(verdict.stop);
    }

    /// False: these are, or may become, the first bytes of HTTP/2.
    fn rule_out_preface(&mut self) -> bool {
        let compared = self.held.len().min(PREFACE.len());
        if self.held[..compared] != PREFACE[..compared] {
            self.fresh = false;
        } else if compared == PREFACE.len() {
            self.connection.found_preface();
            self.pass_everything();
        }
        !self.fresh
    }

    fn pass_everything(&mut self) {
        self.mode = Mode::Transparent;
        self.ready = self.held.len();
    }

    fn apply(&mut self, stop: Option<Stop>) {
        self.connection.pass(self.follower.heads(), self.follower.in_body());
        match stop {
            None => {}
            Some(Stop::Refused(failure)) => self.refuse(failure),
            Some(Stop::Broken) => self.break_body(BodyFailure::Malformed),
        }
    }

    fn refuse(&mut self, failure: Failure) {
        self.mode = Mode::Refused;
        self.connection.refuse(self.follower.heads(), failure);
        self.held.truncate(self.ready);
        self.held.extend_from_slice(if self.follower.is_head_request() { HEAD_STAND_IN } else { STAND_IN });
        self.ready = self.held.len();
    }

    fn break_body(&mut self, failure: BodyFailure) {
        self.mode = Mode::Broken(failure);
        self.connection.break_body();
        self.held.truncate(self.ready);
    }

    /// True: an upgrade was decided, and something may pass now.
    fn settle_upgrade(&mut self) -> bool {
        match self.connection.take_upgrade() {
            Upgrade::Undecided => return false,
            Upgrade::Accepted => self.pass_everything(),
            Upgrade::Declined => {
                self.follower.release();
                self.judge_held();
            }
        }
        true
    }

    fn wait(&self) -> Wait {
        if self.follower.in_body() {
            return Wait::Body(self.reads);
        }
        let maybe_preface = self.fresh && !self.held.is_empty();
        let blank = self.follower.between_requests() && !maybe_preface;
        if self.patience.is_stalled() || self.follower.is_holding() {
            Wait::Turn
        } else if !blank {
            Wait::HeadRest(self.follower.heads())
        } else if self.follower.heads() == 0 {
            Wait::FirstByte(self.connection.opened())
        } else {
            self.connection.idle_since().map_or(Wait::Turn, Wait::Request)
        }
    }

    fn lose_patience(&mut self, wait: Wait) {
        match wait {
            Wait::HeadRest(_) => self.refuse(Failure::RequestTimeout),
            Wait::Body(_) => self.break_body(BodyFailure::Timeout),
            Wait::FirstByte(_) | Wait::Request(_) | Wait::Turn => self.mode = Mode::Expired,
        }
    }

    /// Whether the client is certain to have more to send than was read.
    fn is_cut_short(&self) -> bool {
        !matches!(self.mode, Mode::Follow | Mode::Expired) || !self.held.is_empty() || self.follower.in_body()
    }
}

impl<S: AsyncRead + Unpin, G: Unpin> AsyncRead for Screen<S, G> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        while buf.remaining() > 0 && !this.give(buf) {
            match this.mode {
                Mode::Follow => {}
                Mode::Transparent => return Pin::new(&mut this.io).poll_read(cx, buf),
                Mode::Refused => return Poll::Pending,
                Mode::Broken(failure) => return Poll::Ready(Err(broken(failure))),
                Mode::Expired => return Poll::Ready(Ok(())),
            }
            if this.follower.is_holding() {
                if this.settle_upgrade() {
                    continue;
                } else if this.held.len() >= MAX_UNDECIDED {
                    return Poll::Pending;
                }
            }
            if Pin::new(&mut this.io).poll_read(cx, buf)?.is_pending() {
                let wait = this.wait();
                ready!(this.patience.poll_read(cx, wait));
                this.lose_patience(wait);
                continue;
            }
            if buf.filled().len() == before {
                this.eof = true;
                return Poll::Ready(Ok(()));
            }
            this.take_in(buf, before);
            if this.mode == Mode::Transparent {
                return Poll::Pending;
            }
            if buf.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn broken(failure: BodyFailure) -> io::Error {
    let kind = if failure == BodyFailure::Timeout { io::ErrorKind::TimedOut } else { io::ErrorKind::InvalidData };
    io::Error::new(kind, failure)
}
