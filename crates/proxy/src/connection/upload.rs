//! A request body on its way to an upstream.
//!
//! Guarantees that it streams piece by piece, does not begin before the upstream asks for it where
//! the client waits for that, and is as long as its framing says.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame};
use tokio::time::Instant;

use tollgate_limiter::clock;
use tollgate_wire::body::{Body, BodyFailure, BoxError};
use tollgate_wire::http::h1::encode::{self, LAST_CHUNK};
use tollgate_wire::http::h1::write_buffer::WriteBuffer;
use tollgate_wire::http::trailers::AnnouncedTrailers;

/// A client that sends nothing for so long counts as what its upstream has waited for.
const SILENCE: Duration = Duration::from_secs(1);

/// A request body, as an upstream connection sends it.
pub struct Upload {
    body: Body,
    framing: UploadFraming,
    phase: UploadPhase,
    /// When the phase began, or when the upstream last took something. `None`: the upload has not
    /// started.
    since: Option<Instant>,
    /// The request has a body.
    has_body: bool,
    /// A part of the body was taken from the client.
    begun: bool,
}

/// The framing of the body, and how much of it is left.
enum UploadFraming {
    /// This many bytes are left.
    Length(u64),
    Chunked(AnnouncedTrailers),
}

/// The peer that an upload waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadPhase {
    /// The upstream, to ask for the body with a 100.
    AwaitingContinue,
    /// The upstream, to take more.
    Sending,
    /// The client, to send more.
    AwaitingClient,
    /// Nobody: all of it is written.
    Complete,
}

/// The state of an upload when its exchange fails.
#[derive(Clone, Copy, Debug)]
pub struct UploadStanding {
    /// All of the body was sent.
    pub complete: bool,
    /// The client has sent nothing for so long that the upstream may have given it up.
    pub client_silent: bool,
}

/// The body is not as long as its Content-Length says.
#[derive(Debug, thiserror::Error)]
#[error("the request body has another length than was announced")]
struct LengthMismatch;

impl Upload {
    /// An upload of `body`. `awaits_continue`: it starts once the upstream asks for it, or after a
    /// while (RFC 9110 §10.1.1: not for an indefinite time).
    pub fn new(body: Body, headers: &HeaderMap, awaits_continue: bool) -> Self {
        let has_body = !body.is_end_stream();
        let framing = match body.size_hint().exact() {
            Some(length) => UploadFraming::Length(length),
            None => UploadFraming::Chunked(AnnouncedTrailers::from_headers(headers)),
        };
        let phase = if !has_body {
            UploadPhase::Complete
        } else if awaits_continue {
            UploadPhase::AwaitingContinue
        } else {
            UploadPhase::Sending
        };
        Self {
            body,
            framing,
            phase,
            since: None,
            has_body,
            begun: false,
        }
    }

    /// The upload of a request that has no body.
    pub fn none() -> Self {
        Self::new(Body::empty(), &HeaderMap::new(), false)
    }

    /// The body, for a version of HTTP that frames it by itself.
    pub fn take_body(&mut self) -> Body {
        std::mem::replace(&mut self.body, Body::empty())
    }

    /// Puts the body back, to be sent from its beginning.
    pub fn restore(&mut self, body: Body) {
        self.body = body;
        if self.has_body && self.phase != UploadPhase::AwaitingContinue {
            self.phase = UploadPhase::Sending;
        }
    }

    /// Starts the upload, over a connection that was leased at `now`.
    pub fn start(&mut self, now: Instant) {
        self.since = Some(now);
    }

    pub fn phase(&self) -> UploadPhase {
        self.phase
    }

    /// When the phase began, or when the upstream last took something. `None`: the upload has not
    /// started.
    pub fn since(&self) -> Option<Instant> {
        self.since
    }

    pub fn is_complete(&self) -> bool {
        self.phase == UploadPhase::Complete
    }

    /// The state of the upload when its exchange fails.
    pub fn standing(&self) -> UploadStanding {
        let mut client_silent = false;
        if self.phase == UploadPhase::AwaitingClient
            && let Some(since) = self.since
        {
            client_silent = clock::now().saturating_duration_since(since) >= SILENCE;
        }
        UploadStanding {
            complete: self.is_complete(),
            client_silent,
        }
    }

    /// Follows a body that a sender of HTTP/2 sends. The body waits in `phase`, and has `moved`
    /// since the last call.
    pub fn follow(&mut self, phase: UploadPhase, moved: bool) {
        if moved || self.phase != phase {
            self.enter(phase);
        }
    }

    /// Whether the request has a body at all.
    pub fn has_body(&self) -> bool {
        self.has_body
    }

    /// Whether the body can still be sent from its beginning.
    pub fn is_unread(&self) -> bool {
        !self.begun
    }

    /// Whether the body has to wait for a 100. A client that has sent some of it waits for none, so
    /// the body does not either.
    pub fn must_await_continue(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.release_if_arrived(&mut cx);
        self.phase == UploadPhase::AwaitingContinue
    }

    fn release_if_arrived(&mut self, cx: &mut Context<'_>) {
        if self.phase == UploadPhase::AwaitingContinue && self.body.poll_arrived(cx).is_ready() {
            self.release();
        }
    }

    /// Starts a body that waits for a 100: the upstream asks for the body, or has taken too long.
    pub fn release(&mut self) {
        if self.phase == UploadPhase::AwaitingContinue {
            self.enter(UploadPhase::Sending);
        }
    }

    /// Records that the upstream has taken something.
    pub fn record_progress(&mut self) {
        self.since = Some(clock::now());
    }

    /// Moves what the client has sent to `output`, until `output` has enough to flush. The phase
    /// tells whether there is more. The task is woken when the client has sent more.
    pub fn move_to(
        &mut self,
        output: &mut WriteBuffer,
        cx: &mut Context<'_>,
    ) -> Result<(), BoxError> {
        self.release_if_arrived(cx);
        while !matches!(
            self.phase,
            UploadPhase::AwaitingContinue | UploadPhase::Complete
        ) && !output.is_enough()
        {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                if self.phase != UploadPhase::AwaitingClient {
                    self.enter(UploadPhase::AwaitingClient);
                }
                return Ok(());
            };
            if self.phase == UploadPhase::AwaitingClient {
                self.enter(UploadPhase::Sending);
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
                *left = left.checked_sub(data.len() as u64).ok_or(LengthMismatch)?;
                output.push_piece(data);
            }
            (UploadFraming::Chunked(_), Ok(data)) => output.push_chunk(data),
            (UploadFraming::Chunked(announced), Err(frame)) => {
                if let Ok(trailers) = frame.into_trailers() {
                    output.push(|out| encode::last_chunk(out, announced, &trailers));
                    self.enter(UploadPhase::Complete);
                }
                return Ok(());
            }
            // Without chunks there is no place for trailers.
            (UploadFraming::Length(_), Err(_)) => {}
        }
        if self.body.is_end_stream() {
            self.end(output)
        } else {
            Ok(())
        }
    }

    fn end(&mut self, output: &mut WriteBuffer) -> Result<(), BoxError> {
        match self.framing {
            UploadFraming::Length(0) => {}
            UploadFraming::Length(_) => return Err(LengthMismatch.into()),
            UploadFraming::Chunked(_) => output.push(|out| out.extend_from_slice(LAST_CHUNK)),
        }
        self.enter(UploadPhase::Complete);
        Ok(())
    }

    fn enter(&mut self, phase: UploadPhase) {
        self.phase = phase;
        self.since = Some(clock::now());
    }

    /// The error of a client that has sent nothing for too long.
    pub fn timed_out() -> BoxError {
        BodyFailure::Timeout.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_here_waits_for_no_100() {
        let present = Body::from(Bytes::from_static(b"hi"));
        let absent = Body::boxed(http_body_util::StreamBody::new(
            futures_util::stream::pending(),
        ));
        let mut output = WriteBuffer::default();
        for (body, phase) in [
            (present, UploadPhase::Complete),
            (absent, UploadPhase::AwaitingContinue),
        ] {
            let mut upload = Upload::new(body, &HeaderMap::new(), true);
            upload
                .move_to(&mut output, &mut Context::from_waker(Waker::noop()))
                .unwrap();
            assert_eq!(upload.phase(), phase);
        }
    }
}
