//! A request on its way through the gateway, lent to each step of its route's pipeline.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::limit::key::{CallerIdentity, ClientCertificate, host};
use tollgate_limiter::limit::on_limit::Degrade;

use super::access_log::LoggedRequest;
use super::account::{Account, CallOutcome, InFlight};
use super::answer::AnswerChanges;
use super::answer::rendered::RenderedFields;
use super::route_metrics::{RouteMetrics, method_label, other_method};
use tollgate_limiter::clock::{self, Instant};
use tollgate_proxy::Mirror;
use tollgate_proxy::Proxy;
use tollgate_proxy::message::forwarded::ClientOrigin;
use tollgate_proxy::report::SentMark;
use tollgate_proxy::upstream::{Destination, Upstream, UpstreamSpec};
use tollgate_server::ConnectionInfo;
use tollgate_spec::route::Route;
use tollgate_spec::route::template::{IdentityVariable, Template, Variable};
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;
use tollgate_wire::grpc::{self, CallDeadline};
use tollgate_wire::http::RequestScheme;
use tollgate_wire::http::interim::InterimSlot;
use tollgate_wire::http::request_id::{self, REQUEST_ID};
use tollgate_wire::transport::peer::{SocketPair, TrustedPeers};

/// The route of requests that no route takes, in metrics, logs and keys.
pub const UNROUTED: &str = "none";

/// The upstreams of the node by name, with their state.
pub type Upstreams = HashMap<Arc<str>, Arc<Upstream>>;

/// The answer to a request, or why there is none yet.
pub type AnswerResult = Result<Response<Body>, Failure>;

/// A route, and where it forwards to.
pub struct RouteTarget {
    pub route: Arc<Route>,
    /// The upstream of a route that forwards; the first of several.
    pub upstream: Option<Arc<Upstream>>,
    /// The copies of a route's requests.
    pub mirror: Option<Arc<Mirror>>,
    /// The upstreams with the route's own time limits. Empty: the route has none.
    pub timed: Vec<Arc<UpstreamSpec>>,
    /// Whether requests are sent again, or their endpoints stand in the access log.
    pub follows_attempts: bool,
}

/// The parts of one worker that its requests use.
#[derive(Clone)]
pub struct Worker {
    pub limiter: Limiter,
    pub proxy: Arc<Proxy>,
    pub in_flight: Arc<InFlight>,
}

/// A request's start, id and client.
pub struct RequestContext {
    pub started: Instant,
    /// Whether a step may have waited for something since then.
    may_have_waited: AtomicBool,
    /// Whether an upstream got the request.
    pub sent: SentMark,
    pub request_id: HeaderValue,
    pub origin: ClientOrigin,
    /// Requests that were in flight on this worker when it arrived.
    pub in_flight_before: usize,
    /// Whether the request is a call of gRPC, which is answered by statuses of gRPC.
    pub is_call: bool,
    /// The `Strict-Transport-Security` of the answer.
    pub hsts: Option<HeaderValue>,
}

/// The place where a request arrived.
#[derive(Clone, Copy)]
pub struct Arrival<'g> {
    pub worker: &'g Worker,
    /// The client's connection. `None`: its client has no IP address.
    pub sockets: Option<&'g SocketPair>,
    /// Where interim responses go.
    pub interim: &'g InterimSlot,
}

/// A request with all that the steps of its pipeline use.
pub struct Exchange<'g> {
    pub upstreams: &'g Upstreams,
    /// Where interim responses go.
    pub interim: &'g InterimSlot,
    /// The client's connection. `None`: its client has no IP address.
    pub sockets: Option<&'g SocketPair>,
    pub worker: &'g Worker,
    pub context: &'g RequestContext,
    pub request: &'g mut Request<Body>,
    /// The path that routes are matched by, where it differs from the request's.
    pub normalized_path: Option<String>,
    /// The route, or why there is none.
    pub route: Result<&'g RouteTarget, Failure>,
    /// Whether a page asks if it may send what this route would take.
    pub is_preflight: bool,
    /// Whether fields of the request were set: what the client claimed is gone already.
    pub has_own_fields: bool,
    /// The client, on a route that asks who it is.
    pub identity: Option<Arc<CallerIdentity>>,
    /// The lesser service that the request gets because of a limit.
    pub degraded: Option<Degrade>,
    /// The end of the wait for an answer, by the route's time limits.
    pub deadline: Option<Instant>,
    pub account: Box<Account>,
    /// The changes of the answer, whoever it comes from.
    pub answer: AnswerChanges,
}

impl RouteTarget {
    /// How requests of the route go to `upstream`.
    #[inline]
    pub fn destination<'a>(&'a self, upstream: &'a Arc<Upstream>) -> Destination<'a> {
        let mut spec = upstream.spec();
        for timed in &self.timed {
            if timed.name == spec.name {
                spec = timed;
                break;
            }
        }
        Destination { upstream, spec }
    }
}

impl RequestContext {
    /// Counts one more request in flight. Its account counts it out. An answer over TLS carries
    /// `hsts`.
    #[inline]
    pub fn open(
        trusted: &TrustedPeers,
        hsts: Option<&HeaderValue>,
        worker: &Worker,
        connection: &ConnectionInfo,
        request: &Request<Body>,
    ) -> Self {
        // A proxy that named no client is trusted, and what its clients claim is not.
        let trusted = if connection.is_unnamed {
            None
        } else {
            Some(trusted)
        };
        let mut origin = ClientOrigin::of_peer(request.headers(), connection.peer, trusted);
        if let Some(session) = &connection.tls {
            origin.scheme = RequestScheme::Https;
            origin.client.clone_from(&session.client);
        }
        let sent = if origin.peer_trusted {
            request.headers().get(REQUEST_ID)
        } else {
            None
        };
        let request_id = sent
            .and_then(request_id::accept)
            .unwrap_or_else(request_id::generate);
        Self {
            started: clock::now(),
            may_have_waited: AtomicBool::new(false),
            sent: SentMark::default(),
            request_id,
            origin,
            in_flight_before: worker.in_flight.enter(),
            is_call: grpc::is_call(request),
            hsts: connection.tls.as_ref().and(hsts).cloned(),
        }
    }

    /// From now on, the request may wait.
    pub fn set_may_have_waited(&self) {
        self.may_have_waited.store(true, Relaxed);
    }

    /// The time: without a look at the clock while nothing has waited.
    pub fn now(&self) -> Instant {
        if self.may_have_waited.load(Relaxed) {
            clock::now()
        } else {
            self.started
        }
    }

    /// The certificate by which the client has authenticated itself.
    pub fn client_certificate(&self) -> Option<&ClientCertificate> {
        self.origin
            .client
            .as_ref()
            .map(|client| &client.certificate)
    }

    /// Opens the account of `request`, for `metrics` until its route is known. `None`: a request
    /// that could not be read has neither method, path nor version.
    pub fn account(
        &self,
        worker: &Worker,
        metrics: &Arc<RouteMetrics>,
        request: Option<&Request<Body>>,
    ) -> Box<Account> {
        let method = request.map_or_else(other_method, |request| method_label(request.method()));
        let mut account = Account::open(
            self.started,
            worker.in_flight.clone(),
            method,
            metrics.clone(),
        );
        account.grpc = self.is_call.then(CallOutcome::default);
        account
    }

    /// Begins the line of `request` in the access log. It was sent with the target `uri`.
    pub fn logged(&self, uri: Uri, request: &mut Request<Body>) -> Box<LoggedRequest> {
        Box::new(LoggedRequest::new(
            self.origin.client_ip,
            &self.request_id,
            uri,
            request,
        ))
    }

    /// The deadline that a call of gRPC has set itself.
    pub fn call_deadline(&self, headers: &HeaderMap) -> Option<CallDeadline> {
        if self.is_call {
            CallDeadline::from_headers(headers, self.started)
        } else {
            None
        }
    }

    /// Adds the request's id to an answer that was made here. Others come with it.
    pub fn with_id(&self, mut response: Response<Body>) -> Response<Body> {
        response
            .headers_mut()
            .insert(REQUEST_ID, self.request_id.clone());
        response
    }

    /// The answer to a request that failed.
    pub fn respond(&self, failure: &Failure) -> Response<Body> {
        if self.is_call {
            failure.respond_to_call(&self.request_id)
        } else {
            failure.respond(&self.request_id)
        }
    }
}

impl<'g> Exchange<'g> {
    /// An exchange without a route, whose account is open from now on.
    #[inline]
    pub fn new(
        context: &'g RequestContext,
        arrival: Arrival<'g>,
        upstreams: &'g Upstreams,
        unrouted: &Arc<RouteMetrics>,
        request: &'g mut Request<Body>,
    ) -> Self {
        let worker = arrival.worker;
        Self {
            account: context.account(worker, unrouted, Some(request)),
            upstreams,
            interim: arrival.interim,
            sockets: arrival.sockets,
            worker,
            context,
            request,
            normalized_path: None,
            route: Err(Failure::NoRoute),
            is_preflight: false,
            has_own_fields: false,
            identity: None,
            degraded: None,
            answer: AnswerChanges::default(),
            deadline: None,
        }
    }

    /// The route's name in keys of limits.
    pub fn counted_as(&self) -> &str {
        self.route
            .as_ref()
            .map_or(UNROUTED, |target| &target.route.counted_as)
    }

    /// The route's name, in metrics and logs.
    pub fn route_name(&self) -> &str {
        self.route
            .as_ref()
            .map_or(UNROUTED, |target| &target.route.name)
    }

    /// The path that routes are matched by.
    pub fn path(&self) -> &str {
        self.normalized_path
            .as_deref()
            .unwrap_or(self.request.uri().path())
    }

    /// Takes note of who the client is.
    pub fn identify(&mut self, identity: Arc<CallerIdentity>) {
        // A service may let somebody pass without a name.
        if !identity.id().is_empty() {
            self.account.identify(&identity);
        }
        self.identity = Some(identity);
        // The fields of the answer were filled in before, for answers to clients that nobody knows.
        if self.answer.fields.is_some()
            && let Ok(target) = &self.route
            && target.route.response_fields.name_the_client()
        {
            let changes = &target.route.response_fields;
            let fields = RenderedFields::new(changes, |template| self.render(template));
            self.answer.fields = Some(Box::new(fields));
        }
    }

    /// The text of `template` for this request.
    pub fn render(&self, template: &Template) -> String {
        template.render(|variable, text| self.write_value(variable, text))
    }

    fn write_value(&self, variable: &Variable, text: &mut String) {
        let uri = self.request.uri();
        let headers = self.request.headers();
        match variable {
            // Writing to a String cannot fail.
            Variable::ClientIp => drop(write!(text, "{}", self.context.origin.client_ip)),
            Variable::Scheme => text.push_str(self.context.origin.forwarded_scheme(headers)),
            Variable::Host => text.push_str(&host::find(uri, headers)),
            Variable::Method => text.push_str(self.request.method().as_str()),
            // `OPTIONS *` asks about the server as a whole.
            Variable::Path | Variable::Uri if uri.path() == "*" => text.push('/'),
            Variable::Path => text.push_str(uri.path()),
            Variable::Query => text.push_str(uri.query().unwrap_or_default()),
            Variable::Uri => {
                text.push_str(uri.path_and_query().map_or("/", |target| target.as_str()))
            }
            Variable::Route => text.push_str(self.route_name()),
            Variable::RequestId => {
                text.push_str(self.context.request_id.to_str().unwrap_or_default())
            }
            Variable::CertificateSubject => {
                text.push_str(
                    self.context
                        .client_certificate()
                        .map_or("", |certificate| &certificate.subject),
                );
            }
            Variable::Identity(part) => {
                text.push_str(
                    self.identity
                        .as_deref()
                        .map_or("", |who| unpadded(part_of(who, part))),
                );
            }
            Variable::PathParam(name) => text.push_str(self.path_param(name).unwrap_or_default()),
            Variable::Header(name) => {
                text.push_str(
                    headers
                        .get(name)
                        .and_then(|value| value.to_str().ok())
                        .unwrap_or_default(),
                );
            }
        }
    }

    fn path_param(&self, name: &str) -> Option<&str> {
        self.route
            .as_ref()
            .ok()?
            .route
            .matches
            .param(name, self.path())
    }
}

/// A text with white space around it is left out: a server would take it for the text without.
fn unpadded(text: &str) -> &str {
    if text.trim() == text { text } else { "" }
}

fn part_of<'a>(identity: &'a CallerIdentity, part: &IdentityVariable) -> &'a str {
    match part {
        IdentityVariable::Id => identity.id(),
        IdentityVariable::Authenticator => identity.authenticator(),
        IdentityVariable::Plan => identity.plan.as_deref().unwrap_or_default(),
        IdentityVariable::Label(name) => identity.labels.get(&**name).map_or("", String::as_str),
        IdentityVariable::Claim(name) => identity.claims.get(&**name).map_or("", String::as_str),
    }
}
