//! Sends the requests of a route with `retry` again, by the conditions that the route names.
//!
//! Guarantees that a request is sent again only while its client has got nothing, while its body is
//! there from its beginning, and while the upstream's retry budget pays for it. Otherwise the
//! client gets the answer there is.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body as _;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout_at};

use super::connection::upstream_request::UpstreamRequest;
use super::forward::{EndpointChoice, Proxy, admit};
use super::replay::ReplayBody;
use super::report::ForwardReport;
use super::request_source::RequestSource;
use super::retry::is_idempotent;
use crate::upstream::balance::Tried;
use crate::upstream::endpoints::PickedEndpoint;
use crate::upstream::metrics::RetriedOutcome;
use crate::upstream::{Destination, Upstream};
use tollgate_limiter::clock::{self, Instant};
use tollgate_spec::route::Forward;
use tollgate_spec::route::retry::{RetryPolicy, asked_wait, follows_failure, follows_response};
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;
use tollgate_wire::http::deadline::LONGEST_WAIT;

/// Pieces of an answer's body that are read when it is given up, so that its connection may be used
/// again.
const MOST_DRAINED: usize = 16;

/// How the requests of a route are sent again.
pub struct RetryTerms<'a> {
    pub policy: &'a RetryPolicy,
    /// When the request is over in any case.
    pub deadline: Option<Instant>,
    /// Records the endpoints that the request goes to. `None`: no log wants them.
    pub report: Option<&'a mut ForwardReport>,
}

/// How long an attempt may take.
#[derive(Clone, Copy)]
struct AttemptLimit<'a> {
    per_try: Option<Duration>,
    /// The body that is kept to be sent again. `None`: the request has none.
    kept: Option<&'a ReplayBody>,
}

/// Picks endpoints that the request has not failed at, as long as there are any.
struct AnotherEndpoint<'a> {
    failed: Tried,
    report: Option<&'a mut ForwardReport>,
}

type Answer = Result<Response<Body>, Failure>;

impl Proxy {
    /// Like [`forward`](Self::forward), with more than one attempt.
    pub async fn forward_with_retries(
        &self,
        request: &mut Request<Body>,
        rule: &Forward,
        destination: Destination<'_>,
        source: RequestSource<'_>,
        terms: RetryTerms<'_>,
    ) -> Answer {
        let outcome = destination.upstream.metrics().request(source.deadline);
        let result = match UpstreamRequest::prepare(request, rule, source) {
            Ok(mut request) => match admit(destination.upstream) {
                // A request has one place, however often it is sent.
                Ok(_place) => {
                    self.attempt_all(&mut request, destination, source, terms)
                        .await
                }
                Err(failure) => Err(failure),
            },
            Err(failure) => Err(failure),
        };
        outcome.finish(&result);
        result
    }

    async fn attempt_all(
        &self,
        request: &mut UpstreamRequest<'_>,
        destination: Destination<'_>,
        source: RequestSource<'_>,
        terms: RetryTerms<'_>,
    ) -> Answer {
        let policy = terms.policy;
        let is_upgrade = request.upgrade.is_some();
        let kept = request.keep_body(policy.keep_body);
        let limit = AttemptLimit {
            per_try: policy.per_try,
            kept: kept.as_ref(),
        };
        let mut choice = AnotherEndpoint {
            failed: Tried::by(source.affinity),
            report: terms.report,
        };
        let mut decider = RetryDecider {
            policy,
            deadline: terms.deadline,
            upstream: destination.upstream,
            attempts: 0,
            over_budget: false,
        };
        loop {
            decider.attempts += 1;
            let answer = self
                .attempt(request, destination, source, limit, &mut choice)
                .await;
            let may_retry = !(is_upgrade && answer.is_ok())
                && decider.sends_again(request, &answer)
                && !source.interim.is_used()
                && request.is_renewable(kept.as_ref());
            let mut pause = None;
            if may_retry {
                pause = decider.pause(&answer);
            }
            // Renewed last: from then on, what may still be sent of this attempt fails.
            if pause.is_some() && !request.renew(kept.as_ref()) {
                pause = None;
            }
            let Some(pause) = pause else {
                if let Some(kept) = kept {
                    kept.forget();
                }
                decider.finish(&answer);
                return answer;
            };
            if let Ok(response) = answer {
                drain(response.into_body());
            }
            destination.upstream.metrics().retried();
            if pause.is_zero() {
                yield_now().await
            } else {
                sleep(pause).await
            }
        }
    }

    /// Sends the request once, for no longer than an attempt may take. Time in which the client
    /// sends the body does not count.
    async fn attempt(
        &self,
        request: &mut UpstreamRequest<'_>,
        destination: Destination<'_>,
        mut source: RequestSource<'_>,
        limit: AttemptLimit<'_>,
        choice: &mut AnotherEndpoint<'_>,
    ) -> Answer {
        source.begun = clock::now();
        let Some(per_try) = limit.per_try else {
            return Box::pin(self.exchange(request, destination, &source, choice)).await;
        };
        let per_try = per_try.min(LONGEST_WAIT);
        let mut deadline = source.begun + per_try;
        let mut pieces = limit.pieces_sent();
        source.deadline = match source.deadline {
            Some(end) => Some(end.min(deadline)),
            None => Some(deadline),
        };
        let mut exchange = Box::pin(self.exchange(request, destination, &source, choice));
        loop {
            if let Ok(answer) = timeout_at(deadline, exchange.as_mut()).await {
                return answer;
            }
            // An endpoint that takes nothing of a body that is there is as slow as one that does
            // not answer.
            if !limit.awaits_client() && limit.pieces_sent() <= pieces {
                return Err(Failure::ResponseTimeout);
            }
            pieces = limit.pieces_sent();
            deadline = clock::now() + per_try;
        }
    }
}

impl AttemptLimit<'_> {
    /// Pieces of the body that attempts were given so far.
    fn pieces_sent(&self) -> usize {
        match self.kept {
            Some(body) => body.pieces(),
            None => 0,
        }
    }

    /// Whether the attempt waits for the client to send more of the body.
    fn awaits_client(&self) -> bool {
        self.kept.is_some_and(ReplayBody::awaits_client)
    }
}

/// Decides whether a request is sent again.
struct RetryDecider<'a> {
    policy: &'a RetryPolicy,
    deadline: Option<Instant>,
    upstream: &'a Upstream,
    attempts: u32,
    /// The budget did not pay for another attempt.
    over_budget: bool,
}

impl RetryDecider<'_> {
    /// Whether the route retries after this answer, and what was sent allows it.
    fn sends_again(&self, request: &UpstreamRequest<'_>, answer: &Answer) -> bool {
        let on = &self.policy.on;
        let is_listed = match answer {
            Ok(response) => follows_response(on, response.status(), response.headers()),
            Err(failure) => follows_failure(on, failure),
        };
        // A request that was sent has handed its upload over.
        let is_unsent = request.upload.is_some();
        is_listed && (is_unsent || self.policy.non_idempotent || is_idempotent(request.method()))
    }

    /// How long the request waits before it is sent again. `None`: it is not sent again.
    fn pause(&mut self, answer: &Answer) -> Option<Duration> {
        let mut pause = self.policy.back_off.pause(self.attempts);
        if let (Ok(response), Some(longest)) = (answer, self.policy.retry_after)
            && let Some(retry_after) = asked_wait(response.headers())
        {
            if retry_after > longest {
                return None;
            }
            pause = pause.max(retry_after);
        }
        let in_time = self
            .deadline
            .is_none_or(|deadline| clock::now() + pause < deadline);
        if self.attempts >= self.policy.attempts || !in_time || !self.upstream.admits_retry() {
            return None;
        }
        self.over_budget = !self.upstream.budget().withdraw();
        if self.over_budget { None } else { Some(pause) }
    }

    /// Counts a request that was sent again, or would have been, and gets this answer.
    fn finish(&self, answer: &Answer) {
        if !self.over_budget && self.attempts <= 1 {
            return;
        }
        let failed = match answer {
            Ok(response) => {
                follows_response(&self.policy.on, response.status(), response.headers())
            }
            Err(_) => true,
        };
        let outcome = if self.over_budget {
            RetriedOutcome::OverBudget
        } else if failed {
            RetriedOutcome::Failed
        } else {
            RetriedOutcome::Succeeded
        };
        self.upstream.metrics().retries_ended(outcome);
    }
}

impl EndpointChoice for AnotherEndpoint<'_> {
    fn pick(&mut self, upstream: &Upstream, tried: &mut Tried) -> Option<PickedEndpoint> {
        let picked = if tried.count() == 0 {
            let picked = upstream.pick_another(&mut self.failed)?;
            tried.add(&picked);
            picked
        } else {
            upstream.pick(tried)?
        };
        if let Some(report) = &mut self.report {
            report.begin(&picked);
        }
        Some(picked)
    }

    fn answered(&mut self, now: Instant) {
        if let Some(report) = &mut self.report {
            report.answered(now);
        }
    }
}

/// Reads the part of an unwanted body that is there. If that is all, its connection is used again.
fn drain(body: Body) {
    let mut body = pin!(body);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..MOST_DRAINED {
        if !matches!(body.as_mut().poll_frame(&mut cx), Poll::Ready(Some(Ok(_)))) {
            return;
        }
    }
}
