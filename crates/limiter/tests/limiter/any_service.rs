//! The layer before services of all kinds: what it needs of their requests, and what it leaves
//! them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use futures_util::future::{Ready, ready};
use http::{HeaderValue, Request, Response, StatusCode};
use tollgate_limiter::limit::key::OnMissing;
use tollgate_limiter::{Limit, RateLimitLayer, client_ip, everyone};
use tower::{Layer, Service, ServiceExt, service_fn};

/// The answer to one request, whose peer is known or not.
async fn answer(
    layer: &RateLimitLayer,
    peer: Option<SocketAddr>,
    id: Option<&str>,
) -> Response<()> {
    let hello =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let mut request = Request::new(Body::empty());
    if let Some(peer) = peer {
        request.extensions_mut().insert(peer);
    }
    if let Some(id) = id {
        request
            .headers_mut()
            .insert("x-request-id", HeaderValue::from_str(id).unwrap());
    }
    layer.layer(hello).oneshot(request).await.unwrap().map(drop)
}

#[tokio::test]
async fn without_the_clients_address_only_a_limit_that_needs_it_refuses() {
    let per_client = || Limit::per_hour("per-client", 1).key(client_ip());
    let status = async |limit| {
        answer(&RateLimitLayer::in_memory([limit]).unwrap(), None, None)
            .await
            .status()
    };
    assert_eq!(
        status(per_client()).await,
        StatusCode::INTERNAL_SERVER_ERROR,
        "and not one bucket for all"
    );
    assert_eq!(
        status(per_client().shadow()).await,
        StatusCode::OK,
        "it denies nobody"
    );
    assert_eq!(
        status(per_client().on_missing(OnMissing::Skip)).await,
        StatusCode::OK
    );
    assert_eq!(
        status(per_client().on_missing(OnMissing::Refuse)).await,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn any_server_can_tell_the_clients_address() {
    let layer =
        RateLimitLayer::in_memory([Limit::per_hour("per-client", 1).key(client_ip())]).unwrap();
    let mut statuses = Vec::new();
    for peer in ["192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1"] {
        statuses.push(
            answer(&layer, Some(peer.parse().unwrap()), None)
                .await
                .status()
                .as_u16(),
        );
    }
    assert_eq!(statuses, [200, 429, 200]);
}

#[tokio::test]
async fn a_refusal_tells_the_requests_id_if_it_is_a_fit_one() {
    let layer = RateLimitLayer::in_memory([Limit::per_hour("all", 1).key(everyone())]).unwrap();
    assert_eq!(answer(&layer, None, None).await.status(), StatusCode::OK);
    let refused = answer(&layer, None, Some("one")).await;
    assert_eq!(
        (
            refused.status().as_u16(),
            refused.headers()["x-request-id"].to_str().unwrap()
        ),
        (429, "one")
    );
    for unfit in ["two words".to_owned(), "x".repeat(129)] {
        assert!(
            !answer(&layer, None, Some(&unfit))
                .await
                .headers()
                .contains_key("x-request-id"),
            "{unfit}"
        );
    }
}

/// A service that reserves a place when it is polled ready, as tower's concurrency limit does.
struct Reserving {
    reserved: Arc<AtomicUsize>,
    ready: bool,
}

impl Clone for Reserving {
    fn clone(&self) -> Self {
        Self {
            reserved: self.reserved.clone(),
            ready: false,
        }
    }
}

impl Drop for Reserving {
    fn drop(&mut self) {
        self.reserved
            .fetch_sub(usize::from(self.ready), Ordering::SeqCst);
    }
}

impl Service<Request<Body>> for Reserving {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if !std::mem::replace(&mut self.ready, true) {
            self.reserved.fetch_add(1, Ordering::SeqCst);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.ready = false;
        self.reserved.fetch_sub(1, Ordering::SeqCst);
        ready(Ok(Response::new(Body::empty())))
    }
}

#[tokio::test]
async fn a_refused_request_keeps_no_place_in_the_service_behind() {
    let layer = RateLimitLayer::in_memory([Limit::per_hour("all", 1).key(everyone())]).unwrap();
    let reserved = Arc::default();
    let mut service = layer.layer(Reserving {
        reserved: Arc::clone(&reserved),
        ready: false,
    });
    for expected in [200, 429, 429] {
        let answer = service
            .ready()
            .await
            .unwrap()
            .call(Request::new(Body::empty()))
            .await
            .unwrap();
        assert_eq!(answer.status(), expected);
        assert_eq!(reserved.load(Ordering::SeqCst), 0, "after {expected}");
    }
}
