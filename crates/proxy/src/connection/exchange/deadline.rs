//! How long an exchange waits for its upstream, or for its client's request body: the waits of
//! [`UpstreamWait`], whose table says what restarts each of them.

use std::task::Context;
use std::time::Duration;

use super::UpstreamConnection;
use crate::connection::failure::ExchangeError;
use crate::connection::upload::{Upload, UploadPhase};
use tollgate_limiter::clock;
use tollgate_wire::http::deadline::{UpstreamWait, Wait as _};

impl UpstreamConnection {
    /// The time before which nothing is overdue.
    pub(super) fn first_deadline(&self) -> Duration {
        match self.phase() {
            UploadPhase::Sending | UploadPhase::AwaitingClient => self.shortest_wait(),
            phase => wait_of(phase).limit(&self.timeouts),
        }
    }

    /// The time that no wait of an upload that has begun is over before.
    fn shortest_wait(&self) -> Duration {
        let [sends, head] = [UpstreamWait::ClientSends, UpstreamWait::ResponseHead];
        sends.limit(&self.timeouts).min(head.limit(&self.timeouts))
    }

    /// Whether a deadline made something happen. An error once the exchange is overdue. The
    /// response timeout begins when the request is complete; before, the deadline is that of the
    /// peer whose turn it is.
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
        let due = since + wait_of(phase).limit(&self.timeouts);
        if clock::now() < due {
            self.due = due;
            return Ok(());
        }
        match (phase, &mut self.exchange.upload) {
            (UploadPhase::AwaitingContinue, Some(upload)) => upload.release(),
            (UploadPhase::AwaitingClient, _) => {
                return Err(ExchangeError::Body(Upload::timed_out()));
            }
            _ => {
                if !self.has_taken_more() {
                    return Err(ExchangeError::Overdue);
                }
            }
        }
        self.due = clock::now() + self.shortest_wait();
        Ok(())
    }
}

/// The wait of an exchange without a response whose upload is in this phase.
fn wait_of(phase: UploadPhase) -> UpstreamWait {
    match phase {
        UploadPhase::AwaitingContinue => UpstreamWait::Continue,
        UploadPhase::AwaitingClient => UpstreamWait::ClientSends,
        UploadPhase::Sending => UpstreamWait::UpstreamTakes,
        UploadPhase::Complete => UpstreamWait::ResponseHead,
    }
}
