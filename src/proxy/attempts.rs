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
use crate::body::Body;
use crate::clock::{self, Instant};
use crate::error::Failure;
use crate::http::deadline::LONGEST_WAIT;
use crate::route::Forward;
use crate::route::retry::{RetryPolicy, asked_wait, follows_failure, follows_response};
use crate::upstream::balance::Tried;
use crate::upstream::endpoints::PickedEndpoint;
use crate::upstream::metrics::RetriedOutcome;
use crate::upstream::{Destination, Upstream};

/// Pieces of an answer's body that are read when it is given up, so that its connection may be used
/// again.
const MOST_DRAINED: usize = 16;

/// How the requests of a route are sent again.
pub struct Retrying<'a> {
    pub policy: &'a RetryPolicy,
    /// When the request is over in any case.
    pub ends: Option<Instant>,
    /// Takes note of the endpoints that it goes to, if somebody asks.
    pub report: Option<&'a mut ForwardReport>,
}

/// The endpoints that a request has failed at. Others go first.
struct AnotherEndpoint<'a> {
    before: Tried,
    report: Option<&'a mut ForwardReport>,
}

type Answer = Result<Response<Body>, Failure>;

impl Proxy {
    /// Like [`forward`](Self::forward), with more than one attempt.
    pub async fn forward_again(
        &self,
        request: &mut Request<Body>,
        rule: &Forward,
        destination: Destination<'_>,
        (source, retrying): (RequestSource<'_>, Retrying<'_>),
    ) -> Answer {
        let outcome = destination.upstream.metrics().request(source.deadline);
        let result = match UpstreamRequest::prepare(request, rule, source) {
            Ok(mut request) => match admit(destination.upstream) {
                // It has one place, however often it is sent.
                Ok(_place) => {
                    self.attempt_all(&mut request, destination, source, retrying)
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
        retrying: Retrying<'_>,
    ) -> Answer {
        let Retrying {
            policy,
            ends,
            report,
        } = retrying;
        let is_upgrade = request.upgrade.is_some();
        let kept = request.keep_body(policy.keep_body);
        let mut choice = AnotherEndpoint {
            before: Tried::by(source.affinity),
            report,
        };
        let mut judge = Judge {
            policy,
            ends,
            upstream: destination.upstream,
            attempts: 0,
            over_budget: false,
        };
        loop {
            judge.attempts += 1;
            let answer = self
                .attempt(
                    request,
                    (destination, source),
                    policy.per_try,
                    (&mut choice, kept.as_ref()),
                )
                .await;
            let may = !(is_upgrade && answer.is_ok())
                && judge.sends_again(request, &answer)
                && !source.interim.is_used()
                && request.is_renewable(kept.as_ref());
            // Renewed last: from then on, what may still be sent of this attempt fails.
            let pause = may
                .then(|| judge.pause(&answer))
                .flatten()
                .filter(|_| request.renew(kept.as_ref()));
            let Some(pause) = pause else {
                if let Some(kept) = kept {
                    kept.forget();
                }
                judge.finish(&answer);
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

    /// Sends it once, for no longer than an attempt may take. The time in which its client sends
    /// its body does not count.
    async fn attempt(
        &self,
        request: &mut UpstreamRequest<'_>,
        (destination, mut source): (Destination<'_>, RequestSource<'_>),
        per_try: Option<Duration>,
        (choice, kept): (&mut AnotherEndpoint<'_>, Option<&ReplayBody>),
    ) -> Answer {
        source.begun = clock::now();
        let Some(per_try) = per_try.map(|time| time.min(LONGEST_WAIT)) else {
            return Box::pin(self.exchange(request, destination, &source, choice)).await;
        };
        let mut deadline = source.begun + per_try;
        let mut pieces = kept.map_or(0, ReplayBody::pieces);
        source.deadline = Some(source.deadline.map_or(deadline, |end| end.min(deadline)));
        let mut exchange = Box::pin(self.exchange(request, destination, &source, choice));
        loop {
            match timeout_at(deadline, exchange.as_mut()).await {
                Ok(answer) => return answer,
                // An endpoint that takes nothing of a body that is there is as slow as one that
                // does not answer.
                Err(_)
                    if kept.is_some_and(|body| body.awaits_client() || body.pieces() > pieces) =>
                {
                    pieces = kept.map_or(0, ReplayBody::pieces);
                    deadline = clock::now() + per_try;
                }
                Err(_) => return Err(Failure::ResponseTimeout),
            }
        }
    }
}

/// Decides whether a request is sent again.
struct Judge<'a> {
    policy: &'a RetryPolicy,
    ends: Option<Instant>,
    upstream: &'a Upstream,
    attempts: u32,
    /// The budget did not pay for another attempt.
    over_budget: bool,
}

impl Judge<'_> {
    /// Whether the route wants it, and what was sent does not forbid it.
    fn sends_again(&self, request: &UpstreamRequest<'_>, answer: &Answer) -> bool {
        let on = &self.policy.on;
        let wanted = match answer {
            Ok(response) => follows_response(on, response.status(), response.headers()),
            Err(failure) => follows_failure(on, failure),
        };
        // A request that was sent has handed its upload over.
        let is_unsent = request.upload.is_some();
        wanted && (is_unsent || self.policy.non_idempotent || is_idempotent(request.method()))
    }

    /// How long it waits before it is sent again. `None`: it is not.
    fn pause(&mut self, answer: &Answer) -> Option<Duration> {
        let asked = answer.as_ref().ok().zip(self.policy.retry_after);
        let asked =
            asked.and_then(|(response, longest)| Some((asked_wait(response.headers())?, longest)));
        let pause = match asked {
            Some((asked, longest)) if asked > longest => return None,
            Some((asked, _)) => asked.max(self.policy.back_off.pause(self.attempts)),
            None => self.policy.back_off.pause(self.attempts),
        };
        let in_time = self.ends.is_none_or(|end| clock::now() + pause < end);
        if self.attempts >= self.policy.attempts || !in_time || !self.upstream.admits_retry() {
            return None;
        }
        self.over_budget = !self.upstream.budget().withdraw();
        (!self.over_budget).then_some(pause)
    }

    /// Counts a request that was sent again, or would have been, and gets this answer.
    fn finish(&self, answer: &Answer) {
        let failed = match answer {
            Ok(response) => {
                follows_response(&self.policy.on, response.status(), response.headers())
            }
            Err(_) => true,
        };
        let outcome = match (self.over_budget, self.attempts, failed) {
            (true, ..) => RetriedOutcome::OverBudget,
            (false, 0 | 1, _) => return,
            (false, _, true) => RetriedOutcome::Failed,
            (false, _, false) => RetriedOutcome::Succeeded,
        };
        self.upstream.metrics().retries_ended(outcome);
    }
}

impl EndpointChoice for AnotherEndpoint<'_> {
    fn pick(&mut self, upstream: &Upstream, tried: &mut Tried) -> Option<PickedEndpoint> {
        let picked = match tried.count() {
            0 => {
                let picked = upstream.pick_another(&mut self.before)?;
                tried.add(&picked);
                picked
            }
            _ => upstream.pick(tried)?,
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

/// Reads what is there of a body that nobody wants: if that is all, its connection is used again.
fn drain(body: Body) {
    let mut body = pin!(body);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..MOST_DRAINED {
        if !matches!(body.as_mut().poll_frame(&mut cx), Poll::Ready(Some(Ok(_)))) {
            return;
        }
    }
}
