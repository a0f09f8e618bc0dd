//! The body of a request, and the handover of the connection's client reader to the body.
//!
//! The body reads straight from the socket, with no task or queue in between. Guarantees that the
//! connection gets its reader back when the body ends or is dropped, and notices a client that
//! leaves before the body is read.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;

use super::client_reader::ClientReader;
use tollgate_wire::body::{Body, BodySource, BoxError};

/// A connection's access to its client reader.
#[derive(Debug)]
pub enum ReaderHandle {
    /// The connection has the reader.
    Held(Box<ClientReader>),
    /// The body of the request under way has the reader.
    HandedOver(Arc<Handover>),
}

/// The state that a connection shares with the body that has its reader.
#[derive(Debug, Default)]
pub struct Handover {
    state: Mutex<HandoverState>,
    /// The client sends the body only after a 100.
    awaits_continue: bool,
    /// The body is being read, and the connection has yet to send the 100.
    continue_requested: AtomicBool,
    continue_sent: AtomicBool,
}

#[derive(Debug, Default)]
struct HandoverState {
    /// The reader on its way to a body that has not been read yet.
    to_body: Option<Box<ClientReader>>,
    /// The reader on its way back to the connection: the body has ended.
    to_connection: Option<Box<ClientReader>>,
    /// The waker of the connection's task.
    waker: Option<Waker>,
}

/// A request body that reads from its connection's client reader.
struct RequestBody {
    /// The reader. `None`: not taken over yet, or the body has ended.
    reader: Option<Box<ClientReader>>,
    taken_over: bool,
    /// The size before the reader was taken over.
    announced: SizeHint,
    handover: Arc<Handover>,
    /// The connection was asked to send a 100.
    continue_requested: bool,
}

impl ReaderHandle {
    /// Hands the reader over to the body that is returned.
    pub fn hand_over(&mut self) -> Body {
        let Self::Held(reader) = self else {
            return Body::empty();
        };
        let announced = reader.size_hint();
        let handover = Arc::new(Handover {
            awaits_continue: reader.awaits_continue(),
            ..Handover::default()
        });
        if let Self::Held(reader) = std::mem::replace(self, Self::HandedOver(Arc::clone(&handover)))
        {
            handover.state.lock().to_body = Some(reader);
        }
        let begun = RequestBody {
            reader: None,
            taken_over: false,
            announced,
            handover,
            continue_requested: false,
        };
        Body::from_source(Box::new(begun))
    }

    /// The reader: at once if the connection has it, else when it comes back.
    pub fn poll_reader(&mut self, cx: &mut Context<'_>) -> Poll<&mut ClientReader> {
        if let Self::HandedOver(handover) = self
            && let Some(mut reader) = handover.take_back(cx)
        {
            if handover.continue_sent.load(Relaxed) {
                reader.set_continue_sent();
            }
            *self = Self::Held(reader);
        }
        match self {
            Self::Held(reader) => Poll::Ready(reader),
            Self::HandedOver(_) => Poll::Pending,
        }
    }

    /// Ready when the client has gone. While a body is being read, only the body can notice that.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.poll_reader(cx) {
            Poll::Ready(reader) => reader.poll_gone(cx),
            Poll::Pending => match self {
                Self::Held(_) => Poll::Pending,
                Self::HandedOver(handover) => match &mut handover.state.lock().to_body {
                    Some(reader) => reader.poll_gone(cx),
                    None => Poll::Pending,
                },
            },
        }
    }

    /// Whether a 100 must be sent now. True once for each request.
    pub fn take_continue_request(&mut self) -> bool {
        match self {
            Self::Held(_) => false,
            Self::HandedOver(handover) => {
                let requested = handover.continue_requested.swap(false, Relaxed);
                handover.continue_sent.fetch_or(requested, Relaxed);
                requested
            }
        }
    }

    /// Whether the body may never come: the client waits for a 100 that was not sent.
    pub fn is_body_withheld(&self) -> bool {
        match self {
            Self::Held(_) => false,
            Self::HandedOver(handover) => {
                handover.awaits_continue && !handover.continue_sent.load(Relaxed)
            }
        }
    }
}

impl Handover {
    /// The reader, if the body has given it back. If not, registers the connection's task.
    fn take_back(&self, cx: &mut Context<'_>) -> Option<Box<ClientReader>> {
        let mut state = self.state.lock();
        let returned = state.to_connection.take();
        if returned.is_none() {
            match &state.waker {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                Some(_) | None => state.waker = Some(cx.waker().clone()),
            }
        }
        returned
    }

    /// Whether content has come for the body, which has not been read yet.
    fn has_arrived(&self, cx: &mut Context<'_>) -> bool {
        match &mut self.state.lock().to_body {
            Some(reader) => {
                let _ = reader.poll_gone(cx);
                reader.has_input()
            }
            None => true,
        }
    }

    fn give_back(&self, reader: Box<ClientReader>) {
        let mut state = self.state.lock();
        state.to_connection = Some(reader);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn request_continue(&self) {
        self.continue_requested.store(true, Relaxed);
        let waker = self.state.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl RequestBody {
    fn take_over(&mut self) {
        if !std::mem::replace(&mut self.taken_over, true) {
            self.reader = self.handover.state.lock().to_body.take();
        }
    }

    fn give_back(&mut self) {
        self.take_over();
        if let Some(reader) = self.reader.take() {
            self.handover.give_back(reader);
        }
    }
}

impl BodySource for RequestBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.take_over();
        let Some(reader) = &mut self.reader else {
            return Poll::Ready(None);
        };
        if self.handover.awaits_continue && !std::mem::replace(&mut self.continue_requested, true) {
            self.handover.request_continue();
        }
        let polled = reader.poll_content(cx);
        if reader.is_content_complete() || matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.give_back();
        }
        polled
    }

    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.taken_over {
            if !self.handover.has_arrived(cx) {
                return Poll::Pending;
            }
            // The client does not wait for a 100: none is sent, and no content is withheld.
            self.continue_requested = true;
            self.handover.continue_sent.store(true, Relaxed);
        }
        Poll::Ready(())
    }

    fn is_over(&self) -> bool {
        self.taken_over && self.reader.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if !self.taken_over {
            return self.announced;
        }
        match &self.reader {
            Some(reader) => reader.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }

    fn ended(self: Box<Self>) {}
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.give_back();
    }
}
