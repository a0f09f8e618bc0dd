use std::convert::Infallible;
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tower::{ServiceExt, service_fn};

use super::*;
use crate::limit::algorithm::{Algorithm, Rate};
use crate::limit::builder::everyone;
use crate::limit::cost::json_path::JsonPath;
use crate::limit::cost::{Cost, CostField, ResponseCost};
use crate::limit::fixed_response::FixedResponse;
use crate::limit::key::{KeyPart, KeySpec, OnMissing};
use crate::limit::on_limit::{Degrade, OnLimit, Queueing};
use crate::limit::rollout::Rollout;
use crate::request::headers::{DEGRADED, RATELIMIT};
use crate::request::pending::PendingRequest;
use crate::request::permit_body::PermitBody;
use crate::store::BucketCharge;
use crate::store::memory::MemoryStore;

/// Admits one request an hour for everyone together, but for `change`.
fn layer(change: impl FnOnce(&mut Limit)) -> RateLimitLayer {
    let one = NonZeroU64::MIN;
    let key = KeySpec {
        parts: vec![KeyPart::Constant("all".into())],
        on_missing: OnMissing::Share,
    };
    let rate = Rate {
        tokens: one,
        period_us: NonZeroU64::new(3_600_000_000).unwrap(),
    };
    let mut limit = Limit::new("l", key, rate, one);
    change(&mut limit);
    let limits = [LimitUse {
        limit: Arc::new(limit),
        cost: None,
    }];
    RateLimitLayer::of_uses(Limiter::local(Arc::new(MemoryStore::new(100))), &limits).unwrap()
}

async fn ask(layer: &RateLimitLayer) -> Response<PermitBody<Body>> {
    let inner = service_fn(async |_: Request<Body>| {
        Ok::<_, Infallible>(Response::new(Body::from("inner")))
    });
    layer
        .layer(inner)
        .oneshot(Request::new(Body::empty()))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_request_that_would_go_to_another_upstream_is_refused() {
    let layer = layer(|limit| limit.on_limit = OnLimit::Degrade(Degrade::Upstream("cheap".into())));
    assert_eq!(ask(&layer).await.status(), StatusCode::OK);
    assert_eq!(ask(&layer).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_tokens_in_the_queue_of_its_limit() {
    let bounds = Queueing {
        max_wait: Duration::from_secs(3_600),
        max_waiting: NonZeroUsize::MIN,
    };
    let layer = layer(|limit| limit.on_limit = OnLimit::Queue(bounds));
    assert_eq!(ask(&layer).await.status(), StatusCode::OK);
    let (began, second) = (crate::clock::now(), ask(&layer));
    let third = async {
        tokio::task::yield_now().await;
        ask(&layer).await.status()
    };
    let (second, third) = tokio::join!(second, third);
    assert_eq!(
        (second.status(), third),
        (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS)
    );
    assert_eq!(began.elapsed().as_secs(), 3_600);
}

#[tokio::test]
async fn something_cheaper_that_is_at_hand_is_given() {
    let answer = Arc::new(FixedResponse {
        status: StatusCode::ACCEPTED,
        headers: vec![],
        body: "later".into(),
    });
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
fn settling(field: CostField) -> RateLimitLayer {
    let nonzero = |number| NonZeroU64::new(number).unwrap();
    layer(|limit| {
        let rate = Rate {
            tokens: nonzero(1_000),
            period_us: nonzero(3_600_000_000),
        };
        limit.algorithm = Algorithm::TokenBucket {
            rate,
            burst: nonzero(1_000),
        };
        limit.cost = Cost::Response(Arc::new(ResponseCost {
            field,
            reserve: nonzero(100),
            max: nonzero(700),
            absent: None,
        }));
    })
}

/// Answers with this body, told as 40 in the head.
async fn answered(layer: &RateLimitLayer, body: Body) -> Response<PermitBody<Body>> {
    let body = Arc::new(std::sync::Mutex::new(Some(body)));
    let inner = service_fn(move |request: Request<Body>| {
        let mut response = Response::new(body.lock().unwrap().take().unwrap());
        response
            .headers_mut()
            .insert("x-used", HeaderValue::from_static("40"));
        if let Some(coding) = request.headers().get("accept-encoding") {
            response.headers_mut().insert("x-asked-for", coding.clone());
        }
        std::future::ready(Ok::<_, Infallible>(response))
    });
    layer
        .layer(inner)
        .oneshot(Request::new(Body::empty()))
        .await
        .unwrap()
}

fn left(layer: &RateLimitLayer) -> u64 {
    let request = Request::new(Body::empty());
    let checks = <Request<Body> as LimitedRequest<Response<Body>, Infallible>>::with_facts(
        &request,
        None,
        |facts| {
            let mut pending = PendingRequest::default();
            layer.0.rules.ask(facts, &mut pending);
            pending.checks
        },
    );
    // More than there is: a look that takes nothing.
    let charge = BucketCharge {
        cost: 1_001,
        ..checks.tokens.charges()[0].clone()
    };
    layer
        .0
        .limiter
        .decide(&charge.into())
        .done()
        .unwrap()
        .levels[0]
        .remaining
}

#[tokio::test]
async fn a_header_settles_at_once_and_a_body_when_it_has_passed_or_is_dropped() {
    let layer = settling(CostField::Header(HeaderName::from_static("x-used")));
    let response = answered(&layer, Body::from("whatever")).await;
    assert_eq!(
        (left(&layer), response.headers().get("x-asked-for")),
        (960, None)
    );

    let layer = settling(JsonPath::parse("used").unwrap().into());
    let pieces = ["{\"us", "ed\":1", "50}"].map(|piece| Ok::<_, Infallible>(Bytes::from(piece)));
    let streamed = || Body::from_stream(futures_util::stream::iter(pieces.clone()));
    let response = answered(&layer, streamed()).await;
    assert_eq!(
        (left(&layer), &response.headers()["x-asked-for"]),
        (900, &HeaderValue::from_static("identity"))
    );
    let body = axum::body::to_bytes(Body::new(response.into_body()), 100)
        .await
        .unwrap();
    assert_eq!((body, left(&layer)), (Bytes::from("{\"used\":150}"), 850));
    drop(answered(&layer, streamed()).await);
    assert_eq!(left(&layer), 750, "dropped unread: what is reserved stands");

    let mut body = answered(&layer, Body::from("{\"used\":50}"))
        .await
        .into_body();
    let frame = http_body_util::BodyExt::frame(&mut body)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (frame.into_data().unwrap().len(), left(&layer)),
        (11, 700),
        "nobody asks after the last byte"
    );
}

#[tokio::test]
async fn an_answer_that_is_not_the_services_own_leaves_what_is_reserved() {
    let layer = settling(JsonPath::parse("used").unwrap().into());
    for _ in 0..10 {
        assert_eq!(
            answered(&layer, Body::empty()).await.status(),
            StatusCode::OK
        );
    }
    assert_eq!(
        (left(&layer), ask(&layer).await.status()),
        (0, StatusCode::TOO_MANY_REQUESTS)
    );
}

#[tokio::test]
async fn only_responses_with_a_counted_status_are_charged() {
    let logins = Limit::per_hour("logins", 3)
        .key(everyone())
        .count_statuses([401, 403]);
    let layer = RateLimitLayer::in_memory([logins]).unwrap();
    let mut statuses = [200, 401, 200, 403, 204, 500, 401, 200].into_iter();
    let mut passed = Vec::new();
    for _ in 0..8 {
        let status = StatusCode::from_u16(statuses.next().unwrap()).unwrap();
        let inner = service_fn(move |_: Request<Body>| {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = status;
            std::future::ready(Ok::<_, Infallible>(response))
        });
        passed.push(
            layer
                .layer(inner)
                .oneshot(Request::new(Body::empty()))
                .await
                .unwrap()
                .status()
                .as_u16(),
        );
    }
    assert_eq!(passed, [200, 401, 200, 403, 204, 500, 401, 429]);
}

#[tokio::test]
async fn a_shadow_lets_everything_pass() {
    let layer = layer(|limit| limit.rollout = Rollout::NONE);
    for _ in 0..3 {
        let passed = ask(&layer).await;
        assert_eq!(
            (passed.status(), passed.headers().get(RATELIMIT)),
            (StatusCode::OK, None)
        );
    }
}
