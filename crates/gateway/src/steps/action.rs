//! The action of a route: forward, answer or echo. The innermost step of a pipeline.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::header::{ALLOW, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Method, Response};
use serde::Serialize;
use tollgate_limiter::layer::LimitedRequest as _;
use tollgate_limiter::limit::key::host;
use tollgate_limiter::limit::on_limit::Degrade;

use crate::exchange::{AnswerResult, Exchange, RouteTarget};
use tollgate_limiter::clock::Instant;
use tollgate_proxy::message::max_forwards;
use tollgate_proxy::upstream::affinity::Affinity;
use tollgate_proxy::upstream::{Destination, Upstream};
use tollgate_proxy::{Mirror, Proxy, RequestSource, RetryTerms};
use tollgate_spec::route::distribution::WHOLE;
use tollgate_spec::route::location;
use tollgate_spec::route::template::Variable;
use tollgate_spec::route::{
    Action, Distribution, Forward, HostPolicy, RedirectRule, Rewrite, Route,
};
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;
use tollgate_wire::http::deadline::LONGEST_WAIT;

/// Does the action of the request's route, or a lesser one where a limit says so. The future is
/// boxed: an idle connection does not carry the room for forwarding, and no step moves it.
#[inline]
pub fn act<'a>(exchange: &'a mut Exchange<'_>) -> BoxFuture<'a, AnswerResult> {
    let context = exchange.context;
    let upstreams = exchange.upstreams;
    let target = match &exchange.route {
        Ok(target) => *target,
        Err(failure) => return answered(Err(failure.clone())),
    };
    let (rule, upstream) = match (&exchange.degraded, &target.route.action) {
        (Some(Degrade::Respond(fixed)), _) => {
            return answered(Ok(context.with_id(fixed.response())));
        }
        (None, Action::Respond(fixed)) => return answered(Ok(context.with_id(fixed.response()))),
        (None, Action::Redirect(redirect)) => return answered(redirected(exchange, redirect)),
        (None, Action::Echo) => return answered(Ok(context.with_id(echo(exchange)))),
        (None, Action::Forward(rule)) => (Cow::Borrowed(rule), target.upstream.as_ref()),
        (None, Action::Distribute(distribution)) => {
            let name = chosen(exchange, distribution);
            if let Some(mirror) = &target.mirror {
                mirror_request(exchange, mirror);
            }
            (Cow::Borrowed(&distribution.forward), upstreams.get(name))
        }
        (Some(Degrade::Upstream(name)), action) => {
            (forward_elsewhere(action, name), upstreams.get(name))
        }
    };
    let Some(upstream) = upstream else {
        return answered(Err(Failure::NoEndpoint));
    };
    if !max_forwards::count_hop(exchange.request) {
        return answered(last_hop(exchange));
    }
    let source = request_source(exchange, upstream, exchange.deadline);
    let destination = target.destination(upstream);
    if target.follows_attempts {
        return follow_attempts(exchange, target, rule, destination, source);
    }
    let proxy = &exchange.worker.proxy;
    Box::pin(proxy.forward(exchange.request, &rule, destination, source))
}

/// The parts of a request that the proxy needs to forward it to `upstream`, besides its message.
#[inline]
fn request_source<'g>(
    exchange: &mut Exchange<'g>,
    upstream: &Upstream,
    deadline: Option<Instant>,
) -> RequestSource<'g> {
    let affinity = if upstream.asks_for_affinity() {
        exchange.with_facts(None, |facts| upstream.affinity(facts))
    } else {
        None
    };
    let context = exchange.context;
    RequestSource {
        origin: &context.origin,
        request_id: &context.request_id,
        interim: exchange.interim,
        sockets: exchange.sockets,
        affinity,
        begun: context.now(),
        deadline,
        has_own_fields: exchange.has_own_fields,
        sent: &context.sent,
    }
}

/// Forwards a request that is sent again, or whose endpoints stand in the access log.
fn follow_attempts<'a>(
    exchange: &'a mut Exchange<'_>,
    target: &'a RouteTarget,
    rule: Cow<'a, Forward>,
    destination: Destination<'a>,
    source: RequestSource<'a>,
) -> BoxFuture<'a, AnswerResult> {
    let proxy: &Proxy = &exchange.worker.proxy;
    let ends = if target.route.retry.is_some() {
        first_end(exchange, &target.route)
    } else {
        None
    };
    let Exchange {
        request, account, ..
    } = exchange;
    let mut report = account.log.as_mut().map(|log| &mut log.report);
    if let Some(report) = &mut report {
        report.upstream = Some(destination.upstream.spec().name.clone());
    }
    match (&target.route.retry, report) {
        (Some(policy), report) => {
            let terms = RetryTerms {
                policy,
                deadline: ends,
                report,
            };
            Box::pin(async move {
                proxy
                    .forward_with_retries(request, &rule, destination, source, terms)
                    .await
            })
        }
        (None, Some(report)) => {
            Box::pin(proxy.forward_reported(request, &rule, destination, source, report))
        }
        (None, None) => Box::pin(proxy.forward(request, &rule, destination, source)),
    }
}

/// The first of the request's time limits to end.
fn first_end(exchange: &Exchange<'_>, route: &Route) -> Option<Instant> {
    let context = exchange.context;
    let whole = route
        .answer_time
        .whole
        .map(|whole| context.started + whole.min(LONGEST_WAIT));
    let call = context
        .call_deadline(exchange.request.headers())
        .map(|deadline| deadline.0);
    exchange.deadline.into_iter().chain(whole).chain(call).min()
}

/// The name of the upstream that the request goes to: by its key, or else by chance.
fn chosen<'r>(exchange: &mut Exchange<'_>, distribution: &'r Distribution) -> &'r Arc<str> {
    let Some(split) = &distribution.split else {
        return &distribution.forward.upstream;
    };
    let key = if split.by.is_empty() {
        None
    } else {
        exchange.with_facts(None, |facts| Affinity::from_key(&split.by, facts))
    };
    let point = match key {
        Some(key) => key.place(WHOLE),
        None => fastrand::u16(..WHOLE),
    };
    split.pick(point).unwrap_or(&distribution.forward.upstream)
}

/// Sends a copy of the request, if it is one of those that are copied.
fn mirror_request(exchange: &mut Exchange<'_>, mirror: &Arc<Mirror>) {
    let source = request_source(exchange, &mirror.upstream, None);
    mirror.copy(exchange.request, &exchange.worker.proxy, source);
}

fn answered<'a>(result: AnswerResult) -> BoxFuture<'a, AnswerResult> {
    Box::pin(ready(result))
}

/// Sends the client elsewhere.
fn redirected(exchange: &Exchange<'_>, redirect: &RedirectRule) -> AnswerResult {
    let names_host = redirect
        .to
        .variables()
        .any(|variable| *variable == Variable::Host);
    if names_host && host::find(exchange.request.uri(), exchange.request.headers()).is_empty() {
        return Err(Failure::BadRequest(
            "a request without a host cannot be redirected",
        ));
    }
    let location = location::written(&exchange.render(&redirect.to));
    let location = match HeaderValue::try_from(location) {
        Ok(location) if !location.is_empty() => location,
        Ok(_) | Err(_) => {
            return Err(Failure::BadRequest(
                "the request makes no location that could be sent back",
            ));
        }
    };
    let mut response = exchange.context.with_id(Response::new(Body::empty()));
    *response.status_mut() = redirect.status;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// The answer to an OPTIONS or TRACE that must go no further (RFC 9110 §7.6.2). A TRACE is refused:
/// reflecting a request shows what others on the way have added to it.
fn last_hop(exchange: &Exchange<'_>) -> AnswerResult {
    let allow = match &exchange.route {
        Ok(target) => allowed_methods(&target.route.matches.methods),
        Err(_) => allowed_methods(&[]),
    };
    if *exchange.request.method() == Method::TRACE {
        return Err(Failure::MethodNotAllowed(allow));
    }
    let mut response = exchange.context.with_id(Response::new(Body::empty()));
    response.headers_mut().insert(ALLOW, allow);
    Ok(response)
}

/// The `Allow` of a route that takes `methods`; none: any.
fn allowed_methods(methods: &[Method]) -> HeaderValue {
    let any = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    if methods.is_empty() {
        return any;
    }
    let names: Vec<&str> = methods
        .iter()
        .map(Method::as_str)
        .filter(|name| *name != "TRACE")
        .collect();
    HeaderValue::try_from(names.join(", ")).unwrap_or(any)
}

/// The answer of an echo: the request as the gateway got it.
#[derive(Serialize)]
struct Echo<'a> {
    method: &'a str,
    scheme: &'a str,
    host: &'a str,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<&'a str>,
    route: &'a str,
    client: String,
    request_id: &'a str,
    headers: BTreeMap<&'a str, Vec<&'a str>>,
}

/// The rule for forwarding a request of the route to another upstream: its own rule, or else the
/// request unchanged.
fn forward_elsewhere<'a>(action: &'a Action, upstream: &Arc<str>) -> Cow<'a, Forward> {
    match action {
        Action::Forward(rule) => Cow::Borrowed(rule),
        Action::Distribute(distribution) => Cow::Borrowed(&distribution.forward),
        Action::Respond(_) | Action::Redirect(_) | Action::Echo => Cow::Owned(Forward {
            upstream: upstream.clone(),
            rewrite: Rewrite::Keep,
            host: HostPolicy::Preserve,
        }),
    }
}

/// A description of the request, as JSON. Its body is left alone.
fn echo(exchange: &Exchange<'_>) -> Response<Body> {
    let request = &*exchange.request;
    let context = exchange.context;
    let mut headers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in request.headers() {
        headers
            .entry(name.as_str())
            .or_default()
            .push(value.to_str().unwrap_or("(not text)"));
    }
    let host = request.uri().authority().map(http::uri::Authority::as_str);
    let echo = Echo {
        method: request.method().as_str(),
        scheme: context.origin.forwarded_scheme(request.headers()),
        host: host
            .or_else(|| headers.get("host")?.first().copied())
            .unwrap_or_default(),
        path: request.uri().path(),
        query: request.uri().query(),
        route: exchange.route_name(),
        client: context.origin.client_ip.to_string(),
        request_id: context.request_id.to_str().unwrap_or_default(),
        headers: headers.clone(),
    };
    let mut text = serde_json::to_vec_pretty(&echo).unwrap_or_default();
    text.push(b'\n');
    let mut response = Response::new(Body::from(bytes::Bytes::from(text)));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
