//! Explains what the gateway would do with a described request, and why.
//!
//! Guarantees that an explanation goes by the same host, path, table, keys, limits and rewriting as
//! [`super::serve`]. Charges nothing and sends nothing.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Uri};
use tollgate_limiter::limit::key::host::{self, RequestHost};
use tollgate_limiter::limit::key::{CallerIdentity, ClientCertificate, Facts};
use tollgate_limiter::request::explanation::LimitsExplanation;
use tollgate_limiter::request::rule_set::RuleSet;

use super::exchange::{RouteTarget, UNROUTED};
use super::runtime::Gateway;
use crate::body::Body;
use crate::error::Failure;
use crate::proxy::message::forwarded::ClientOrigin;
use crate::proxy::message::target;
use crate::route::table::{Fits, RouteLookup};
use crate::route::{Action, Forward, HostPolicy, Match, Route, path};
use crate::upstream::Upstream;

/// A request to explain, as a client would send it.
#[derive(Clone, Debug)]
pub struct DescribedRequest {
    pub method: Method,
    /// With an authority, which becomes the Host unless the headers have one.
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
    /// Every route: those that host and path allow first, most specific first.
    pub routes: Vec<ConsideredRoute>,
    /// The listener's limits, then the route's. Those of the listener also where no route takes the
    /// request.
    pub limits: LimitsExplanation,
    pub outcome: Outcome,
}

/// A route, and whether it takes the request.
#[derive(Debug)]
pub struct ConsideredRoute {
    pub route: Arc<Route>,
    pub why: Why,
}

/// Why a route takes the request, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Applies,
    /// The route would take the request, if none were more specific.
    LessSpecific,
    Method,
    Header,
    Path,
    Host,
}

/// The end of a request: forwarded or answered.
#[derive(Debug)]
pub enum Outcome {
    Routed(Box<Routed>),
    /// Answered by the gateway, if the limits let it pass: no route takes it.
    Refused(Failure),
    /// Answered by the gateway before anything else: its path cannot be read in one way only.
    Malformed(Failure),
    /// Answered by the gateway before any limit: its client is not served, now or ever, or does not
    /// say who it is.
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
    let malformed = path::resolve_dots(request.uri_mut()).err();
    let path = path::normalize(request.uri().path()).into_owned();
    let found = gateway
        .table
        .find(&host, &path, request.method(), request.headers());
    let (rules, route) = match &found {
        RouteLookup::Route(index) => (
            &gateway.routes[*index].guard.rules,
            Some(&*gateway.routes[*index].target.route),
        ),
        RouteLookup::MethodNotAllowed(_) | RouteLookup::Nothing => (&gateway.unrouted.rules, None),
    };
    let outside = is_forbidden(gateway, described.listener, route, origin.client_ip);
    let forbidden = if outside {
        Some(Failure::NetworkRefused)
    } else {
        maintained(gateway, &found, origin.client_ip)
    };
    let forbidden = forbidden.or_else(|| unauthenticated(gateway, &found, described));
    let asked = rules
        .get(described.listener)
        .filter(|_| malformed.is_none() && forbidden.is_none());
    let limits = limits(
        asked,
        &Facts {
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
        },
    );
    let outcome = match (malformed, forbidden, found) {
        (Some(failure), _, _) => Outcome::Malformed(failure),
        (None, Some(failure), RouteLookup::Route(index)) => Outcome::Forbidden {
            route: Some(gateway.routes[index].target.route.clone()),
            failure,
        },
        (None, Some(failure), _) => Outcome::Forbidden {
            route: None,
            failure,
        },
        (None, None, RouteLookup::Route(index)) => Outcome::Routed(Box::new(routed(
            gateway,
            &gateway.routes[index].target,
            &request,
        ))),
        (None, None, RouteLookup::MethodNotAllowed(allow)) => {
            Outcome::Refused(Failure::MethodNotAllowed(allow))
        }
        (None, None, RouteLookup::Nothing) => Outcome::Refused(Failure::NoRoute),
    };
    let routes = match &outcome {
        Outcome::Malformed(_) => Vec::new(),
        Outcome::Routed(_) | Outcome::Refused(_) | Outcome::Forbidden { .. } => {
            judge(gateway, &host, &path, &request)
        }
    };
    Explanation {
        host,
        path,
        client_ip: origin.client_ip,
        routes,
        limits,
        outcome,
    }
}

/// The answer of the route that was found to this client, if it is under maintenance.
fn maintained(gateway: &Gateway, found: &RouteLookup, client: IpAddr) -> Option<Failure> {
    let RouteLookup::Route(index) = found else {
        return None;
    };
    gateway.routes[*index]
        .guard
        .maintenance
        .as_ref()?
        .refusal(client)
}

/// The answer to a client that was not described, if the route that was found asks who that is, or
/// the listener where there is none.
fn unauthenticated(
    gateway: &Gateway,
    found: &RouteLookup,
    described: &DescribedRequest,
) -> Option<Failure> {
    let guard = match found {
        RouteLookup::Route(index) => &gateway.routes[*index].guard,
        RouteLookup::MethodNotAllowed(_) | RouteLookup::Nothing => &gateway.unrouted,
    };
    let is_described = !described.client_identity.qualified().is_empty();
    guard
        .unauthenticated
        .get(described.listener)?
        .clone()
        .filter(|_| !is_described)
}

/// Whether the networks of the listener or of the route leave the client out.
fn is_forbidden(gateway: &Gateway, listener: usize, route: Option<&Route>, client: IpAddr) -> bool {
    let of_listener = gateway.listeners.get(listener).map(|rules| &rules.networks);
    let of_route = route.map(|route| &route.networks);
    of_listener
        .into_iter()
        .chain(of_route)
        .any(|networks| !networks.take(client))
}

fn limits(rules: Option<&Arc<RuleSet>>, facts: &Facts<'_>) -> LimitsExplanation {
    rules.map_or_else(
        || LimitsExplanation {
            limits: Vec::new(),
            policy: None,
        },
        |rules| rules.explain(facts),
    )
}

fn judge(
    gateway: &Gateway,
    host: &str,
    path: &str,
    request: &Request<Body>,
) -> Vec<ConsideredRoute> {
    let considered = gateway
        .table
        .consider(host, path, request.method(), request.headers());
    let mut taken = false;
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
            Fits::Method => Why::Method,
            Fits::Header => Why::Header,
            Fits::Yes if std::mem::replace(&mut taken, true) => Why::LessSpecific,
            Fits::Yes => Why::Applies,
        };
        judged.push(ConsideredRoute {
            route: gateway.routes[one.index].target.route.clone(),
            why,
        });
    }
    let others = gateway
        .routes
        .iter()
        .enumerate()
        .filter(|(index, _)| considered.iter().all(|one| one.index != *index));
    judged.extend(others.map(|(_, other)| ConsideredRoute {
        route: other.target.route.clone(),
        why: elsewhere(&other.target, host),
    }));
    judged
}

fn elsewhere(target: &RouteTarget, host: &str) -> Why {
    let matches: &Match = &target.route.matches;
    if matches.takes_host(host) {
        Why::Path
    } else {
        Why::Host
    }
}

fn routed(gateway: &Gateway, target: &RouteTarget, request: &Request<Body>) -> Routed {
    let sent = target
        .route
        .action
        .forward()
        .map(|forward| sent(gateway, target, forward, request));
    Routed {
        route: target.route.clone(),
        sent,
    }
}

fn sent(
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
    let urls = |upstream: &Arc<Upstream>| {
        upstream
            .endpoints()
            .iter()
            .map(|of| of.url().to_owned())
            .collect::<Vec<_>>()
    };
    let upstreams = action.upstreams();
    let endpoints = upstreams
        .into_iter()
        .filter_map(|name| gateway.upstreams.get(name))
        .flat_map(urls)
        .collect();
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
        let length = self.headers.get(CONTENT_LENGTH);
        let chunked = self.headers.contains_key(TRANSFER_ENCODING);
        length.map_or_else(
            || (!chunked).then_some(0),
            |length| length.to_str().ok()?.parse().ok(),
        )
    }

    /// The request as HTTP/1.1 carries it: the path in the target, the host in its field.
    fn request(&self) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = self.method.clone();
        *request.headers_mut() = self.headers.clone();
        let target = self
            .uri
            .path_and_query()
            .cloned()
            .map_or_else(|| Uri::from_static("/"), Uri::from);
        *request.uri_mut() = target;
        let authority = self.uri.authority().map(|authority| authority.as_str());
        let host = authority.map(|text| text.rsplit_once('@').map_or(text, |(_, host)| host));
        if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok())
            && !request.headers().contains_key(HOST)
        {
            request.headers_mut().insert(HOST, host);
        }
        request
    }
}
