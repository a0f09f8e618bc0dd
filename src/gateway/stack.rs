//! The way of a request through the gateway, from the outside in:
//!
//! account ▸ panic guard ▸ route ▸ load shed ▸ rate limit ▸ body bound ▸ timeout ▸ action
//!
//! Read `serve`, `pass` and `act` top to bottom; each step says why it stands where it stands. Guarantees one answer for each
//! request, whatever happens. Knows no sockets and no stores.

use std::borrow::Cow;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response, Version};
use http_body::Body as _;

use super::account::{self, Account, Entered, RouteMetrics};
use super::route::{Action, Route};
use super::table::Found;
use super::{Entrance, Gateway, Guarded, UNROUTED, actions, body_bound, limits, path};
use crate::body::Body;
use crate::clock::{self, Instant};
use crate::error::Failure;
use crate::proxy::forwarded::Origin;
use crate::rate_limit::headers::Fields;
use crate::rate_limit::held::Holding;
use crate::rate_limit::host;
use crate::rate_limit::key::Facts;
use crate::rate_limit::policy::Degrade;
use crate::rate_limit::rules::{Asking, Rules};
use crate::request_id::{self, REQUEST_ID};

/// What is known of a request from its head alone.
pub struct Exchange {
    started: Instant,
    request_id: HeaderValue,
    origin: Origin,
}

/// What came out of the stack, with what must be said beside it.
struct Passed {
    result: Result<Response<Body>, Failure>,
    fields: Option<Fields>,
    /// What its limits hold until the answer's body has ended.
    holding: Holding,
}

/// Answers one request.
#[expect(
    clippy::manual_async_fn,
    reason = "an async function keeps what it is given by value twice: a request is large"
)]
pub fn serve(
    gateway: Arc<Gateway>,
    entrance: &Entrance,
    peer: IpAddr,
    mut request: Request<Body>,
) -> impl Future<Output = Response<Body>> + Send {
    async move {
        // The account is outermost: whatever the answer, it is counted, timed and logged, to the end of its body.
        let exchange = Exchange::open(&gateway, peer, &request);
        let before = entrance.in_flight.enter();
        let mut account = exchange.account(&gateway, entrance, Some(&request));

        // A panic is a bug of ours and ends this request only; everything inside is dropped, nothing is used again.
        let passing = pass(&gateway, entrance, &exchange, before, &mut account.metrics, &mut request);
        let passed = AssertUnwindSafe(passing).catch_unwind().await.unwrap_or_else(|_| {
            gateway.panics.increment(1);
            Failure::Panicked.into()
        });
        exchange.close(passed, account)
    }
}

/// Answers what never became a request.
pub fn refuse(gateway: &Gateway, entrance: &Entrance, peer: IpAddr, failure: Failure) -> Response<Body> {
    let exchange = Exchange::open(gateway, peer, &Request::new(Body::empty()));
    entrance.in_flight.enter();
    let account = exchange.account(gateway, entrance, None);
    exchange.close(failure.into(), account)
}

async fn pass(
    gateway: &Gateway,
    entrance: &Entrance,
    exchange: &Exchange,
    in_flight_before: usize,
    metrics: &mut Arc<RouteMetrics>,
    request: &mut Request<Body>,
) -> Passed {
    // Dot segments go first: what is matched, limited and forwarded must be one and the same path.
    if let Err(failure) = path::resolve_dots(request.uri_mut()) {
        return failure.into();
    }

    // Then routing: everything after it differs from route to route.
    let (host, path) = (host::of(request.uri(), request.headers()), path::normalize(request.uri().path()));
    let (guard, found) = match gateway.table.find(&host, &path, request.method(), request.headers()) {
        Found::Route(index) => (&gateway.routes[index].guard, Ok(&gateway.routes[index])),
        Found::MethodNotAllowed(allow) => (&gateway.unrouted, Err(Failure::MethodNotAllowed(allow))),
        Found::Nothing => (&gateway.unrouted, Err(Failure::NoRoute)),
    };
    *metrics = guard.metrics.clone();

    // Load is shed before limits are asked: a request that is not served must not be charged.
    if gateway.max_requests.is_some_and(|most| in_flight_before >= most.get()) {
        return Failure::Overloaded.into();
    }

    // Limits come before anything of the body is touched: a denied request costs no upstream anything. A listener's also
    // count what no route takes, or whoever asks for nonsense would be free to.
    let rules = &guard.rules[entrance.listener];
    let (mut degraded, mut holding) = (None, Holding::default());
    let fields = if rules.is_empty() {
        None
    } else {
        let route = found.as_ref().ok().map(|guarded| &*guarded.route);
        let asking = match ask(rules, exchange, &host, &path, route, request) {
            Ok(asking) => asking,
            Err(failure) => return failure.into(),
        };
        // The one step that may wait, where a limit says so; nothing of the body is asked for meanwhile.
        let judged = match limits::decide_now(&entrance.limiter, rules, &asking) {
            Some(verdict) => rules.judge(asking, verdict),
            None => limits::hold(&gateway.queues, &entrance.limiter, rules, asking).await,
        };
        if let Some(denied) = judged.denied {
            return Passed { result: Err(denied), fields: Some(judged.fields), holding };
        }
        // From here on the request may hold something: whoever drops it, drops that.
        holding = judged.reserved.hold(&entrance.limiter);
        holding.prepare(request.headers_mut());
        degraded = judged.degraded;
        Some(judged.fields)
    };
    let result = match found {
        Ok(guarded) => act(gateway, entrance, exchange, guarded, degraded.as_ref(), request).await,
        Err(failure) => Err(failure),
    };
    Passed { result, fields, holding }
}

fn ask(
    rules: &Rules,
    exchange: &Exchange,
    host: &str,
    path: &str,
    route: Option<&Route>,
    request: &Request<Body>,
) -> Result<Asking, Failure> {
    rules.ask(&Facts {
        method: request.method(),
        uri: request.uri(),
        headers: request.headers(),
        body_length: request.body().size_hint().exact(),
        client_ip: Some(exchange.origin.client_ip),
        host,
        route: route.map_or(UNROUTED, |route| &route.name),
        param: &|name| route?.matches.path.param(name, path),
    })
}

async fn act(
    gateway: &Gateway,
    entrance: &Entrance,
    exchange: &Exchange,
    guarded: &Guarded,
    degraded: Option<&Degrade>,
    request: &mut Request<Body>,
) -> Result<Response<Body>, Failure> {
    // The bound on the body stands inside the limits: an oversized request is a request, and counts.
    body_bound::bound(request, guarded.route.max_body)?;

    // Does what the route does, or what it does for less. An answer of our own takes no time.
    let Exchange { origin, request_id, .. } = exchange;
    let (rule, upstream) = match (degraded, &guarded.route.action) {
        (Some(Degrade::Respond(respond)), _) => return Ok(exchange.named(respond.response())),
        (None, Action::Respond(respond)) => return Ok(exchange.named(respond.response())),
        (None, Action::Echo) => {
            return Ok(exchange.named(actions::echo(request, origin, request_id, &guarded.route.name)));
        }
        (None, Action::Forward(rule)) => (Cow::Borrowed(rule), guarded.upstream.as_ref()),
        (Some(Degrade::Upstream(name)), action) => {
            (actions::forward_elsewhere(action, name), gateway.upstreams.get(name))
        }
    };
    let Some(upstream) = upstream else { return Err(Failure::NoEndpoint) };

    // The timeout is innermost, around what can really take long, and ends at the answer's head: bodies may stream.
    let request = std::mem::replace(request, Request::new(Body::empty()));
    let forwarding = entrance.proxy.forward(request, &rule, upstream, origin, request_id);
    match guarded.route.timeout {
        // Boxed: few routes have one, and the others would carry the room for both ways of waiting.
        Some(timeout) => {
            Box::pin(tokio::time::timeout(timeout, forwarding)).await.unwrap_or(Err(Failure::ResponseTimeout))
        }
        None => forwarding.await,
    }
}

impl From<Failure> for Passed {
    fn from(failure: Failure) -> Self {
        Self { result: Err(failure), fields: None, holding: Holding::default() }
    }
}

impl Exchange {
    fn open(gateway: &Gateway, peer: IpAddr, request: &Request<Body>) -> Self {
        let origin = Origin::resolve(request.headers(), peer, &gateway.trusted_proxies);
        let sent = if origin.peer_trusted { request.headers().get(REQUEST_ID) } else { None };
        Self {
            started: clock::now(),
            request_id: sent.and_then(request_id::accept).unwrap_or_else(request_id::generate),
            origin,
        }
    }

    /// `None`: what could not be read has no method, path or version that anyone could tell.
    fn account(&self, gateway: &Gateway, entrance: &Entrance, request: Option<&Request<Body>>) -> Box<Account> {
        let log = gateway.access_log.as_ref().map(|log| {
            Box::new(Entered {
                log: log.clone(),
                client: self.origin.client_ip.to_string(),
                host: request
                    .map_or_else(String::new, |request| host::of(request.uri(), request.headers()).into_owned()),
                path: request.map_or("", |request| request.uri().path()).to_owned(),
                protocol: request.map_or("", |request| protocol(request.version())),
                request_id: self.request_id.clone(),
                user_agent: request.and_then(|request| request.headers().get(USER_AGENT).cloned()),
            })
        });
        let method = request.map_or_else(account::unknown_method, |request| account::known_method(request.method()));
        Account::open(self.started, entrance.in_flight.clone(), method, gateway.unrouted.metrics.clone(), log)
    }

    /// An answer that was made here, with its id. Others come with it.
    fn named(&self, mut response: Response<Body>) -> Response<Body> {
        response.headers_mut().insert(REQUEST_ID, self.request_id.clone());
        response
    }

    /// Adds to the answer what its limits say, and ties to its body the account and what is held until its end.
    fn close(&self, passed: Passed, mut account: Box<Account>) -> Response<Body> {
        account.holding = passed.holding;
        let mut response = match passed.result {
            Ok(response) => {
                account.holding.answered(response.headers());
                response
            }
            Err(failure) => {
                account.holding.failed(&failure);
                account.problem = Some(failure.name());
                failure.respond(&self.request_id)
            }
        };
        if let Some(fields) = passed.fields {
            fields.apply(response.headers_mut());
        }
        account.status = response.status();
        response.map(|body| body.observed(account))
    }
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}
