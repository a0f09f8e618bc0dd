//! The way of a request through the gateway, from the outside in:
//!
//! account ▸ panic guard ▸ route ▸ [ load shed ▸ rate limit ▸ body bound ▸ timeout ▸ action ]
//!
//! [`serve`] opens the account and finds the route; [`chain`] composes what stands behind it, for each route when the
//! configuration is taken over. Read both top to bottom: each step says why it stands where it stands. Guarantees one answer
//! for each request, whatever happens.

use std::net::IpAddr;
use std::sync::Arc;

use http::{Request, Response};
use tollgate_limiter::layer::RateLimitLayer;
use tollgate_limiter::limit::key::host;
use tollgate_limiter::request::headers::RateLimitFields;
use tollgate_limiter::request::permit::Permit;
use tollgate_limiter::request::rule_set::RuleSet;
use tower::ServiceBuilder;
use tower::util::Either;
use tower_service::Service as _;

use super::actions::Act;
use super::body_bound::{BodyBound, BodyBoundLayer};
use super::exchange::{Arrival, Exchange};
use super::rate_limit::OfWorker;
use super::shed::{Shed, ShedLayer};
use super::timeout::{Timeout, TimeoutLayer};
use super::{Gateway, RouteGuard, WorkerListener, panic_guard};
use crate::body::Body;
use crate::error::Failure;
use crate::header_map_pool;
use crate::route::path;
use crate::route::table::RouteLookup;

/// What stands between a route and its action. A step that the route does not use is passed by.
pub type Chain = Either<Shed<Limited>, Limited>;
type Limited = Either<tollgate_limiter::layer::RateLimit<Bounded, OfWorker>, Bounded>;
type Bounded = Either<BodyBound<Timed>, Timed>;
type Timed = Either<Timeout<Act>, Act>;

/// What a route, or a listener for requests without a route, asks of its chain.
#[derive(Default)]
pub struct ChainSpec {
    pub max_requests: Option<std::num::NonZeroUsize>,
    pub rules: Option<Arc<RuleSet>>,
    pub max_body: Option<u64>,
    pub timeout: Option<std::time::Duration>,
}

/// Composes the chain of one route behind one listener.
pub fn chain(spec: ChainSpec) -> Chain {
    ServiceBuilder::new()
        // Load is shed before limits are asked: a request that is not served must not be charged.
        .option_layer(spec.max_requests.map(ShedLayer))
        // Limits come before anything of the body is touched: a denied request costs no upstream anything. It is the one step
        // that may wait, where a limit says so. A listener's limits also count what no route takes, or whoever asks for
        // nonsense would be free to.
        .option_layer(spec.rules.map(|rules| RateLimitLayer::of_rules(OfWorker, rules)))
        // The bound on the body stands inside the limits: an oversized request is a request, and counts.
        .option_layer(spec.max_body.map(BodyBoundLayer))
        // The timeout is innermost, around what can really take long, and ends at the answer's head: bodies may stream.
        .option_layer(spec.timeout.map(TimeoutLayer))
        // Does what the route does, or what it does for less.
        .service(Act)
}

/// Answers one request.
#[expect(
    clippy::manual_async_fn,
    reason = "an async function keeps what it is given by value twice: a request is large"
)]
pub fn serve(
    gateway: Arc<Gateway>,
    listener: &WorkerListener,
    peer: IpAddr,
    mut request: Request<Body>,
) -> impl Future<Output = Response<Body>> + Send {
    async move {
        // The account is outermost: whatever the answer, it is counted, timed and logged, to the end of its body.
        let arrival = Arrival::open(&gateway, listener, peer, &request);
        let mut exchange = Exchange {
            account: arrival.account(&gateway, listener, Some(&request)),
            gateway: &gateway,
            listener,
            arrival: &arrival,
            request: &mut request,
            spelling: None,
            route: Err(Failure::NoRoute),
            degraded: None,
            fields: RateLimitFields::default(),
        };
        // A panic is a bug of ours and ends this request only; everything inside is dropped, nothing is used again.
        let result = match panic_guard::guard(pass(&mut exchange)).await {
            Ok(result) => result,
            Err(panic_guard::Panicked) => {
                gateway.panics.increment(1);
                exchange.account.permit = Permit::default();
                Err(Failure::Panicked)
            }
        };
        let Exchange { account, fields, .. } = exchange;
        // What was not forwarded still has its table of fields: the next request may use it.
        header_map_pool::give_back(std::mem::take(request.headers_mut()));
        arrival.close(result, fields, account)
    }
}

/// Answers what never became a request.
pub fn refuse(gateway: &Gateway, listener: &WorkerListener, peer: IpAddr, failure: Failure) -> Response<Body> {
    let arrival = Arrival::open(gateway, listener, peer, &Request::new(Body::empty()));
    let account = arrival.account(gateway, listener, None);
    arrival.close(Err(failure), RateLimitFields::default(), account)
}

/// Finds the request's route and lets its chain answer.
async fn pass(exchange: &mut Exchange<'_>) -> Result<Response<Body>, Failure> {
    // Dot segments go first: what is matched, limited and forwarded must be one and the same path.
    exchange.spelling = path::settle(exchange.request.uri_mut())?.map(Into::into);

    // Then routing: everything after it differs from route to route.
    let guard = find_route(exchange);
    exchange.account.metrics = guard.metrics.clone();

    // Every step of a chain is always ready. A clone is a reference to the route's limits and a few numbers.
    let mut chain = guard.chains[exchange.listener.index].clone();
    chain.call(exchange).await
}

fn find_route<'g>(exchange: &mut Exchange<'g>) -> &'g RouteGuard {
    let (gateway, request) = (exchange.gateway, &*exchange.request);
    let host = host::of(request.uri(), request.headers());
    match gateway.table.find(&host, exchange.path(), request.method(), request.headers()) {
        RouteLookup::Route(index) => {
            let runtime = &gateway.routes[index];
            exchange.route = Ok(runtime);
            &runtime.guard
        }
        RouteLookup::MethodNotAllowed(allow) => {
            exchange.route = Err(Failure::MethodNotAllowed(allow));
            &gateway.unrouted
        }
        RouteLookup::Nothing => &gateway.unrouted,
    }
}
