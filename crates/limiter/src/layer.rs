//! The limiter as a tower layer, for anyone's service: `Router::layer` of axum takes it as it is.
//!
//! A request that a limit denies is answered 429 at once and its body is never read; every answer says what is left.
//! It is the same limiter that the gateway runs. Not to be mistaken for `tower::limit::RateLimitLayer`, which makes
//! requests wait and knows no clients.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::extract::{ConnectInfo, MatchedPath};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::decide::decision::Decision as Decided;
use crate::decide::limiter::Limiter;
use crate::decide::plans::cache::PlanCaches;
use crate::limit::algorithm_kind::QuotaError;
use crate::limit::fixed_response::FixedResponse;
use crate::limit::host;
use crate::limit::key::Facts;
use crate::limit::spec::{Degrade, Limit, LimitUse};
use crate::request::denial::Denial;
use crate::request::headers::RateLimitFields;
use crate::request::permit::Permit;
use crate::request::permit_body::PermitBody;
use crate::request::rule_set::{Judged, LargestCosts, Next, PendingRequest, RuleSet};

/// The field that a request's id is read from, for the problem of a denied one.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Puts limits before a service.
#[derive(Clone)]
pub struct RateLimitLayer {
    limiter: Limiter,
    rules: Arc<RuleSet>,
}

/// A service behind limits. Made by [`RateLimitLayer`].
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    layer: RateLimitLayer,
}

impl RateLimitLayer {
    /// A layer that holds every request to all of `limits`: a request that one of them denies charges none.
    ///
    /// A request that the limits let wait or send elsewhere in the gateway is refused here: a layer has neither a line nor
    /// another upstream.
    ///
    /// `client_ip` is the peer's address as axum's `ConnectInfo<SocketAddr>` tells it, `route` the `MatchedPath`; path
    /// parameters are not known here.
    ///
    /// # Errors
    /// When a limit's rate or burst is out of bounds.
    pub fn new(limiter: Limiter, limits: &[LimitUse]) -> Result<Self, QuotaError> {
        let limits: Vec<LimitUse> = limits.iter().map(on_the_spot).collect();
        let costs = LargestCosts::over(limits.iter());
        Ok(Self { limiter, rules: Arc::new(RuleSet::new(limits.iter(), &costs, &PlanCaches::default(), false)?) })
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { inner, layer: self.clone() }
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    ReqBody: http_body::Body,
    ResBody: http_body::Body<Data = Bytes> + From<Bytes>,
{
    type Response = Response<PermitBody<ResBody>>;
    type Error = S::Error;
    type Future = Limited<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        // The service that was polled ready must be the one that is called: a clone of it need not be ready.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let request_id = request.headers().get(REQUEST_ID).cloned();
        let step = match self.layer.ask(&request) {
            Err(failure) => Step::Refused { failure: Some(failure) },
            Ok(asking) => Step::Deciding { decision: self.layer.decide(asking), held: Some((inner, request)) },
        };
        Limited {
            step,
            layer: self.layer.clone(),
            request_id,
            fields: RateLimitFields::default(),
            holding: Permit::default(),
        }
    }
}

impl RateLimitLayer {
    fn ask<B: http_body::Body>(&self, request: &Request<B>) -> Result<PendingRequest, Denial> {
        let (extensions, host) = (request.extensions(), host::of(request.uri(), request.headers()));
        let facts = Facts {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            body_length: request.body().size_hint().exact(),
            client_ip: extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip()),
            host: &host,
            route: extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str),
            param: &|_| None,
        };
        let mut asking = PendingRequest::default();
        self.rules.ask(&facts, &mut asking)?;
        Ok(asking)
    }

    fn decide(&self, mut asking: PendingRequest) -> Decision {
        let wanted = asking.take_wanted();
        if let Some(reading) = self.limiter.read_plans(&wanted) {
            let (limiter, rules) = (self.limiter.clone(), self.rules.clone());
            return Decision::Waiting(Box::pin(async move {
                reading.await;
                rules.take_in(&mut asking, &wanted);
                let verdict = limiter.decide(&asking.asks).await;
                (asking, verdict)
            }));
        }
        if let Some(verdict) = self.limiter.decide_now(&asking.asks) {
            return Decision::Made(Some(Box::new((asking, verdict))));
        }
        let limiter = self.limiter.clone();
        Decision::Waiting(Box::pin(async move {
            let verdict = limiter.decide(&asking.asks).await;
            (asking, verdict)
        }))
    }
}

/// A decision that was made in process, or that waits for the store.
enum Decision {
    Made(Option<Box<(PendingRequest, Decided)>>),
    Waiting(BoxFuture<'static, (PendingRequest, Decided)>),
}

pin_project! {
    /// The answer to come.
    #[project = LimitedProj]
    pub struct Limited<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        step: Step<S, B, S::Future>,
        layer: RateLimitLayer,
        request_id: Option<HeaderValue>,
        fields: RateLimitFields,
        holding: Permit,
    }
}

pin_project! {
    #[project = StepProj]
    enum Step<S, B, F> {
        Refused { failure: Option<Denial> },
        Degraded { answer: Arc<FixedResponse> },
        Deciding { decision: Decision, held: Option<(S, Request<B>)> },
        Passing { #[pin] inner: F },
    }
}

impl<S, B, ResBody> Future for Limited<S, B>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    ResBody: http_body::Body<Data = Bytes> + From<Bytes>,
{
    type Output = Result<Response<PermitBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.step.as_mut().project() {
                StepProj::Refused { failure } => {
                    let Some(failure) = failure.take() else { return Poll::Pending };
                    let id = this.request_id.as_ref().and_then(|id| id.to_str().ok());
                    return Poll::Ready(Ok(answer(failure.respond(HeaderMap::new(), id), this.fields)));
                }
                StepProj::Degraded { answer: fixed } => {
                    let response = fixed.response();
                    this.holding.answered(response.headers());
                    this.holding.ended(true);
                    return Poll::Ready(Ok(answer(response, this.fields)));
                }
                StepProj::Passing { inner } => {
                    let response = ready!(inner.poll(cx))?;
                    let mut holding = std::mem::take(this.holding);
                    holding.answered(response.headers());
                    let response = response.map(|body| PermitBody::new(body, holding));
                    return Poll::Ready(Ok(answer(response, this.fields)));
                }
                StepProj::Deciding { decision, held } => {
                    let (mut asking, verdict) = ready!(decision.poll(cx));
                    if this.layer.rules.next(&mut asking, &verdict) == Next::AskAgain {
                        *decision = this.layer.decide(asking);
                        continue;
                    }
                    let Judged { fields, denied, degraded, reserved } = this.layer.rules.judge(&mut asking, verdict);
                    *this.holding = reserved.hold(&this.layer.limiter);
                    *this.fields = fields;
                    match (denied, degraded, held.take()) {
                        (None, Some(Degrade::Respond(answer)), _) => Step::Degraded { answer },
                        (None, _, Some((mut service, mut request))) => {
                            this.holding.prepare(request.headers_mut());
                            Step::Passing { inner: service.call(request) }
                        }
                        (denied, ..) => Step::Refused { failure: denied },
                    }
                }
            };
            this.step.set(next);
        }
    }
}

impl Decision {
    /// Must not be polled again once ready.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(PendingRequest, Decided)> {
        match self {
            Self::Made(made) => made.take().map_or(Poll::Pending, |made| Poll::Ready(*made)),
            Self::Waiting(waiting) => waiting.as_mut().poll(cx),
        }
    }
}

fn on_the_spot(LimitUse { limit, cost }: &LimitUse) -> LimitUse {
    let limit = Limit { on_limit: limit.on_limit.on_the_spot(), ..(**limit).clone() };
    LimitUse { limit: Arc::new(limit), cost: cost.clone() }
}

fn answer<B>(mut response: Response<B>, fields: &mut RateLimitFields) -> Response<B> {
    std::mem::take(fields).apply(response.headers_mut());
    response
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::num::{NonZeroU64, NonZeroUsize};
    use std::time::Duration;

    use axum::body::Body;
    use http::{HeaderName, StatusCode};
    use tower::{ServiceExt, service_fn};

    use super::*;
    use crate::limit::algorithm_kind::{Algorithm, Rate};
    use crate::limit::cost::{ByResponse, Cost, Field};
    use crate::limit::json_path::JsonPath;
    use crate::limit::key::{KeyPart, KeySpec, OnMissing};
    use crate::limit::rollout::Rollout;
    use crate::limit::spec::{OnLimit, Queueing};
    use crate::request::headers::{DEGRADED, RATELIMIT};
    use crate::store::memory::MemoryStore;

    /// One an hour for everyone together, but for `change`.
    fn layer(change: impl FnOnce(&mut Limit)) -> RateLimitLayer {
        let one = NonZeroU64::MIN;
        let key = KeySpec { parts: vec![KeyPart::Constant("all".into())], on_missing: OnMissing::Share };
        let rate = Rate { tokens: one, period_us: NonZeroU64::new(3_600_000_000).unwrap() };
        let mut limit = Limit::new("l", key, rate, one);
        change(&mut limit);
        let limits = [LimitUse { limit: Arc::new(limit), cost: None }];
        RateLimitLayer::new(Limiter::local(Arc::new(MemoryStore::new(100))), &limits).unwrap()
    }

    async fn ask(layer: &RateLimitLayer) -> Response<PermitBody<Body>> {
        let inner = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::from("inner"))));
        layer.layer(inner).oneshot(Request::new(Body::empty())).await.unwrap()
    }

    #[tokio::test]
    async fn where_a_request_cannot_wait_it_is_refused() {
        let bounds = Queueing { max_wait: Duration::from_secs(3_600), max_waiting: NonZeroUsize::MIN };
        for elsewhere in [OnLimit::Queue(bounds), OnLimit::Degrade(Degrade::Upstream("cheap".into()))] {
            let layer = layer(|limit| limit.on_limit = elsewhere);
            assert_eq!(ask(&layer).await.status(), StatusCode::OK);
            assert_eq!(ask(&layer).await.status(), StatusCode::TOO_MANY_REQUESTS);
        }
    }

    #[tokio::test]
    async fn something_cheaper_that_is_at_hand_is_given() {
        let answer = Arc::new(FixedResponse { status: StatusCode::ACCEPTED, headers: vec![], body: "later".into() });
        let layer = layer(|limit| limit.on_limit = OnLimit::Degrade(Degrade::Respond(answer)));
        assert_eq!(ask(&layer).await.status(), StatusCode::OK);
        let degraded = ask(&layer).await;
        assert_eq!(
            (degraded.status(), &degraded.headers()[DEGRADED]),
            (StatusCode::ACCEPTED, &HeaderValue::from_static("l"))
        );
        assert_eq!(degraded.headers()[RATELIMIT], "\"l\";r=0;t=3600");
    }

    /// A thousand an hour, of which a request reserves a hundred.
    fn settling(field: Field) -> RateLimitLayer {
        let nonzero = |number| NonZeroU64::new(number).unwrap();
        layer(|limit| {
            let rate = Rate { tokens: nonzero(1_000), period_us: nonzero(3_600_000_000) };
            limit.algorithm = Algorithm::TokenBucket { rate, burst: nonzero(1_000) };
            limit.cost = Cost::Response(Arc::new(ByResponse { field, reserve: nonzero(100), max: nonzero(700) }));
        })
    }

    /// Answers with this body, told as 40 in the head.
    async fn answered(layer: &RateLimitLayer, body: Body) -> Response<PermitBody<Body>> {
        let body = Arc::new(std::sync::Mutex::new(Some(body)));
        let inner = service_fn(move |request: Request<Body>| {
            let mut response = Response::new(body.lock().unwrap().take().unwrap());
            response.headers_mut().insert("x-used", HeaderValue::from_static("40"));
            if let Some(coding) = request.headers().get("accept-encoding") {
                response.headers_mut().insert("x-asked-for", coding.clone());
            }
            std::future::ready(Ok::<_, Infallible>(response))
        });
        layer.layer(inner).oneshot(Request::new(Body::empty())).await.unwrap()
    }

    fn left(layer: &RateLimitLayer) -> u64 {
        let explained = layer.ask(&Request::new(Body::empty())).unwrap();
        let ask = crate::store::Ask { cost: 1_001, ..explained.asks[0].clone() };
        layer.limiter.decide_now(&[ask]).unwrap().levels[0].remaining
    }

    #[tokio::test]
    async fn a_header_settles_at_once_and_a_body_when_it_has_passed_or_is_dropped() {
        let layer = settling(Field::Header(HeaderName::from_static("x-used")));
        let response = answered(&layer, Body::from("whatever")).await;
        assert_eq!((left(&layer), response.headers().get("x-asked-for")), (960, None));

        let layer = settling(Field::Json(JsonPath::parse("used").unwrap()));
        let pieces = ["{\"us", "ed\":1", "50}"].map(|piece| Ok::<_, Infallible>(Bytes::from(piece)));
        let streamed = || Body::from_stream(futures_util::stream::iter(pieces.clone()));
        let response = answered(&layer, streamed()).await;
        assert_eq!((left(&layer), &response.headers()["x-asked-for"]), (900, &HeaderValue::from_static("identity")));
        let body = axum::body::to_bytes(Body::new(response.into_body()), 100).await.unwrap();
        assert_eq!((body, left(&layer)), (Bytes::from("{\"used\":150}"), 850));
        drop(answered(&layer, streamed()).await);
        assert_eq!(left(&layer), 750, "dropped unread: what is reserved stands");

        let mut body = answered(&layer, Body::from("{\"used\":50}")).await.into_body();
        let frame = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
        assert_eq!((frame.into_data().unwrap().len(), left(&layer)), (11, 700), "nobody asks after the last byte");
    }

    #[tokio::test]
    async fn an_answer_that_is_not_the_services_own_leaves_what_is_reserved() {
        let layer = settling(Field::Json(JsonPath::parse("used").unwrap()));
        for _ in 0..10 {
            assert_eq!(answered(&layer, Body::empty()).await.status(), StatusCode::OK);
        }
        assert_eq!((left(&layer), ask(&layer).await.status()), (0, StatusCode::TOO_MANY_REQUESTS));
    }

    #[tokio::test]
    async fn a_shadow_lets_everything_pass() {
        let layer = layer(|limit| limit.enforced = Rollout::NONE);
        for _ in 0..3 {
            let passed = ask(&layer).await;
            assert_eq!((passed.status(), passed.headers().get(RATELIMIT)), (StatusCode::OK, None));
        }
    }
}
