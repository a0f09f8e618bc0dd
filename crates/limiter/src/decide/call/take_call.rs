//! A call for the tokens of requests, which may give it up.
//!
//! Guarantees that a call which was given up goes on, so that its answer is not lost, for a bounded
//! time, and that the number of such calls is bounded. The call is owned and boxed for that; it
//! becomes a task of its own only when it is late.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::time::{timeout, timeout_at};

use crate::clock::{self, Instant};
use crate::decide::call::late_call::{LateCall, NoAnswer};
use crate::decide::check::TokenChecks;
use crate::decide::store_client::StoreClient;
use crate::store::{self, Grant, StoreFailure};

/// A call that has not ended.
pub(crate) struct TakeCall {
    client: Arc<StoreClient>,
    checks: Arc<TokenChecks>,
    requests: u32,
    sent_us: u64,
    /// Units that a late answer grants to no request come back.
    refunds: bool,
    answer: BoxFuture<'static, Result<Grant, StoreFailure>>,
}

impl TakeCall {
    /// Prepares to ask for `requests` equal requests. A leased limit also takes tokens ahead, as
    /// many as are of use.
    pub fn new(client: &Arc<StoreClient>, checks: &Arc<TokenChecks>, requests: u32) -> Self {
        let sent_us = clock::monotonic_micros();
        let owned_client = client.clone();
        let owned_checks = checks.clone();
        let answer = async move {
            let ahead = owned_client.units_ahead(&owned_checks, requests, sent_us);
            owned_client
                .ask(&owned_checks, requests, ahead, sent_us)
                .await
        };
        Self {
            client: client.clone(),
            checks: checks.clone(),
            requests,
            sent_us,
            refunds: true,
            answer: answer.boxed(),
        }
    }

    /// The longest that its requests wait.
    pub fn timeout(&self) -> Duration {
        self.client.timeout()
    }

    /// This call, of which nothing is refunded: its tokens were charged in advance.
    #[must_use]
    pub fn without_refunds(self) -> Self {
        Self {
            refunds: false,
            ..self
        }
    }

    /// The store's answer, or `None` if it could not decide. An error: `deadline` has passed.
    pub async fn answer_by(&mut self, deadline: Instant) -> Result<Option<Grant>, Late> {
        let answer = timeout_at(deadline, &mut self.answer)
            .await
            .map_err(|_| Late)?;
        Ok(self
            .client
            .hear_grant(answer, &self.checks, self.requests, self.sent_us))
    }

    /// The store's answer to requests that all wait until `deadline`. The call goes on after that.
    pub async fn grant_by(mut self, deadline: Instant) -> Result<Grant, NoAnswer> {
        match self.answer_by(deadline).await {
            Ok(Some(grant)) => Ok(grant),
            Ok(None) => Err(NoAnswer(None)),
            Err(Late) => {
                let late = self.late();
                self.give_up(late.clone());
                Err(NoAnswer(Some(late)))
            }
        }
    }

    /// A note for requests that stop waiting for this call.
    pub fn late(&self) -> Arc<LateCall> {
        Arc::new(LateCall::new(
            self.client.clone(),
            self.checks.clone(),
            self.refunds,
        ))
    }

    /// Lets the call go on when no request waits for it any more. All of its requests have `late`.
    pub fn give_up(self, late: Arc<LateCall>) {
        let Self {
            client,
            checks,
            requests,
            sent_us,
            answer,
            ..
        } = self;
        client.give_up(&checks, requests, sent_us);
        let place = client.late_calls.clone().try_acquire_owned();
        let (Ok(place), Ok(runtime)) = (place, Handle::try_current()) else {
            return;
        };
        let limit = store::late_answer_limit(client.timeout());
        let age = Duration::from_micros(clock::monotonic_micros().saturating_sub(sent_us));
        runtime.spawn(async move {
            // A little more, so that the store says which of its servers did not answer.
            match timeout(limit.saturating_sub(age) + client.timeout(), answer).await {
                Ok(Ok(grant)) => {
                    client.node.outcomes.count_late();
                    late.answered(grant.units.min(requests), grant.at_us);
                }
                Ok(Err(failure)) => client.blame(&checks, &failure, requests),
                Err(_) => {}
            }
            drop(place);
        });
    }
}

/// The deadline has passed before the answer came.
pub(crate) struct Late;
