//! A request body on its way to an upstream, and what others may know of it.
//!
//! Guarantees that it streams frame by frame, is never begun while the upstream has yet to ask for it, breaks off when the
//! client stalls, and stops when the exchange is over. Knows nothing of connections.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Body as _, Frame, SizeHint};

use super::alarm::Alarm;
use crate::body::{Body, BodyFailure, BoxError};
use crate::clock;

/// How long a body is held back for a 100 that does not come (RFC 9110 §10.1.1: no longer than reasonable).
pub const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// A request body as an upstream connection takes it.
pub struct Upload {
    body: Body,
    /// `None`: there is nothing to send.
    progress: Option<Arc<Progress>>,
    /// The longest wait for the client's next frame.
    idle_timeout: Duration,
    alarm: Option<Alarm>,
    waiting: bool,
}

/// How far an upload is, shared by its body, its exchange and its connection.
pub struct Progress {
    phase: AtomicU8,
    /// When the last frame was taken, in microseconds of the monotonic clock.
    moved_at: AtomicU64,
    stopped: AtomicBool,
    waker: AtomicWaker,
}

/// What an upload waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The upstream's word that it wants the body.
    Held,
    /// The upstream to take more.
    Sending,
    /// The client to send more.
    Starved,
    /// Nothing: all of it is on its way.
    Whole,
}

/// The exchange ended before its request did.
#[derive(Debug, thiserror::Error)]
#[error("the upstream answered before the request body was complete")]
struct Stopped;

impl Upload {
    /// `held`: not before the upstream asks for it, or [`CONTINUE_WAIT`] is over.
    pub fn new(body: Body, idle_timeout: Duration, held: bool) -> Self {
        let progress = (!body.is_end_stream()).then(|| Arc::new(Progress::new(held)));
        Self { body, progress, idle_timeout, alarm: None, waiting: false }
    }

    /// A body of no bytes.
    pub fn empty() -> Self {
        Self::new(Body::empty(), Duration::ZERO, false)
    }

    /// `None`: there is nothing to send.
    pub fn progress(&self) -> Option<&Arc<Progress>> {
        self.progress.as_ref()
    }

    fn poll_held(&mut self, progress: &Progress, cx: &mut Context<'_>) -> Poll<()> {
        progress.waker.register(cx.waker());
        if progress.phase() == Phase::Held {
            if self.poll_wait(CONTINUE_WAIT, cx).is_pending() {
                return Poll::Pending;
            }
            progress.release();
        }
        self.waiting = false;
        Poll::Ready(())
    }

    fn poll_wait(&mut self, wait: Duration, cx: &mut Context<'_>) -> Poll<()> {
        if !std::mem::replace(&mut self.waiting, true) {
            let deadline = clock::now() + wait;
            match &mut self.alarm {
                Some(alarm) => alarm.set(deadline),
                None => self.alarm = Some(Alarm::new(deadline)),
            }
        }
        self.alarm.as_mut().map_or(Poll::Pending, |alarm| alarm.poll(cx))
    }

    fn poll_starved(&mut self, progress: &Progress, cx: &mut Context<'_>) -> Poll<BoxError> {
        progress.enter(Phase::Starved);
        progress.waker.register(cx.waker());
        if progress.is_stopped() {
            return Poll::Ready(Stopped.into());
        }
        self.poll_wait(self.idle_timeout, cx).map(|()| BodyFailure::Timeout.into())
    }
}

impl Progress {
    fn new(held: bool) -> Self {
        let phase = if held { Phase::Held } else { Phase::Sending };
        Self {
            phase: AtomicU8::new(phase as u8),
            moved_at: AtomicU64::new(clock::monotonic_micros()),
            stopped: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }
    }

    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Held,
            1 => Phase::Sending,
            2 => Phase::Starved,
            _ => Phase::Whole,
        }
    }

    /// How long ago the upstream last took something.
    pub fn idle_for(&self) -> Duration {
        let moved_at = self.moved_at.load(Ordering::Relaxed);
        Duration::from_micros(clock::monotonic_micros().saturating_sub(moved_at))
    }

    /// The upstream asks for the body.
    pub fn release(&self) {
        let (held, sending) = (Phase::Held as u8, Phase::Sending as u8);
        if self.phase.compare_exchange(held, sending, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.waker.wake();
        }
    }

    /// What has not been sent will not be.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    fn moved(&self, phase: Phase) {
        self.moved_at.store(clock::monotonic_micros(), Ordering::Relaxed);
        self.enter(phase);
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let Some(progress) = this.progress.clone() else { return Poll::Ready(None) };
        if progress.is_stopped() {
            return Poll::Ready(Some(Err(Stopped.into())));
        }
        if progress.phase() == Phase::Held && this.poll_held(&progress, cx).is_pending() {
            return Poll::Pending;
        }
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Pending => this.poll_starved(&progress, cx).map(|error| Some(Err(error))),
            Poll::Ready(frame) => {
                this.waiting = false;
                match &frame {
                    Some(Ok(frame)) if !frame.is_trailers() && !this.body.is_end_stream() => {
                        progress.moved(Phase::Sending)
                    }
                    Some(Err(_)) => {}
                    _ => progress.moved(Phase::Whole),
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
