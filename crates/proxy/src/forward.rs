//! Forwards a request to an upstream and relays the response.
//!
//! Guarantees that bodies stream, and that the result is either a response or a typed failure.

use std::future::{Future, ready};

use futures_util::future::{BoxFuture, Either};
use http::header::{SET_COOKIE, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode, Version};

use super::connection::client::{Client, Lease, LeaseNeeds};
use super::connection::exhaustion::MakeRoom;
use super::connection::upgrade::UpgradeRequest;
use super::connection::upstream_request::UpstreamRequest;
use super::gave_up::EndpointWait;
use super::kept_bytes::ReplayMemory;
use super::message::{additions, headers};
use super::report::ForwardReport;
use super::request_source::RequestSource;
use super::retry::{MAX_ENDPOINTS, Retry};
use crate::upstream::adaptive::AdaptivePlace;
use crate::upstream::affinity::Affinity;
use crate::upstream::balance::Tried;
use crate::upstream::endpoints::{PickedEndpoint, UpstreamConnectError};
use crate::upstream::{Destination, Upstream};
use tollgate_limiter::clock::{self, Instant};
use tollgate_spec::route::Forward;
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;
use tollgate_wire::http::deadline::UpstreamWait;
use tollgate_wire::http::upgrade_rules;

/// A connection, or the wait for one.
type Connecting<'a> = Either<Lease, BoxFuture<'a, Result<Lease, Failure>>>;

/// The proxy of a worker, with the upstream connections it keeps.
#[derive(Default)]
pub struct Proxy {
    client: Client,
}

impl Proxy {
    /// `clients` give way when the process has no descriptor left for a connection to an upstream.
    pub fn new(clients: MakeRoom) -> Self {
        ReplayMemory::prepare();
        Self {
            client: Client::new(clients),
        }
    }

    /// Drops idle connections that have expired. To be called every few seconds on the worker.
    pub fn sweep(&self) {
        self.client.sweep();
    }

    /// Closes idle connections to endpoints whose keys are not `wanted` any more.
    pub fn retain(&self, wanted: impl Fn(&str) -> bool) {
        self.client.retain(wanted);
    }

    /// The number of idle connections.
    pub fn idle_connections(&self) -> usize {
        self.client.idle()
    }

    /// Sends `request` to an endpoint of the upstream. Must run inside the worker's runtime.
    ///
    /// The response's body streams. The connection is free for another request once it has ended.
    ///
    /// # Errors
    /// Failures of the upstream (502, 503, 504), or of the request and its body (400, 408, 413,
    /// 501).
    pub fn forward<'a>(
        &'a self,
        request: &'a mut Request<Body>,
        rule: &Forward,
        destination: Destination<'a>,
        source: RequestSource<'a>,
    ) -> impl Future<Output = Result<Response<Body>, Failure>> + Send + 'a {
        self.forward_by(request, rule, destination, source, NextEndpoint)
    }

    /// Like [`forward`](Self::forward), with a note of the endpoints that the request goes to.
    ///
    /// # Errors
    /// Failures are those of [`forward`](Self::forward).
    pub fn forward_reported<'a>(
        &'a self,
        request: &'a mut Request<Body>,
        rule: &Forward,
        destination: Destination<'a>,
        source: RequestSource<'a>,
        report: &'a mut ForwardReport,
    ) -> impl Future<Output = Result<Response<Body>, Failure>> + Send + 'a {
        self.forward_by(request, rule, destination, source, ReportedEndpoint(report))
    }

    #[inline]
    fn forward_by<'a>(
        &'a self,
        request: &'a mut Request<Body>,
        rule: &Forward,
        destination: Destination<'a>,
        source: RequestSource<'a>,
        mut choice: impl EndpointChoice + 'a,
    ) -> impl Future<Output = Result<Response<Body>, Failure>> + Send + 'a {
        let outcome = destination.upstream.metrics().request(source.deadline);
        // Prepared outside the future, which has no use for the rule.
        let mut prepared = UpstreamRequest::prepare(request, rule, source);
        async move {
            let result = match &mut prepared {
                Ok(request) => match admit(destination.upstream) {
                    // A request has its place until it is answered.
                    Ok(_place) => {
                        self.exchange(request, destination, &source, &mut choice)
                            .await
                    }
                    Err(failure) => Err(failure),
                },
                Err(failure) => Err(failure.clone()),
            };
            outcome.finish(&result);
            result
        }
    }

    /// Sends a request that its upstream admits, to endpoints by `choice`.
    pub(super) async fn exchange(
        &self,
        request: &mut UpstreamRequest<'_>,
        destination: Destination<'_>,
        source: &RequestSource<'_>,
        choice: &mut impl EndpointChoice,
    ) -> Result<Response<Body>, Failure> {
        let upstream = destination.upstream;
        if let Some(bound) = &upstream.spec().bounds.head {
            request.check_size(bound)?;
        }
        let mut retry = Retry::default();
        let mut now = source.begun;
        loop {
            // A connection that failed is gone before the request waits for another one.
            let failed = {
                let needs = LeaseNeeds {
                    spec: destination.spec,
                    now,
                    fresh: retry.is_spent(),
                    refused_by: retry.refused_by(),
                    upgrade: request.upgrade.is_some(),
                    source,
                };
                let mut lease = match self.lease(upstream, needs, source.affinity, choice) {
                    Either::Left(idle) => idle,
                    Either::Right(connecting) => connecting.await?,
                };
                let mut watch = watch(upstream, &lease, source, request);
                // Marked before anything goes: this future may be dropped at any time.
                let was_sent = source.sent.set();
                let sent = match &mut lease {
                    Lease::Http1(connection) => connection.send(request).await,
                    // Boxed: large, and most exchanges have no need of it.
                    Lease::Http2(exchange) => Box::pin(exchange.send(request)).await,
                };
                // The endpoint has answered or failed by itself.
                if let Some(watch) = &mut watch {
                    watch.end();
                }
                match sent {
                    Ok(response) => {
                        let now = clock::now();
                        choice.answered(now);
                        upstream
                            .metrics()
                            .responded(now.saturating_duration_since(lease.begun_at()));
                        if upstream.observes()
                            && let Some(endpoint) = lease.endpoint()
                        {
                            upstream.record_response(endpoint, response.status(), || {
                                lease.latency(now)
                            });
                        }
                        let cookie = if upstream.asks_for_affinity() {
                            sticky(&lease, source.affinity)
                        } else {
                            None
                        };
                        let mut relayed = relay(
                            response,
                            lease,
                            request.upgrade.take(),
                            source.request_id,
                            now,
                        )?;
                        if let Some(cookie) = cookie {
                            relayed.headers_mut().append(SET_COOKIE, cookie);
                        }
                        return Ok(relayed);
                    }
                    Err(failed) => {
                        if !failed.was_sent {
                            source.sent.restore(was_sent);
                        }
                        if let (Failure::ResponseTimeout, Some(watch)) = (&failed.failure, &watch) {
                            watch.record_wait(clock::now());
                        }
                        failed
                    }
                }
            };
            if upstream.ejects()
                && let Some(fault) = failed.fault_of_endpoint(retry.is_spent())
            {
                upstream.record_failure(&fault.endpoint, &fault.reason);
            }
            // Boxed: rare, and it may wait.
            let decided = Box::pin(retry.decide(failed, request.method(), destination)).await;
            request.upload = Some(decided?);
            now = clock::now();
        }
    }

    /// A connection that is idle, or the wait for one to the first endpoint that accepts it. The
    /// wait is boxed: few requests have to wait, and the others do not carry the room for it.
    #[inline]
    fn lease<'a>(
        &'a self,
        upstream: &'a Upstream,
        needs: LeaseNeeds<'a>,
        affinity: Option<Affinity>,
        choice: &'a mut impl EndpointChoice,
    ) -> Connecting<'a> {
        let mut tried = Tried::by(affinity);
        let Some(endpoint) = choice.pick(upstream, &mut tried) else {
            return Either::Right(Box::pin(ready(Err(Failure::NoEndpoint))));
        };
        match self.client.lease_idle(upstream, endpoint, needs) {
            Ok(lease) => Either::Left(lease),
            Err(endpoint) => Either::Right(Box::pin(
                self.connect(upstream, endpoint, needs, tried, choice),
            )),
        }
    }

    /// A connection to `endpoint`, or to the first endpoint after it that accepts one.
    async fn connect(
        &self,
        upstream: &Upstream,
        mut endpoint: PickedEndpoint,
        mut needs: LeaseNeeds<'_>,
        mut tried: Tried,
        choice: &mut impl EndpointChoice,
    ) -> Result<Lease, Failure> {
        loop {
            let error = match self.client.lease(upstream, endpoint, needs).await {
                Ok(lease) => return Ok(lease),
                Err(error) => error,
            };
            // The bounds are those of all endpoints together, and descriptors those of the process.
            let is_bound = matches!(
                error,
                UpstreamConnectError::Overloaded | UpstreamConnectError::Exhausted(_)
            );
            let next = if is_bound || tried.count() >= MAX_ENDPOINTS {
                None
            } else {
                choice.pick(upstream, &mut tried)
            };
            let Some(next) = next else {
                return Err(connect_failure(&error));
            };
            endpoint = next;
            needs.now = clock::now();
        }
    }
}

/// Which endpoint a request goes to next.
pub(super) trait EndpointChoice: Send {
    /// The next endpoint of a request that could not connect to those in `tried`, to which it is
    /// added.
    fn pick(&mut self, upstream: &Upstream, tried: &mut Tried) -> Option<PickedEndpoint>;

    /// The latest endpoint has answered.
    #[inline]
    fn answered(&mut self, _: Instant) {}
}

/// Picks the endpoint whose turn it is.
struct NextEndpoint;

impl EndpointChoice for NextEndpoint {
    #[inline]
    fn pick(&mut self, upstream: &Upstream, tried: &mut Tried) -> Option<PickedEndpoint> {
        upstream.pick(tried)
    }
}

/// Like [`NextEndpoint`], and reports each endpoint.
struct ReportedEndpoint<'a>(&'a mut ForwardReport);

impl EndpointChoice for ReportedEndpoint<'_> {
    fn pick(&mut self, upstream: &Upstream, tried: &mut Tried) -> Option<PickedEndpoint> {
        let picked = upstream.pick(tried)?;
        self.0.begin(&picked);
        Some(picked)
    }

    fn answered(&mut self, now: Instant) {
        self.0.answered(now);
    }
}

/// The place of another request at the upstream, if it takes one. It then pays for retries.
pub(super) fn admit(upstream: &Upstream) -> Result<Option<AdaptivePlace<'_>>, Failure> {
    let place = upstream.admit()?;
    upstream.budget().deposit();
    Ok(place)
}

/// Watches whether the endpoint answers. `None`: the upstream does not observe its endpoints, or
/// the request has a body, and so the client may be what keeps it.
#[inline]
fn watch<'a>(
    upstream: &'a Upstream,
    lease: &Lease,
    source: &RequestSource<'_>,
    request: &UpstreamRequest<'_>,
) -> Option<EndpointWait<'a>> {
    if !upstream.observes() || request.has_body() {
        return None;
    }
    EndpointWait::for_response(upstream, lease.endpoint()?, lease.begun_at(), source)
}

/// The `Set-Cookie` for a client that does not come back to this endpoint by itself.
fn sticky(lease: &Lease, affinity: Option<Affinity>) -> Option<HeaderValue> {
    lease.endpoint()?.role().set_cookie(affinity).cloned()
}

fn connect_failure(error: &UpstreamConnectError) -> Failure {
    match error {
        UpstreamConnectError::Timeout => Failure::ConnectTimeout,
        UpstreamConnectError::Failed(_) => Failure::ConnectFailed,
        UpstreamConnectError::Tls(_) | UpstreamConnectError::OfferRefused(_) => Failure::TlsFailed,
        UpstreamConnectError::Overloaded => Failure::UpstreamOverloaded,
        UpstreamConnectError::Exhausted(_) => Failure::Exhausted,
    }
}

/// The response that the client gets.
fn relay(
    mut response: Response<()>,
    lease: Lease,
    upgrade: Option<UpgradeRequest>,
    request_id: &HeaderValue,
    now: Instant,
) -> Result<Response<Body>, Failure> {
    // The protocols that the upstream wants instead (RFC 9110 §15.5.22). Only a client of HTTP/1
    // can use them.
    let required = if response.status() == StatusCode::UPGRADE_REQUIRED {
        response.headers().get(UPGRADE).cloned()
    } else {
        None
    };
    let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let mut switched_to = None;
    if switches {
        switched_to = upgrade_rules::switched_to(response.version(), response.headers());
    }
    headers::strip_response(response.headers_mut());
    let received = response.version();
    // The server writes it in the client's version.
    *response.version_mut() = Version::HTTP_11;
    if switches {
        let upgrade = upgrade.ok_or(Failure::UpstreamInvalid)?;
        let protocol = switched_to.ok_or(Failure::UpstreamInvalid)?;
        if !upgrade_rules::is_offered(&protocol, upgrade.protocol()) {
            return Err(Failure::UpstreamInvalid);
        }
        additions::add_to_response(response.headers_mut(), received, request_id, Some(protocol));
        let end = match lease {
            // The rest of a request that is not sent yet would be taken for the new protocol.
            Lease::Http1(connection) if !connection.is_sent() => {
                return Err(Failure::UpstreamInvalid);
            }
            Lease::Http1(connection) => {
                let idle = connection.wait_limit(UpstreamWait::Tunnel);
                let (upstream, guard) = connection.upgrade();
                upgrade.join(upstream, idle, guard)
            }
            Lease::Http2(exchange) => {
                let idle = exchange.wait_limit(UpstreamWait::Tunnel);
                let (upstream, guard) = exchange.upgrade().ok_or(Failure::UpstreamInvalid)?;
                upgrade.join(upstream, idle, guard)
            }
        };
        response.extensions_mut().insert(end);
        return Ok(response.map(|_| Body::empty()));
    }
    additions::add_to_response(response.headers_mut(), received, request_id, required);
    Ok(response.map(|()| match lease {
        Lease::Http1(connection) => connection.into_body(now),
        Lease::Http2(exchange) => exchange.into_body(),
    }))
}
