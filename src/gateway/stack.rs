//! The way of a request through the gateway, from the outside in:
//!
//! account ▸ panic guard ▸ route ▸ load shed ▸ rate limit ▸ body bound ▸ timeout ▸ action
//!
//! Read `serve`, `pass` and `act` top to bottom; each step says why it stands where it stands. Guarantees one answer for each
//! request, whatever happens. Knows no sockets and no stores.

use std::borrow::Cow;
use std::future::poll_fn;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response, Version};
use http_body::Body as _;
use tollgate_limiter::limit::host;
use tollgate_limiter::limit::key::Facts;
use tollgate_limiter::limit::spec::Degrade;
use tollgate_limiter::request::headers::RateLimitFields;
use tollgate_limiter::request::permit::Permit;
use tollgate_limiter::request::rule_set::RuleSet;

use super::account::{self, Account, Entered};
use super::limits::{self, Hold};
use super::route::{Action, Route};
use super::table::Found;
use super::{Entrance, Gateway, Guarded, UNROUTED, actions, body_bound, path};
use crate::body::Body;
use crate::clock::{self, Instant};
use crate::error::Failure;
use crate::http1::tables;
use crate::proxy::forwarded::Origin;
use crate::request_id::{self, REQUEST_ID};

/// What is known of a request from its head alone.
pub struct Exchange {
    started: Instant,
    request_id: HeaderValue,
    origin: Origin,
    /// Requests that were in flight when it came.
    before: usize,
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
        let exchange = Exchange::open(&gateway, entrance, peer, &request);
        let mut account = exchange.account(&gateway, entrance, Some(&request));
        let mut fields = RateLimitFields::default();

        // A panic is a bug of ours and ends this request only; everything inside is dropped, nothing is used again. Caught
        // around each poll and not by a future around it: that would move what is inside, which is large.
        let passed = {
            let mut passing = pin!(pass(&gateway, entrance, &exchange, &mut account, &mut fields, &mut request));
            poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| passing.as_mut().poll(cx))) {
                Ok(polled) => polled.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            })
            .await
        };
        let result = passed.unwrap_or_else(|_| {
            gateway.panics.increment(1);
            account.holding = Permit::default();
            Err(Failure::Panicked)
        });
        // What was not forwarded still has its table of fields: the next request may use it.
        tables::give(std::mem::take(request.headers_mut()));
        exchange.close(result, fields, account)
    }
}

/// Answers what never became a request.
pub fn refuse(gateway: &Gateway, entrance: &Entrance, peer: IpAddr, failure: Failure) -> Response<Body> {
    let exchange = Exchange::open(gateway, entrance, peer, &Request::new(Body::empty()));
    let account = exchange.account(gateway, entrance, None);
    exchange.close(Err(failure), RateLimitFields::default(), account)
}

async fn pass(
    gateway: &Gateway,
    entrance: &Entrance,
    exchange: &Exchange,
    account: &mut Account,
    fields: &mut RateLimitFields,
    request: &mut Request<Body>,
) -> Result<Response<Body>, Failure> {
    // Dot segments go first: what is matched, limited and forwarded must be one and the same path.
    let spelling = path::settle(request.uri_mut())?;

    // Then routing: everything after it differs from route to route.
    let host = host::of(request.uri(), request.headers());
    let path = spelling.as_deref().unwrap_or(request.uri().path());
    let (guard, found) = match gateway.table.find(&host, path, request.method(), request.headers()) {
        Found::Route(index) => (&gateway.routes[index].guard, Ok(&gateway.routes[index])),
        Found::MethodNotAllowed(allow) => (&gateway.unrouted, Err(Failure::MethodNotAllowed(allow))),
        Found::Nothing => (&gateway.unrouted, Err(Failure::NoRoute)),
    };
    account.metrics = guard.metrics.clone();

    // Load is shed before limits are asked: a request that is not served must not be charged.
    if gateway.max_requests.is_some_and(|most| exchange.before >= most.get()) {
        return Err(Failure::Overloaded);
    }

    // Limits come before anything of the body is touched: a denied request costs no upstream anything. A listener's also
    // count what no route takes, or whoever asks for nonsense would be free to.
    let rules = &guard.rules[entrance.listener];
    let mut degraded = None;
    if !rules.is_empty() {
        let route = found.as_ref().ok().map(|guarded| &*guarded.route);
        let hold = hold(gateway, entrance, exchange, rules, [&host, path], route, request)?;
        // The one step that may wait, where a limit says so; nothing of the body is asked for meanwhile.
        let judged = match hold {
            Hold::Judged(judged) => judged,
            Hold::Waiting(judging) => judging.await,
        };
        *fields = judged.fields;
        if let Some(denied) = judged.denied {
            return Err(denied.into());
        }
        // From here on the request may hold something: whoever drops it, drops that.
        account.holding = judged.reserved.hold(&entrance.limiter);
        account.holding.prepare(request.headers_mut());
        degraded = judged.degraded;
    }
    act(gateway, entrance, exchange, found?, degraded.as_ref(), request).await
}

fn hold<'a>(
    gateway: &'a Gateway,
    entrance: &'a Entrance,
    exchange: &Exchange,
    rules: &'a RuleSet,
    [host, path]: [&str; 2],
    route: Option<&Route>,
    request: &Request<Body>,
) -> Result<Hold<'a>, Failure> {
    let facts = Facts {
        method: request.method(),
        uri: request.uri(),
        headers: request.headers(),
        body_length: request.body().size_hint().exact(),
        client_ip: Some(exchange.origin.client_ip),
        host,
        route: route.map_or(UNROUTED, |route| &route.name),
        param: &|name| route?.matches.path.param(name, path),
    };
    limits::hold(&gateway.queues, &entrance.limiter, rules, &facts)
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

impl Exchange {
    /// Counts one more in flight. The account counts it out.
    fn open(gateway: &Gateway, entrance: &Entrance, peer: IpAddr, request: &Request<Body>) -> Self {
        let origin = Origin::resolve(request.headers(), peer, &gateway.trusted_proxies);
        let sent = if origin.peer_trusted { request.headers().get(REQUEST_ID) } else { None };
        Self {
            started: clock::now(),
            request_id: sent.and_then(request_id::accept).unwrap_or_else(request_id::generate),
            origin,
            before: entrance.in_flight.enter(),
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
    fn close(
        &self,
        result: Result<Response<Body>, Failure>,
        fields: RateLimitFields,
        mut account: Box<Account>,
    ) -> Response<Body> {
        let mut response = match result {
            Ok(response) => {
                account.holding.answered(response.headers());
                response
            }
            Err(failure) => {
                account.holding.failed(failure.unanswered());
                account.problem = Some(failure.name());
                failure.respond(&self.request_id)
            }
        };
        fields.apply(response.headers_mut());
        account.status = response.status();
        response.body_mut().observe(account);
        response
    }
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}
