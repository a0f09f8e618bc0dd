//! A request body on its way to an upstream.
//!
//! Guarantees that it streams piece by piece, is not begun while the upstream has yet to ask for it, breaks off when the
//! client stalls, and is as long as its framing says. Knows nothing of connections.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame};
use tokio::time::Instant;

use crate::body::{Body, BodyFailure, BoxError};
use crate::clock;
use crate::http::h1::encode::{self, LAST_CHUNK};
use crate::http::h1::write_buffer::WriteBuffer;
use crate::http::trailers::AnnouncedTrailers;

/// How long a body is held back for a 100 that does not come (RFC 9110 §10.1.1: no longer than reasonable).
pub const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// A request body as an upstream connection takes it.
pub struct Upload {
    body: Body,
    framing: UploadFraming,
    phase: Phase,
    /// Since when it is in its phase, or when the upstream last took something. `None`: it has not set out.
    since: Option<Instant>,
    /// There is a body.
    some: bool,
    /// Some of it has been taken from the client.
    begun: bool,
}

enum UploadFraming {
    /// So many bytes are left.
    Length(u64),
    Chunked(AnnouncedTrailers),
}

/// What an upload waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The body is not as long as was announced.
#[derive(Debug, thiserror::Error)]
#[error("the request body has another length than was announced")]
struct OtherLength;

impl Upload {
    /// `held`: not before the upstream asks for it, or [`CONTINUE_WAIT`] is over.
    pub fn new(body: Body, headers: &HeaderMap, held: bool) -> Self {
        let some = !body.is_end_stream();
        let framing = match body.size_hint().exact() {
            Some(length) => UploadFraming::Length(length),
            None => UploadFraming::Chunked(AnnouncedTrailers::by(headers)),
        };
        let phase = match held {
            _ if !some => Phase::Whole,
            true => Phase::Held,
            false => Phase::Sending,
        };
        Self { body, framing, phase, since: None, some, begun: false }
    }

    /// It goes out over a connection that was found at `now`.
    pub fn start(&mut self, now: Instant) {
        self.since = Some(now);
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Since when it is in that phase, or when the upstream last took something. `None`: it has not set out.
    pub fn since(&self) -> Option<Instant> {
        self.since
    }

    pub fn is_whole(&self) -> bool {
        self.phase == Phase::Whole
    }

    /// Whether there is a body at all.
    pub fn is_some(&self) -> bool {
        self.some
    }

    /// Whether it can be sent from its beginning.
    pub fn is_fresh(&self) -> bool {
        !self.begun
    }

    /// The upstream asks for the body, or has been waited for long enough.
    pub fn release(&mut self) {
        if self.phase == Phase::Held {
            self.enter(Phase::Sending);
        }
    }

    /// The upstream has taken something.
    pub fn taken(&mut self) {
        self.since = Some(clock::now());
    }

    /// Moves what the client has sent to `output`, until that is enough; the phase tells whether there is more. Wakes when
    /// the client has sent more.
    pub fn move_to(&mut self, output: &mut WriteBuffer, cx: &mut Context<'_>) -> Result<(), BoxError> {
        while !matches!(self.phase, Phase::Held | Phase::Whole) && !output.is_enough() {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                if self.phase != Phase::Starved {
                    self.enter(Phase::Starved);
                }
                return Ok(());
            };
            if self.phase == Phase::Starved {
                self.enter(Phase::Sending);
            }
            self.begun = true;
            match frame.transpose()? {
                Some(frame) => self.encode(frame, output)?,
                None => self.end(output)?,
            }
        }
        Ok(())
    }

    fn encode(&mut self, frame: Frame<Bytes>, output: &mut WriteBuffer) -> Result<(), BoxError> {
        match (&mut self.framing, frame.into_data()) {
            (UploadFraming::Length(left), Ok(data)) => {
                *left = left.checked_sub(data.len() as u64).ok_or(OtherLength)?;
                output.push_piece(data);
            }
            (UploadFraming::Chunked(_), Ok(data)) => output.push_chunk(data),
            (UploadFraming::Chunked(announced), Err(frame)) => {
                if let Ok(trailers) = frame.into_trailers() {
                    output.push(|out| encode::last_chunk(out, announced, &trailers));
                    self.enter(Phase::Whole);
                }
                return Ok(());
            }
            // A body with a length has no place for trailers.
            (UploadFraming::Length(_), Err(_)) => {}
        }
        if self.body.is_end_stream() { self.end(output) } else { Ok(()) }
    }

    fn end(&mut self, output: &mut WriteBuffer) -> Result<(), BoxError> {
        match self.framing {
            UploadFraming::Length(0) => {}
            UploadFraming::Length(_) => return Err(OtherLength.into()),
            UploadFraming::Chunked(_) => output.push(|out| out.extend_from_slice(LAST_CHUNK)),
        }
        self.enter(Phase::Whole);
        Ok(())
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Some(clock::now());
    }

    /// The client has sent nothing for too long.
    pub fn starved() -> BoxError {
        BodyFailure::Timeout.into()
    }
}
