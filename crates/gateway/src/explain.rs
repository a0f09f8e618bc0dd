//! Explains what the gateway would do with a described request, and why.
//!
//! Guarantees that an explanation goes by the same host, path, table, keys, limits and rewriting as
//! [`super::pipeline`]. Charges nothing and sends nothing.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Uri};
use tollgate_limiter::limit::key::host::{self, RequestHost};
use tollgate_limiter::limit::key::{CallerIdentity, ClientCertificate, Facts};
use tollgate_limiter::request::explanation::LimitsExplanation;
use tollgate_limiter::request::rule_set::RuleSet;

use super::exchange::{RouteTarget, UNROUTED};
use super::routing::RouteQuestion;
use super::runtime::{Gateway, RouteGuard};
use super::unnamed_proxy::forwarding_field;
use tollgate_proxy::message::forwarded::ClientOrigin;
use tollgate_proxy::message::target;
use tollgate_spec::route::table::{Fits, RouteLookup};
use tollgate_spec::route::{Action, Forward, HostPolicy, Route, path};
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;
use tollgate_wire::http::request_rules;

/// A request to explain, as a client would send it.
#[derive(Clone, Debug)]
pub struct DescribedRequest {
    pub method: Method,
    /// The URI with an authority, which becomes the Host unless the headers have one.
    pub uri: Uri,
    pub headers: HeaderMap,
    /// The other end of the connection: a proxy in front, or the client itself. 0.0.0.0 if unknown.
    pub peer: IpAddr,
    /// The certificate by which the client authenticates itself. A part that is empty was not
    /// described.
    pub client_certificate: ClientCertificate,
    /// The client that an authenticator finds. A part that is empty was not described.
    pub client_identity: CallerIdentity,
    /// The members of the body among them.
    pub extensions: Extensions,
    /// The listener's place in the configuration.
    pub listener: usize,
}

/// The explanation of a request.
#[derive(Debug)]
pub struct Explanation {
    /// The host that routes are matched by: in lower case, without a port.
    pub host: String,
    /// The path that routes are matched by.
    pub path: String,
    /// The client that limits count.
    pub client_ip: IpAddr,
    /// The field that names another client, and is not believed: the peer is no trusted proxy.
    pub unbelieved: Option<&'static str>,
    /// Every route: those that host and path allow first, most specific first.
    pub routes: Vec<ConsideredRoute>,
    /// The listener's limits, then the route's. The listener's also count where no route takes the
    /// request.
    pub limits: LimitsExplanation,
    pub outcome: Outcome,
}

/// A route, and whether it takes the request.
#[derive(Debug)]
pub struct ConsideredRoute {
    pub route: Arc<Route>,
    pub why: RouteMatch,
}

/// Whether a route takes the request, and if not, by what it does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteMatch {
    Applies,
    /// The route would take the request, if none were more specific.
    LessSpecific,
    Method,
    Header,
    Path,
    Host,
    /// The route is served by other listeners.
    Listener,
}

/// The end of a request: forwarded or answered.
#[derive(Debug)]
pub enum Outcome {
    Routed(Box<Routed>),
    /// No route takes the request. Answered by the gateway, if the limits let it pass.
    Refused(Failure),
    /// The method or the path cannot be read in one way only. Answered by the gateway before
    /// anything else.
    Malformed(Failure),
    /// The client is not served, now or ever, or does not say who it is. Answered by the gateway
    /// before any limit.
    Forbidden {
        route: Option<Arc<Route>>,
        failure: Failure,
    },
}

/// A request that a route takes.
#[derive(Debug)]
pub struct Routed {
    pub route: Arc<Route>,
    pub sent: Option<ForwardedRequest>,
}

/// The request that an upstream gets.
#[derive(Debug)]
pub struct ForwardedRequest {
    pub upstream: Arc<str>,
    pub endpoints: Vec<String>,
    /// The request's target, in origin-form.
    pub target: Result<String, Failure>,
    /// `None`: the authority of the endpoint that is picked.
    pub host: Option<HeaderValue>,
}

/// Explains what `gateway` does with a request.
pub fn explain(gateway: &Gateway, described: &DescribedRequest) -> Explanation {
    let mut request = described.request();
    let origin = ClientOrigin::resolve(
        request.headers(),
        described.peer,
        &gateway.trusted_proxies.proxies,
    );
    let host = host::find(request.uri(), request.headers()).into_owned();
    let malformed = request_rules::method(request.method())
        .and_then(|()| request_rules::path(request.method(), request.uri().path().as_bytes()))
        .and_then(|()| path::resolve_dots(request.uri_mut()))
        .err();
    let path = path::normalize(request.uri().path()).into_owned();
    let question = RouteQuestion {
        table: gateway.tables.table(described.listener),
        host: &host,
        method: request.method(),
        headers: request.headers(),
    };
    let found = question.find(&path);
    let runtime = match &found {
        RouteLookup::Route(index) => Some(&*gateway.routes[*index]),
        RouteLookup::MethodNotAllowed(_) | RouteLookup::Nothing => None,
    };
    let ambiguous =
        runtime.and_then(|runtime| question.ambiguity(&found, &runtime.target.route, &path));
    let malformed = malformed.or(ambiguous);
    let guard = runtime.map_or(&gateway.unrouted, |runtime| &runtime.guard);
    let route = runtime.map(|runtime| &runtime.target.route);
    let forbidden = forbidden(gateway, described, guard, route, origin.client_ip);
    let rules = if malformed.is_none() && forbidden.is_none() {
        guard.rules.get(described.listener)
    } else {
        None
    };
    let facts = Facts {
        method: request.method(),
        uri: request.uri(),
        headers: request.headers(),
        extensions: Some(&described.extensions),
        body_length: described.body_length(),
        client_ip: Some(origin.client_ip),
        client_certificate: Some(&described.client_certificate),
        client_identity: Some(&described.client_identity),
        host: RequestHost::Known(&host),
        route: route.map_or(UNROUTED, |route| &route.counted_as),
        param: &|name| route?.matches.param(name, &path),
    };
    let limits = limits(rules, &facts);
    let routes = if malformed.is_none() {
        considered_routes(gateway, question, &path)
    } else {
        Vec::new()
    };
    let outcome = if let Some(failure) = malformed {
        Outcome::Malformed(failure)
    } else if let Some(failure) = forbidden {
        Outcome::Forbidden {
            route: route.cloned(),
            failure,
        }
    } else {
        match found {
            RouteLookup::Route(index) => {
                let target = &gateway.routes[index].target;
                Outcome::Routed(Box::new(routed(gateway, target, &request)))
            }
            RouteLookup::MethodNotAllowed(allow) => {
                Outcome::Refused(Failure::MethodNotAllowed(allow))
            }
            RouteLookup::Nothing => Outcome::Refused(Failure::NoRoute),
        }
    };
    Explanation {
        host,
        path,
        client_ip: origin.client_ip,
        unbelieved: if origin.peer_trusted {
            None
        } else {
            forwarding_field(&described.headers)
        },
        routes,
        limits,
        outcome,
    }
}

/// The answer to a request before any limit: by networks, by maintenance, or because the client
/// does not say who it is where somebody asks.
fn forbidden(
    gateway: &Gateway,
    described: &DescribedRequest,
    guard: &RouteGuard,
    route: Option<&Arc<Route>>,
    client: IpAddr,
) -> Option<Failure> {
    let listener = gateway.listeners.get(described.listener);
    let listener_networks = listener.map(|rules| &rules.networks);
    let route_networks = route.map(|route| &route.networks);
    for networks in listener_networks.into_iter().chain(route_networks) {
        if !networks.take(client) {
            return Some(Failure::NetworkRefused);
        }
    }
    if let Some(maintenance) = &guard.maintenance
        && let Some(failure) = maintenance.refusal(client)
    {
        return Some(failure);
    }
    let is_described = !described.client_identity.qualified().is_empty();
    if is_described {
        return None;
    }
    guard.unauthenticated.get(described.listener)?.clone()
}

fn limits(rules: Option<&Arc<RuleSet>>, facts: &Facts<'_>) -> LimitsExplanation {
    match rules {
        Some(rules) => rules.explain(facts),
        None => LimitsExplanation {
            limits: Vec::new(),
            policy: None,
        },
    }
}

/// Every route: those that host and path allow first, most specific first.
fn considered_routes(
    gateway: &Gateway,
    question: RouteQuestion<'_>,
    path: &str,
) -> Vec<ConsideredRoute> {
    let considered = question.consider(path);
    let mut is_taken = false;
    let mut judged: Vec<ConsideredRoute> = Vec::with_capacity(gateway.routes.len());
    for (at, one) in considered.iter().enumerate() {
        // A route with several paths may take the request by more than one of them.
        if considered[..at]
            .iter()
            .any(|before| before.index == one.index)
        {
            continue;
        }
        let why = match one.fits {
            Fits::Method => RouteMatch::Method,
            Fits::Header => RouteMatch::Header,
            Fits::Yes if is_taken => RouteMatch::LessSpecific,
            Fits::Yes => {
                is_taken = true;
                RouteMatch::Applies
            }
        };
        judged.push(ConsideredRoute {
            route: gateway.routes[one.index].target.route.clone(),
            why,
        });
    }
    for (index, other) in gateway.routes.iter().enumerate() {
        if considered.iter().any(|one| one.index == index) {
            continue;
        }
        let route = other.target.route.clone();
        let why = if !question.table.has(index) {
            RouteMatch::Listener
        } else if route.matches.takes_host(question.host) {
            RouteMatch::Path
        } else {
            RouteMatch::Host
        };
        judged.push(ConsideredRoute { route, why });
    }
    judged
}

fn routed(gateway: &Gateway, target: &RouteTarget, request: &Request<Body>) -> Routed {
    let route = target.route.clone();
    let forward = route.action.forward();
    let sent = forward.map(|forward| forwarded(gateway, target, forward, request));
    Routed { route, sent }
}

fn forwarded(
    gateway: &Gateway,
    routed: &RouteTarget,
    forward: &Forward,
    request: &Request<Body>,
) -> ForwardedRequest {
    let mut uri = request.uri().clone();
    let target = target::rewrite(&mut uri, &forward.rewrite).map(|()| uri.to_string());
    let host = match &forward.host {
        HostPolicy::Preserve => request.headers().get(HOST).cloned(),
        HostPolicy::Endpoint => None,
        HostPolicy::Fixed(host) => Some(host.clone()),
    };
    let action = &routed.route.action;
    let mut endpoints = Vec::new();
    for name in action.upstreams() {
        let Some(upstream) = gateway.upstreams.get(name) else {
            continue;
        };
        for endpoint in upstream.endpoints().iter() {
            endpoints.push(endpoint.url().to_owned());
        }
    }
    let upstream = match action {
        Action::Distribute(distribution) => distribution.to_string().into(),
        _ => forward.upstream.clone(),
    };
    ForwardedRequest {
        upstream,
        endpoints,
        target,
        host,
    }
}

impl DescribedRequest {
    /// The body's length by the headers. A request without such a field has no body.
    fn body_length(&self) -> Option<u64> {
        if let Some(length) = self.headers.get(CONTENT_LENGTH) {
            return length.to_str().ok()?.parse().ok();
        }
        if self.headers.contains_key(TRANSFER_ENCODING) {
            return None;
        }
        Some(0)
    }

    /// The request as HTTP/1.1 carries it: the path in the target, the host in its field.
    fn request(&self) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = self.method.clone();
        *request.headers_mut() = self.headers.clone();
        *request.uri_mut() = match self.uri.path_and_query() {
            Some(target) => Uri::from(target.clone()),
            None => Uri::from_static("/"),
        };
        if let Some(host) = self.host()
            && !request.headers().contains_key(HOST)
        {
            request.headers_mut().insert(HOST, host);
        }
        request
    }

    /// The host and port of the URI, without a user.
    fn host(&self) -> Option<HeaderValue> {
        let authority = self.uri.authority()?.as_str();
        let host = match authority.rsplit_once('@') {
            Some((_, host)) => host,
            None => authority,
        };
        HeaderValue::from_str(host).ok()
    }
}
