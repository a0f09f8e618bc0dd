//! How long an exchange waits for its upstream, or for its client's request body, before there is a response.
//!
//! | it waits for | time limit | begins anew when |
//! |---|---|---|
//! | a 100 before the body | [`CONTINUE_WAIT`]; then the body is sent | never |
//! | the client to send more of the body | `idle_timeout`; then 408 | a piece comes |
//! | the upstream to take more | `idle_timeout`; then 504 | it takes something |
//! | the response | `response_timeout`; then 504 | the upstream takes more of the request's body |

use std::task::Context;
use std::time::Duration;

use super::{ExchangeError, UpstreamConnection};
use crate::clock;
use crate::proxy::connection::upload::{CONTINUE_WAIT, Upload, UploadPhase};

impl UpstreamConnection {
    /// The time before which nothing is overdue.
    pub(super) fn first_deadline(&self) -> Duration {
        let spec = &self.spec;
        match self.phase() {
            UploadPhase::AwaitingContinue => CONTINUE_WAIT,
            UploadPhase::Sending | UploadPhase::AwaitingClient => spec.idle_timeout.min(spec.response_timeout),
            UploadPhase::Complete => spec.response_timeout,
        }
    }

    /// Whether a deadline made something happen. An error once the exchange is overdue. The response timeout begins
    /// when the request is complete; before, the deadline is that of the peer whose turn it is.
    pub(super) fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Result<bool, ExchangeError> {
        if self.timer.poll(cx, self.due).is_pending() {
            return Ok(false);
        }
        self.check_deadline().map(|()| true)
    }

    /// Handles what is due by now, and sets the next deadline.
    pub(super) fn check_deadline(&mut self) -> Result<(), ExchangeError> {
        let (phase, since) = match &self.exchange.upload {
            Some(upload) => (upload.phase(), upload.since().unwrap_or(self.leased_at)),
            None => (UploadPhase::Complete, self.leased_at),
        };
        let timeout = match phase {
            UploadPhase::AwaitingContinue => CONTINUE_WAIT,
            UploadPhase::AwaitingClient | UploadPhase::Sending => self.spec.idle_timeout,
            UploadPhase::Complete => self.spec.response_timeout,
        };
        let due = since + timeout;
        if clock::now() < due {
            self.due = due;
            return Ok(());
        }
        match (phase, &mut self.exchange.upload) {
            (UploadPhase::AwaitingContinue, Some(upload)) => upload.release(),
            (UploadPhase::AwaitingClient, _) => return Err(ExchangeError::Body(Upload::timed_out())),
            _ => return Err(ExchangeError::Overdue),
        }
        self.due = clock::now() + self.spec.idle_timeout.min(self.spec.response_timeout);
        Ok(())
    }
}
