//! The way of a request through the gateway, step by step, and of its answer back:
//!
//! account ▸ panic guard ▸ route ▸ deadlines ▸ CORS ▸ answer's rules ▸ networks ▸ maintenance ▸
//! identity ▸ load shed ▸ body's keys ▸ rate limit ▸ body bound ▸ request's fields ▸ head time ▸
//! action ▸ answer: HSTS ▸ error page ▸ limits' fields ▸ route's fields ▸ compression ▸ CORS ▸
//! account's end
//!
//! Read it top to bottom: each step says why it stands where it stands. A route has only the steps
//! that it uses; the others cost a branch. Every request gets one answer, whatever happens, and
//! every answer ends in [`finish`].

use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::header::STRICT_TRANSPORT_SECURITY;
use http::{Request, Response};
use tollgate_limiter::request::permit::Permit;
use tower_layer::Layer as _;
use tower_service::Service;

use super::access_log::LoggedRequest;
use super::account::Account;
use super::answer::AnswerChanges;
use super::exchange::{AnswerResult, Arrival, Exchange, RequestContext};
use super::routing::find_route;
use super::runtime::{Gateway, WorkerListener};
use super::steps::action::act;
use super::steps::identity::Refusal;
use super::steps::time::{Deadlines, begin_head_time, head_until};
use super::steps::{Pipeline, panic_guard};
use tollgate_server::{ConnectionInfo, Handler};
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;
use tollgate_wire::header_map_pool;
use tollgate_wire::http::h2::websocket_proof::WebSocketProof;
use tollgate_wire::http::interim::InterimSlot;
use tollgate_wire::transport::peer::PeerAddress;
use tollgate_wire::transport::tls::server::acceptor::TlsAcceptor;

/// Answers one request.
async fn answer(
    listener: &WorkerListener,
    connection: &Arc<ConnectionInfo>,
    interim: &InterimSlot,
    request: &mut Request<Body>,
) -> Response<Body> {
    let gateway = listener.gateway.load_full();

    // The account is outermost: whatever the answer, it is counted, timed and logged, to the end of
    // its body.
    let hsts = gateway.listeners[listener.index].hsts.as_ref();
    let worker = &listener.worker;
    let context = RequestContext::open(&gateway.trusted_proxies, hsts, worker, connection, request);
    let arrival = Arrival {
        worker,
        sockets: connection.sockets.as_ref(),
        interim,
    };
    let unrouted = &gateway.unrouted.metrics;
    let mut exchange = Exchange::new(&context, arrival, &gateway.upstreams, unrouted, request);
    let extensions = exchange.request.extensions();
    let websocket = extensions.get::<WebSocketProof>().cloned();

    // A panic is a bug of ours and ends this request only: everything inside is dropped, nothing is
    // used again.
    let mut result = {
        // The steps are pinned here and lent: the future is large, and an async function would move
        // it.
        let steps = pin!(run_routed(
            &gateway,
            listener.index,
            connection,
            &mut exchange
        ));
        panic_guard::guard(steps).await
    };
    if matches!(result, Err(Failure::Panicked)) {
        gateway.panics.increment(1);
        exchange.account.permit = Permit::default();
    }

    // All clients of a proxy that nobody has named are one: a denial that may be due to it says so.
    if let Err(Failure::Denied(denial)) = &result {
        let warning = &gateway.unnamed_proxy;
        warning.consider(&exchange, denial, &gateway.limits);
    }

    // A switch to WebSocket is checked in the request's own account: what its client gets is what
    // is logged and counted.
    if let (Some(proof), Ok(response)) = (&websocket, &result)
        && let Err(failure) = proof.check(response)
    {
        result = Err(failure);
    }
    let Exchange {
        account, answer, ..
    } = exchange;
    // The next request may use the header map.
    header_map_pool::give_back(std::mem::take(request.headers_mut()));
    finish(&context, result, answer, account)
}

/// Finds the request's route, and lets the route's pipeline answer in time.
async fn run_routed<'g>(
    gateway: &'g Gateway,
    listener: usize,
    connection: &ConnectionInfo,
    exchange: &mut Exchange<'g>,
) -> AnswerResult {
    // The route comes first: everything after it differs from route to route.
    let guard = find_route(gateway, listener, connection, exchange);
    let pipeline = &guard.pipelines[listener];

    // Deadlines stand around all that may wait: a client waits for a limit's queue just as it waits
    // for an upstream. Few requests have one: boxed, the others do not carry the room for it.
    let deadlines = Deadlines::begin(pipeline.whole_time, exchange);
    let steps = pin!(pipeline.run(exchange));
    if deadlines.is_empty() {
        steps.await
    } else {
        Box::pin(deadlines.enforce(steps)).await
    }
}

impl Pipeline {
    /// Runs the steps of the route, up to the rate limit. Steps that wait are boxed: the future of
    /// a request has no room for those that its route does not use.
    async fn run<'g>(&'g self, exchange: &mut Exchange<'g>) -> AnswerResult {
        let context = exchange.context;

        // CORS stands outside: a page may read every answer, also those of the steps below.
        // Browsers ask beforehand without credentials, and are answered here: that costs no limit
        // anything.
        if let Some(cors) = &self.cors
            && let Some(preflight) = cors.check(exchange)
        {
            return Ok(preflight);
        }

        // The answer's rules are for every answer as well. They read the request now: it is gone
        // when its answer comes.
        if let Some(rules) = &self.answer_rules {
            rules.prepare(exchange);
        }

        // Networks come next: a client that is not served at all takes no place and no tokens of
        // clients that are. Clients that no route ever serves are refused so during maintenance
        // too.
        if let Some(networks) = &self.networks {
            networks.check(exchange)?;
        }

        // Maintenance stands before the identity: the service that knows clients may be away too.
        if let Some(maintenance) = &self.maintenance {
            maintenance.check(exchange)?;
        }

        // The identity is found before the limits, which count by it. A client that does not say
        // who it is is refused, and charged to the limits of its listener alone: it takes no tokens
        // of clients that do.
        if let Some(authentication) = &self.authentication
            && let Some(waiting) = authentication.check(exchange)?
        {
            waiting.await?;
            context.set_may_have_waited();
        }

        // Load is shed before bodies are read and limits are asked: a request that is not served
        // must be neither read nor charged.
        if let Some(bound) = &self.request_bound {
            bound.check(exchange)?;
        }

        // The body's keys are read right before the limits that count by them: not for clients that
        // were refused already.
        if let Some(keys) = &self.body_keys {
            Box::pin(keys.read(exchange)).await?;
            context.set_may_have_waited();
        }

        // The rate limit comes before anything touches the body: a denied request costs no upstream
        // anything. A limit with a queue, a plan or a store may wait. Limits of a listener also
        // count requests that no route takes, or nonsense would be free.
        let mut rest = AdmittedSteps(self);
        let Some(layer) = &self.rate_limit else {
            return rest.call(exchange).await;
        };
        let limited = layer.layer(rest).call(exchange);
        // An action that is not reached by now is reached after a wait.
        context.set_may_have_waited();
        limited.await
    }
}

/// The steps behind the rate limit.
#[derive(Clone, Copy)]
struct AdmittedSteps<'p>(&'p Pipeline);

impl<'a, 'g> Service<&'a mut Exchange<'g>> for AdmittedSteps<'_> {
    type Response = Response<Body>;
    type Error = Failure;
    type Future = BoxFuture<'a, AnswerResult>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, exchange: &'a mut Exchange<'g>) -> Self::Future {
        let pipeline = self.0;

        // The bound on the body stands inside the limits: an oversized request is a request, and
        // counts.
        if let Some(bound) = pipeline.body_bound
            && let Err(failure) = bound.apply(exchange.request)
        {
            return Box::pin(ready(Err(failure)));
        }

        // The request's fields change after the limits, which count what the client sent, and
        // credentials go.
        if let Some(changes) = &pipeline.request_changes {
            changes.apply(exchange);
        }

        // The head time is innermost, around the part that can take long. The time ends at the
        // answer's head, so bodies may stream.
        let Some(limit) = pipeline.head_time else {
            return act(exchange);
        };
        let end = begin_head_time(limit, exchange);

        // The action of the route, or the lesser one that a limit allows.
        Box::pin(head_until(end, act(exchange)))
    }
}

/// Makes the answer of a result, whoever it comes from, and ties the account to its end.
#[inline]
fn finish(
    context: &RequestContext,
    result: AnswerResult,
    changes: AnswerChanges,
    mut account: Box<Account>,
) -> Response<Body> {
    // The client's leaving is no answer: its account ends like those of others who go away.
    let is_gone = matches!(result, Err(Failure::ClientGone));
    let of_upstream = result.as_ref().err().is_none_or(Failure::is_relayed);

    // The permit settles by what the answer says before it is changed. A failure becomes an answer
    // only here, so that it stays a typed value until all steps have ended.
    let mut response = match result {
        Ok(response) => {
            let permit = &mut account.permit;
            permit.answered(response.status(), response.headers());
            response
        }
        Err(failure) => {
            let (failure, unanswered) = failure.settle(context.sent.is_set());
            account.permit.failed(failure.status(), unanswered);
            if !is_gone {
                account.problem = Some(failure.name());
            }
            context.respond(&failure)
        }
    };
    if context.is_call {
        account.read_grpc_status(response.headers());
    }

    // HSTS: the upstream's own policy is kept.
    if let Some(hsts) = &context.hsts {
        let fields = response.headers_mut();
        fields
            .entry(STRICT_TRANSPORT_SECURITY)
            .or_insert_with(|| hsts.clone());
    }

    // Error pages replace content, so they come before all that describes it. A call of gRPC has a
    // status and no page.
    if let Some(pages) = changes.pages
        && !context.is_call
    {
        pages.apply(&mut response, &context.request_id, of_upstream);
    }

    // The limits' fields come before the route's, so that a route may take them away.
    changes.limits.apply(response.headers_mut());

    // The route's fields come before the coding, since they say what the content is.
    if let Some(fields) = changes.fields {
        fields.apply(response.headers_mut());
    }

    // The coding comes after all that reads or replaces the content.
    if let Some(coding) = changes.coding {
        coding.apply(&mut response, &mut account.permit);
    }

    // The fields of CORS are last: they are not the route's to change.
    if let Some(cors) = changes.cors {
        cors.apply(response.headers_mut());
    }

    // The account ends with the answer's body, or with the tunnel that the answer begins.
    if !is_gone {
        account.follow(&mut response);
    }
    response
}

/// Answers a request that could not be read with its failure. Nothing is charged: the connection
/// closes.
fn refuse(
    listener: &WorkerListener,
    connection: &ConnectionInfo,
    failure: Failure,
) -> Response<Body> {
    let gateway = listener.gateway.load();
    let hsts = gateway.listeners[listener.index].hsts.as_ref();
    let worker = &listener.worker;
    let unread = Request::new(Body::empty());
    let context = RequestContext::open(&gateway.trusted_proxies, hsts, worker, connection, &unread);
    let mut account = context.account(worker, &gateway.unrouted.metrics, None);
    log_unread(&context, &mut account);
    finish(&context, Err(failure), AnswerChanges::default(), account)
}

/// Answers a request, perhaps a call of gRPC, that breaks a rule of HTTP/2. Its connection goes on,
/// so the limits of the listener count it, by whatever can be known of it.
async fn refuse_stream(
    listener: &WorkerListener,
    connection: &ConnectionInfo,
    failure: Failure,
    is_call: bool,
) -> Response<Body> {
    let gateway = listener.gateway.load_full();
    let hsts = gateway.listeners[listener.index].hsts.as_ref();
    let worker = &listener.worker;
    let mut unread = Request::new(Body::empty());
    let mut context =
        RequestContext::open(&gateway.trusted_proxies, hsts, worker, connection, &unread);
    context.is_call = is_call;
    let interim = InterimSlot::default();
    let arrival = Arrival {
        worker,
        sockets: connection.sockets.as_ref(),
        interim: &interim,
    };
    let metrics = &gateway.unrouted.metrics;
    let mut exchange = Exchange::new(&context, arrival, &gateway.upstreams, metrics, &mut unread);
    exchange.route = Err(failure.clone());
    log_unread(&context, &mut exchange.account);
    let pipeline = &gateway.unrouted.pipelines[listener.index];
    let limits = match &pipeline.authentication {
        Some(authentication) => &authentication.limits,
        None => &pipeline.rate_limit,
    };
    let result = match limits {
        Some(limits) => limits.layer(Refusal(failure)).call(&mut exchange).await,
        None => Err(failure),
    };
    let Exchange {
        account, answer, ..
    } = exchange;
    finish(&context, result, answer, account)
}

/// Opens the line in the access log of a request that could not be read.
fn log_unread(context: &RequestContext, account: &mut Account) {
    if account.metrics.log.is_some() {
        let client = context.origin.client_ip;
        let line = LoggedRequest::unread(client, &context.request_id);
        account.log = Some(Box::new(line));
    }
}

impl Handler for WorkerListener {
    fn handle(
        &self,
        connection: &Arc<ConnectionInfo>,
        interim: &InterimSlot,
        request: &mut Request<Body>,
    ) -> impl Future<Output = Response<Body>> + Send {
        answer(self, connection, interim, request)
    }

    fn is_trusted(&self, peer: PeerAddress) -> bool {
        self.gateway.load().trusted_proxies.contains(peer)
    }

    fn tls(&self) -> Option<&TlsAcceptor> {
        self.tls.as_deref()
    }

    fn refuse(&self, connection: &Arc<ConnectionInfo>, failure: Failure) -> Response<Body> {
        refuse(self, connection, failure)
    }

    fn refuse_stream(
        &self,
        connection: &Arc<ConnectionInfo>,
        failure: Failure,
        is_call: bool,
    ) -> impl Future<Output = Response<Body>> + Send {
        refuse_stream(self, connection, failure, is_call)
    }
}
