//! Finds the route of a request, by its host, its path with dot segments resolved, its method and
//! its fields.

use std::borrow::Cow;

use http::Request;
use tollgate_limiter::limit::key::host;

use super::answer::cors::preflight_method;
use super::exchange::Exchange;
use super::runtime::{Gateway, RouteGuard};
use tollgate_server::ConnectionInfo;
use tollgate_spec::route::path;
use tollgate_spec::route::table::RouteLookup;
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;

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
        Ok(()) => look_up(gateway, exchange),
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

fn look_up<'g>(gateway: &'g Gateway, exchange: &mut Exchange<'g>) -> &'g RouteGuard {
    let request = &*exchange.request;
    let host = if gateway.table.names_hosts() {
        host::find(request.uri(), request.headers())
    } else {
        Cow::Borrowed("")
    };
    let preflighted = find_preflighted(gateway, &host, exchange.path(), request);
    exchange.is_preflight = preflighted.is_some();
    let found = match preflighted {
        Some(index) => RouteLookup::Route(index),
        None => {
            let table = &gateway.table;
            table.find(&host, exchange.path(), request.method(), request.headers())
        }
    };
    match found {
        RouteLookup::Route(index) => {
            let runtime = &gateway.routes[index];
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
    host: &str,
    path: &str,
    request: &Request<Body>,
) -> Option<usize> {
    let method = preflight_method(request)?;
    match gateway.table.find(host, path, &method, request.headers()) {
        RouteLookup::Route(index) if gateway.routes[index].target.route.cors.is_some() => {
            Some(index)
        }
        RouteLookup::Route(_) | RouteLookup::MethodNotAllowed(_) | RouteLookup::Nothing => None,
    }
}
