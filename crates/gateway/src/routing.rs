//! Finds the route of a request: by its listener, its host, its path with dot segments resolved,
//! its method and its fields.
//!
//! Guarantees that a request is not forwarded whose path is another route's to its upstream, or has
//! other values for the names that limits count by, unless its route takes such paths.

use std::borrow::Cow;

use http::{HeaderMap, Method, Request};
use tollgate_limiter::limit::key::host;

use super::answer::cors::preflight_method;
use super::exchange::Exchange;
use super::runtime::{Gateway, RouteGuard};
use tollgate_server::ConnectionInfo;
use tollgate_spec::route::Route;
use tollgate_spec::route::path::{self, OtherReading};
use tollgate_spec::route::table::{Considered, RouteLookup, RouteTable};
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;

const AMBIGUOUS: Failure = Failure::BadRequest(
    "some servers read an encoded slash, a backslash or a parameter in the path, and another route takes what they read",
);

const OTHER_VALUES: Failure = Failure::BadRequest(
    "some servers read an encoded slash, a backslash or a parameter in the path, and find other values for the names in \
     the path of its route",
);

/// The facts of a request by which a table is asked for the route of a path.
#[derive(Clone, Copy)]
pub struct RouteQuestion<'a> {
    pub table: &'a RouteTable,
    pub host: &'a str,
    pub method: &'a Method,
    pub headers: &'a HeaderMap,
}

impl RouteQuestion<'_> {
    /// The route of a normalized path.
    pub fn find(self, path: &str) -> RouteLookup {
        self.table.find(self.host, path, self.method, self.headers)
    }

    /// Every route whose host and path take the request, for explanations.
    pub fn consider(self, path: &str) -> Vec<Considered> {
        let Self {
            table,
            host,
            method,
            headers,
        } = self;
        table.consider(host, path, method, headers)
    }

    /// Why the `route` that was found for a normalized path does not take it. `None`: the route
    /// does.
    pub fn ambiguity(self, found: &RouteLookup, route: &Route, path: &str) -> Option<Failure> {
        if route.takes_ambiguous_paths || route.action.forward().is_none() {
            return None;
        }
        match path::other_reading(path)? {
            OtherReading::Path(other) if self.find(&other) == *found => {
                (!route.matches.has_same_params(path, &other)).then_some(OTHER_VALUES)
            }
            OtherReading::Path(_) | OtherReading::Many => Some(AMBIGUOUS),
        }
    }
}

/// Finds the request's route, and opens its line in the access log. A request without a route gets
/// the guard of those: a listener's limits count it too, or nonsense would be free.
pub fn find_route<'g>(
    gateway: &'g Gateway,
    listener: usize,
    connection: &ConnectionInfo,
    exchange: &mut Exchange<'g>,
) -> &'g RouteGuard {
    // The target is logged as it was sent, dot segments included.
    let sent = match gateway.access_log {
        Some(_) => Some(exchange.request.uri().clone()),
        None => None,
    };
    let guard = match resolve_path(gateway, listener, connection, exchange) {
        Ok(()) => look_up(gateway, listener, exchange),
        Err(failure) => {
            exchange.route = Err(failure);
            &gateway.unrouted
        }
    };
    exchange.account.metrics = guard.metrics.clone();
    if let Some(uri) = sent
        && guard.metrics.log.is_some()
    {
        exchange.account.log = Some(exchange.context.logged(uri, exchange.request));
    }
    guard
}

/// Resolves the path's dot segments, if the request belongs to the listener at all: routes, limits
/// and upstreams must see one and the same path.
fn resolve_path(
    gateway: &Gateway,
    listener: usize,
    connection: &ConnectionInfo,
    exchange: &mut Exchange<'_>,
) -> Result<(), Failure> {
    let rules = &gateway.listeners[listener];
    rules.check(connection, &exchange.context.origin, exchange.request)?;
    exchange.normalized_path = path::settle(exchange.request.uri_mut())?;
    Ok(())
}

fn look_up<'g>(
    gateway: &'g Gateway,
    listener: usize,
    exchange: &mut Exchange<'g>,
) -> &'g RouteGuard {
    let request = &*exchange.request;
    let table = gateway.tables.table(listener);
    let host = if table.names_hosts() {
        host::find(request.uri(), request.headers())
    } else {
        Cow::Borrowed("")
    };
    let question = RouteQuestion {
        table,
        host: &host,
        method: request.method(),
        headers: request.headers(),
    };
    let preflighted = find_preflighted(gateway, question, exchange.path(), request);
    exchange.is_preflight = preflighted.is_some();
    let found = match preflighted {
        Some(index) => RouteLookup::Route(index),
        None => question.find(exchange.path()),
    };
    match found {
        RouteLookup::Route(index) => {
            let runtime = &gateway.routes[index];
            let route = &runtime.target.route;
            if let Some(path) = &exchange.normalized_path
                && !exchange.is_preflight
                && let Some(failure) = question.ambiguity(&found, route, path)
            {
                exchange.route = Err(failure);
                return &gateway.unrouted;
            }
            exchange.route = Ok(&runtime.target);
            &runtime.guard
        }
        RouteLookup::MethodNotAllowed(allow) => {
            exchange.route = Err(Failure::MethodNotAllowed(allow));
            &gateway.unrouted
        }
        RouteLookup::Nothing => &gateway.unrouted,
    }
}

/// The route that a preflight asks about: a page that wants to send a POST asks by OPTIONS, of the
/// route that would take the POST.
fn find_preflighted(
    gateway: &Gateway,
    question: RouteQuestion<'_>,
    path: &str,
    request: &Request<Body>,
) -> Option<usize> {
    let method = preflight_method(request)?;
    let preflighted = RouteQuestion {
        method: &method,
        ..question
    };
    match preflighted.find(path) {
        RouteLookup::Route(index) if gateway.routes[index].target.route.cors.is_some() => {
            Some(index)
        }
        RouteLookup::Route(_) | RouteLookup::MethodNotAllowed(_) | RouteLookup::Nothing => None,
    }
}
