//! The way of a request through the gateway, from the outside in:
//!
//! account ▸ panic guard ▸ route ▸ load shed ▸ rate limit ▸ body bound ▸ timeout ▸ action
//!
//! Read `serve` and `pass` top to bottom; each step says why it stands where it stands. Guarantees one answer for each
//! request, whatever happens. Knows no sockets and no stores.

use std::borrow::Cow;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use http::header::{HOST, USER_AGENT};
use http::{HeaderValue, Request, Response, Version};

use super::account::{Account, Entered, RouteMetrics};
use super::route::Action;
use super::table::Found;
use super::{Entrance, Gateway, actions, body_bound, path};
use crate::body::Body;
use crate::clock::{self, Instant};
use crate::error::Failure;
use crate::proxy::forwarded::Origin;
use crate::rate_limit::headers::Fields;
use crate::rate_limit::key::Facts;
use crate::request_id::{self, REQUEST_ID};

/// What is known of a request from its head alone.
pub struct Exchange {
    started: Instant,
    request_id: HeaderValue,
    origin: Origin,
    /// In lower case, without a port.
    host: String,
}

/// What came out of the stack, with what must be said beside it.
struct Passed<'g> {
    result: Result<Response<Body>, Failure>,
    fields: Option<Fields>,
    metrics: &'g Arc<RouteMetrics>,
}

/// Answers one request.
pub async fn serve(gateway: &Gateway, entrance: &Entrance, peer: IpAddr, request: Request<Body>) -> Response<Body> {
    // The account is outermost: whatever the answer, it is counted, timed and logged, to the end of its body.
    let exchange = Exchange::open(gateway, peer, &request);
    let before = entrance.in_flight.enter();
    let account = exchange.account(gateway, entrance, &request);

    // A panic is a bug of ours and ends this request only; everything inside is dropped, nothing is used again.
    let passing = AssertUnwindSafe(pass(gateway, entrance, &exchange, before, request)).catch_unwind();
    let passed = passing.await.unwrap_or_else(|_| {
        gateway.panics.increment(1);
        Passed { result: Err(Failure::Panicked), fields: None, metrics: &gateway.unrouted }
    });
    exchange.close(passed, account)
}

/// Answers what never became a request.
pub fn refuse(gateway: &Gateway, entrance: &Entrance, peer: IpAddr, failure: Failure) -> Response<Body> {
    let request = Request::new(Body::empty());
    let exchange = Exchange::open(gateway, peer, &request);
    entrance.in_flight.enter();
    let account = exchange.account(gateway, entrance, &request);
    exchange.close(Passed { result: Err(failure), fields: None, metrics: &gateway.unrouted }, account)
}

async fn pass<'g>(
    gateway: &'g Gateway,
    entrance: &Entrance,
    exchange: &Exchange,
    in_flight_before: usize,
    request: Request<Body>,
) -> Passed<'g> {
    // Routing comes first: everything after it differs from route to route.
    let path = path::normalize(request.uri().path());
    let guarded = match gateway.table.find(&exchange.host, &path, request.method(), request.headers()) {
        Found::Route(index) => &gateway.routes[index],
        Found::MethodNotAllowed(allow) => return Passed::unrouted(gateway, Failure::MethodNotAllowed(allow)),
        Found::Nothing => return Passed::unrouted(gateway, Failure::NoRoute),
    };
    let metrics = &guarded.metrics;

    // Load is shed before limits are asked: a request that is not served must not be charged.
    if gateway.max_requests.is_some_and(|most| in_flight_before >= most.get()) {
        return Passed { result: Err(Failure::Overloaded), fields: None, metrics };
    }

    // Limits come before anything of the body is touched: a denied request costs no upstream anything.
    let rules = &guarded.rules[entrance.listener];
    let mut fields = None;
    if !rules.is_empty() {
        let asked = rules.ask(&Facts {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            client_ip: Some(exchange.origin.client_ip),
            host: &exchange.host,
            route: &guarded.route.name,
            param: &|name| guarded.route.matches.path.param(name, &path),
        });
        let asking = match asked {
            Ok(asking) => asking,
            Err(failure) => return Passed { result: Err(failure), fields: None, metrics },
        };
        let verdict = match entrance.limiter.decide_now(&asking.asks) {
            Some(verdict) => verdict,
            None => entrance.limiter.decide(&asking.asks).await,
        };
        let judged = rules.judge(&asking, &verdict);
        fields = Some(judged.fields);
        if let Some(denied) = judged.denied {
            return Passed { result: Err(denied), fields, metrics };
        }
    }

    // The bound on the body stands inside the limits: an oversized request is a request, and counts.
    let request = match body_bound::bound(request, guarded.route.max_body) {
        Ok(request) => request,
        Err(failure) => return Passed { result: Err(failure), fields, metrics },
    };

    // The timeout is innermost, around what can really take long, and ends at the answer's head: bodies may stream.
    let acting = async {
        match &guarded.route.action {
            Action::Respond(respond) => Ok(actions::respond(respond)),
            Action::Echo => Ok(actions::echo(&request, &exchange.origin, &exchange.request_id, &guarded.route.name)),
            Action::Forward(rule) => match &guarded.upstream {
                Some(upstream) => {
                    entrance.proxy.forward(request, rule, upstream, &exchange.origin, &exchange.request_id).await
                }
                None => Err(Failure::NoEndpoint),
            },
        }
    };
    let result = match guarded.route.timeout {
        Some(timeout) => tokio::time::timeout(timeout, acting).await.unwrap_or(Err(Failure::ResponseTimeout)),
        None => acting.await,
    };
    Passed { result, fields, metrics }
}

impl<'g> Passed<'g> {
    fn unrouted(gateway: &'g Gateway, failure: Failure) -> Self {
        Self { result: Err(failure), fields: None, metrics: &gateway.unrouted }
    }
}

impl Exchange {
    fn open(gateway: &Gateway, peer: IpAddr, request: &Request<Body>) -> Self {
        let origin = Origin::resolve(request.headers(), peer, &gateway.trusted_proxies);
        let sent = request.headers().get(REQUEST_ID).filter(|_| origin.peer_trusted);
        Self {
            started: clock::now(),
            request_id: sent.and_then(request_id::accept).unwrap_or_else(request_id::generate),
            host: host_of(request).into_owned(),
            origin,
        }
    }

    fn account(&self, gateway: &Gateway, entrance: &Entrance, request: &Request<Body>) -> Box<Account> {
        let log = gateway.access_log.as_ref().map(|log| {
            Box::new(Entered {
                log: log.clone(),
                client: self.origin.client_ip.to_string(),
                host: self.host.clone(),
                path: request.uri().path().to_owned(),
                protocol: protocol(request.version()),
                request_id: self.request_id.clone(),
                user_agent: request.headers().get(USER_AGENT).cloned(),
            })
        });
        Account::open(self.started, entrance.in_flight.clone(), request.method(), gateway.unrouted.clone(), log)
    }

    /// Adds to the answer what every answer carries, and ties the account to its body.
    fn close(&self, passed: Passed<'_>, mut account: Box<Account>) -> Response<Body> {
        let mut response = match passed.result {
            Ok(mut response) => {
                response.headers_mut().insert(REQUEST_ID, self.request_id.clone());
                response
            }
            Err(failure) => failure.respond(&self.request_id),
        };
        if let Some(fields) = passed.fields {
            fields.apply(response.headers_mut());
        }
        account.metrics = passed.metrics.clone();
        account.status = response.status();
        response.map(|body| body.observed(account))
    }
}

/// The host a request is for (RFC 9110 §7.1): the target's authority where there is one, Host otherwise.
pub(super) fn host_of(request: &Request<Body>) -> Cow<'_, str> {
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    normal_host(authority.or_else(|| request.headers().get(HOST)?.to_str().ok()).unwrap_or_default())
}

/// A host as routes and keys see it: in lower case, without user, port and final dot.
pub fn normal_host(host: &str) -> Cow<'_, str> {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let port = host.rfind(':').filter(|&at| !host[at..].contains(']'));
    let host = port.map_or(host, |at| &host[..at]);
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) { host.to_ascii_lowercase().into() } else { host.into() }
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_host_in_every_form() {
        for (uri, host, found) in [
            ("/", "A.Example:8080", "a.example"),
            ("/", "[2001:DB8::1]:80", "[2001:db8::1]"),
            ("/", "[::1]", "[::1]"),
            ("/", "example.", "example"),
            ("http://B.example:1/", "a.example", "b.example"),
            ("/", "", ""),
        ] {
            let request = Request::builder().uri(uri).header(HOST, host).body(Body::empty()).unwrap();
            assert_eq!(host_of(&request), found, "{uri} {host}");
        }
    }
}
