//! One request on its way through the gateway, lent to each step of its route's chain.

use std::net::IpAddr;

use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response, Version};
use tollgate_limiter::limit::key::host;
use tollgate_limiter::limit::on_limit::Degrade;
use tollgate_limiter::request::headers::RateLimitFields;

use super::account::{self, Account, Entered};
use super::{Gateway, RouteRuntime, UNROUTED, WorkerListener};
use crate::body::Body;
use crate::clock::{self, Instant};
use crate::error::Failure;
use crate::observe::request_id::{self, REQUEST_ID};
use crate::proxy::message::forwarded::ClientOrigin;

/// What is known of a request when it arrives.
pub struct Arrival {
    pub started: Instant,
    pub request_id: HeaderValue,
    pub origin: ClientOrigin,
    /// Requests that were in flight on this worker.
    pub in_flight_before: usize,
}

/// A request with all that the steps of its chain use.
pub struct Exchange<'g> {
    pub gateway: &'g Gateway,
    pub listener: &'g WorkerListener,
    pub arrival: &'g Arrival,
    pub request: &'g mut Request<Body>,
    /// The path that routes are matched by, where it differs from the request's.
    pub spelling: Option<String>,
    /// The route, or why there is none.
    pub route: Result<&'g RouteRuntime, Failure>,
    /// What the request gets instead of what it asked for.
    pub degraded: Option<Degrade>,
    pub account: Box<Account>,
    /// What the request's limits say, for the answer.
    pub fields: RateLimitFields,
}

impl Arrival {
    /// Counts one more in flight. The account counts it out.
    pub fn open(gateway: &Gateway, listener: &WorkerListener, peer: IpAddr, request: &Request<Body>) -> Self {
        let origin = ClientOrigin::resolve(request.headers(), peer, &gateway.trusted_proxies);
        let sent = if origin.peer_trusted { request.headers().get(REQUEST_ID) } else { None };
        Self {
            started: clock::now(),
            request_id: sent.and_then(request_id::accept).unwrap_or_else(request_id::generate),
            origin,
            in_flight_before: listener.in_flight.enter(),
        }
    }

    /// `None`: what could not be read has no method, path or version that anyone could tell.
    pub fn account(
        &self,
        gateway: &Gateway,
        listener: &WorkerListener,
        request: Option<&Request<Body>>,
    ) -> Box<Account> {
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
        Account::open(self.started, listener.in_flight.clone(), method, gateway.unrouted.metrics.clone(), log)
    }

    /// An answer that was made here, with its id. Others come with it.
    pub fn named(&self, mut response: Response<Body>) -> Response<Body> {
        response.headers_mut().insert(REQUEST_ID, self.request_id.clone());
        response
    }

    /// Adds to the answer what its limits say, and ties to its body the account and what is held until its end.
    pub fn close(
        &self,
        result: Result<Response<Body>, Failure>,
        fields: RateLimitFields,
        mut account: Box<Account>,
    ) -> Response<Body> {
        let mut response = match result {
            Ok(response) => {
                account.permit.answered(response.headers());
                response
            }
            Err(failure) => {
                account.permit.failed(failure.unanswered());
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

impl<'g> Exchange<'g> {
    /// The route's name, in metrics, logs and keys.
    pub fn route_name(&self) -> &str {
        self.route.as_ref().map_or(UNROUTED, |runtime| &runtime.route.name)
    }

    /// The path that routes are matched by.
    pub fn path(&self) -> &str {
        self.spelling.as_deref().unwrap_or(self.request.uri().path())
    }
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}
