//! A service behind limits: the one driver of admission, whatever the request is.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::decide::limiter::Limiter;
use crate::layer::limited_request::{Admitted, LimitedRequest, LimiterOf};
use crate::limit::client_address::TrustedProxies;
use crate::request::admission::Admission;
use crate::request::permit::Unanswered;
use crate::request::rule_set::{Judgement, RuleSet};

/// A service behind limits. Made by [`RateLimitLayer`](crate::layer::RateLimitLayer).
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response, StatusCode};
/// use http_body_util::Full;
/// use tollgate_limiter::{Limit, RateLimitLayer, everyone};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let layer = RateLimitLayer::in_memory([Limit::per_hour("all", 1).key(everyone())])?;
/// let hello = service_fn(async |_| Ok::<_, std::convert::Infallible>(Response::new(Full::from("hello"))));
/// let service = layer.layer(hello);
/// for expected in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
///     assert_eq!(service.clone().oneshot(Request::new(Full::<Bytes>::default())).await?.status(), expected);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RateLimit<S, L = Limiter> {
    inner: S,
    limits: LayerLimits<L>,
}

/// The limits before a service, and who decides on them.
#[derive(Clone)]
pub(super) struct LayerLimits<L> {
    pub limiter: L,
    pub rules: Arc<RuleSet>,
    /// The proxies whose word on the client's address counts.
    pub trusted: Option<Arc<TrustedProxies>>,
}

impl<S, L> RateLimit<S, L> {
    pub(super) fn new(inner: S, limits: LayerLimits<L>) -> Self {
        Self { inner, limits }
    }
}

impl<S, L, R> Service<R> for RateLimit<S, L>
where
    S: Service<R> + Clone,
    L: LimiterOf<R>,
    R: LimitedRequest<S::Response, S::Error>,
{
    type Response = R::Response;
    type Error = S::Error;
    type Future = RateLimited<S, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: R) -> RateLimited<S, R> {
        let LayerLimits {
            limiter: limiter_of,
            rules,
            trusted,
        } = &self.limits;
        let limiter = limiter_of.limiter(&request);
        let step = match request.with_facts(trusted.as_deref(), |facts| rules.admit(limiter, facts))
        {
            Admission::Judged(judgement) => go_on(&mut self.inner, request, judgement, limiter_of),
            Admission::Waiting(judging) => {
                let limiter = limiter.clone();
                // The service that was polled ready must be the one that is called: a clone of it
                // need not be ready.
                let clone = self.inner.clone();
                let inner = std::mem::replace(&mut self.inner, clone);
                Step::Waiting {
                    judging,
                    then: Some((inner, limiter, request)),
                }
            }
        };
        RateLimited { step }
    }
}

/// Refuses a judged request, or lets the service answer it.
#[inline]
fn go_on<S, R, L>(
    inner: &mut S,
    mut request: R,
    judgement: Judgement,
    limiter_of: &L,
) -> Step<S, R, S::Future>
where
    S: Service<R> + Clone,
    R: LimitedRequest<S::Response, S::Error>,
    L: LimiterOf<R>,
{
    let Judgement {
        fields,
        denied,
        degraded,
        reserved,
    } = judgement;
    if let Some(denial) = denied {
        // A request that is refused for what it lacks was counted, and no response tells its cost.
        let mut permit = reserved.hold(limiter_of.limiter(&request));
        permit.failed(denial.status(), Unanswered::Refused);
        release(inner);
        return Step::answered(request.refuse(denial, fields));
    }
    // From here on the permit holds what was reserved: dropping it gives that back.
    let permit = reserved.hold(limiter_of.limiter(&request));
    match request.admit(Admitted {
        fields,
        permit,
        degraded,
    }) {
        ControlFlow::Continue(kept) => Step::Passing {
            answering: inner.call(request),
            kept: Some(kept),
        },
        ControlFlow::Break(answer) => {
            release(inner);
            Step::answered(answer)
        }
    }
}

/// Drops what the service reserved when it was polled ready, such as a place among its requests in
/// flight: it is not called.
#[inline]
fn release<S: Clone>(inner: &mut S) {
    let clone = inner.clone();
    *inner = clone;
}

pin_project! {
    /// The answer to come.
    pub struct RateLimited<S, R>
    where
        S: Service<R>,
        R: LimitedRequest<S::Response, S::Error>,
    {
        #[pin]
        step: Step<S, R, S::Future>,
    }
}

pin_project! {
    #[project = StepProjection]
    enum Step<S, R, F>
    where
        S: Service<R>,
        R: LimitedRequest<S::Response, S::Error>,
    {
        Waiting { judging: BoxFuture<'static, Judgement>, then: Option<(S, Limiter, R)> },
        Passing { #[pin] answering: F, kept: Option<R::Kept> },
        Answered { answer: Option<R::Immediate> },
    }
}

impl<S, R, F> Step<S, R, F>
where
    S: Service<R>,
    R: LimitedRequest<S::Response, S::Error>,
{
    #[inline]
    fn answered(answer: R::Immediate) -> Self {
        Self::Answered {
            answer: Some(answer),
        }
    }
}

impl<S, R> Future for RateLimited<S, R>
where
    S: Service<R> + Clone,
    R: LimitedRequest<S::Response, S::Error>,
{
    type Output = Result<R::Response, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.step.as_mut().project() {
                StepProjection::Waiting { judging, then } => {
                    let judgement = ready!(judging.as_mut().poll(cx));
                    let Some((mut inner, limiter, request)) = then.take() else {
                        return Poll::Pending;
                    };
                    go_on(&mut inner, request, judgement, &limiter)
                }
                StepProjection::Passing { answering, kept } => {
                    let answer = ready!(answering.poll(cx));
                    let Some(kept) = kept.take() else {
                        return Poll::Pending;
                    };
                    return Poll::Ready(answer.map(|answer| R::finish(kept, answer)));
                }
                StepProjection::Answered { answer } => {
                    return answer
                        .take()
                        .map_or(Poll::Pending, |answer| Poll::Ready(R::answer(answer)));
                }
            };
            this.step.set(next);
        }
    }
}
