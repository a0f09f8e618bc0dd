//! Serves a request: opens its account, guards against panics, finds its route and calls the
//! route's chain.
//!
//! Guarantees one answer for each request, whatever happens.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;

use http::{Request, Response};
use tokio::time::timeout_at;
use tollgate_limiter::limit::key::host;
use tollgate_limiter::request::permit::Permit;
use tower_service::Service as _;

use super::access_log::LoggedRequest;
use super::answer::AnswerChanges;
use super::answer::cors::preflight_method;
use super::exchange::{Exchange, RequestContext};
use super::layers::timeout::AnswerInTime;
use super::panic_guard;
use super::runtime::{Gateway, RouteGuard, WorkerListener};
use crate::body::Body;
use crate::error::Failure;
use crate::grpc::{self, CallDeadline};
use crate::header_map_pool;
use crate::http::deadline::LONGEST_WAIT;
use crate::http::h2::websocket_proof::WebSocketProof;
use crate::http::interim::InterimSlot;
use crate::route::path;
use crate::route::table::RouteLookup;
use crate::server::ConnectionInfo;

type AnswerResult = Result<Response<Body>, Failure>;

/// Answers one request.
pub async fn serve(
    gateway: Arc<Gateway>,
    listener: &WorkerListener,
    connection: &Arc<ConnectionInfo>,
    interim: &InterimSlot,
    request: &mut Request<Body>,
) -> Response<Body> {
    let worker = &listener.worker;
    // The account is outermost: whatever the answer, it is counted, timed and logged, to the end of
    // its body.
    let hsts = gateway.listeners[listener.index].hsts.as_ref();
    let context = RequestContext::open(&gateway.trusted_proxies, hsts, worker, connection, request);
    let mut exchange = Exchange {
        account: context.account(worker, &gateway.unrouted.metrics, Some(request)),
        upstreams: &gateway.upstreams,
        interim,
        sockets: connection.sockets.as_ref(),
        worker,
        context: &context,
        request,
        normalized_path: None,
        route: Err(Failure::NoRoute),
        is_preflight: false,
        has_own_fields: false,
        identity: None,
        degraded: None,
        answer: AnswerChanges::default(),
        deadline: None,
    };
    let deadline = context.call_deadline(exchange.request.headers());
    let websocket = exchange
        .request
        .extensions()
        .get::<WebSocketProof>()
        .cloned();
    // A panic is a bug of ours and ends this request only: everything inside is dropped, nothing is
    // used again.
    let mut result = {
        // Pinned here and lent: the future is large, and an async function would move it.
        let answering = pin!(answer(&gateway, listener.index, connection, &mut exchange));
        let guarded = panic_guard::guard(answering);
        match deadline {
            None => guarded.await,
            Some(deadline) => Box::pin(within(deadline, guarded)).await,
        }
    };
    if matches!(result, Err(Failure::Panicked)) {
        gateway.panics.increment(1);
        exchange.account.permit = Permit::default();
    }
    // Checked in the request's own account: what its client gets is what is logged and counted.
    if let Some(proof) = websocket {
        result = result.and_then(|response| proof.check(&response).map(|()| response));
    }
    let Exchange {
        account, answer, ..
    } = exchange;
    // The next request may use the header map.
    header_map_pool::give_back(std::mem::take(request.headers_mut()));
    context.close(result, answer, account)
}

/// Drives `answering`, at most until the deadline of a call. The rest of the answer is cut at the
/// deadline too.
async fn within(
    deadline: CallDeadline,
    answering: impl Future<Output = AnswerResult>,
) -> AnswerResult {
    match timeout_at(deadline.0, answering).await {
        Ok(answer) => answer.map(|response| grpc::cut_body(response, deadline)),
        Err(_) => Err(Failure::CallOverdue),
    }
}

/// Answers a request that could not be read, with its failure and whether it is a call of gRPC.
pub fn refuse(
    gateway: &Gateway,
    listener: &WorkerListener,
    connection: &ConnectionInfo,
    (failure, is_call): (Failure, bool),
) -> Response<Body> {
    let worker = &listener.worker;
    let hsts = gateway.listeners[listener.index].hsts.as_ref();
    let unread = Request::new(Body::empty());
    let mut context =
        RequestContext::open(&gateway.trusted_proxies, hsts, worker, connection, &unread);
    context.is_call = is_call;
    let mut account = context.account(worker, &gateway.unrouted.metrics, None);
    if account.metrics.log.is_some() {
        account.log = Some(Box::new(LoggedRequest::unread(
            context.origin.client_ip,
            &context.request_id,
        )));
    }
    context.close(Err(failure), AnswerChanges::default(), account)
}

/// Finds the request's route and lets its chain answer.
async fn answer<'g>(
    gateway: &'g Gateway,
    listener: usize,
    connection: &ConnectionInfo,
    exchange: &mut Exchange<'g>,
) -> AnswerResult {
    let guard = settle(gateway, listener, connection, exchange);

    // Every layer of a chain is always ready. A clone is a reference to the route's limits and a
    // few numbers.
    let context = exchange.context;
    let end = guard
        .whole_time
        .map(|limit| context.started + limit.min(LONGEST_WAIT));
    exchange.deadline = end;
    let answering = {
        let mut chain = guard.chains[listener].clone();
        chain.call(exchange)
    };
    // An action that is not reached by now is reached after a wait.
    context.set_may_have_waited();
    match end {
        None => answering.await,
        // Not a layer: another one around all others would double the types of the chain.
        Some(end) => AnswerInTime::new(answering, end).await,
    }
}

/// Finds the request's route, and opens its line in the access log.
fn settle<'g>(
    gateway: &'g Gateway,
    listener: usize,
    connection: &ConnectionInfo,
    exchange: &mut Exchange<'g>,
) -> &'g RouteGuard {
    // Dot segments may be gone below.
    let sent = gateway
        .access_log
        .as_ref()
        .map(|_| exchange.request.uri().clone());

    // The listener first: what belongs elsewhere is no route's.
    let here =
        gateway.listeners[listener].check(connection, &exchange.context.origin, exchange.request);

    // Dot segments go next: routes, limits and upstreams must see one and the same path. Then
    // routing: everything after it differs from route to route. A listener's limits count what is
    // refused here, too, or nonsense would be free.
    let guard = match here.and_then(|()| path::settle(exchange.request.uri_mut())) {
        Ok(normalized) => {
            exchange.normalized_path = normalized;
            find_route(gateway, exchange)
        }
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

fn find_route<'g>(gateway: &'g Gateway, exchange: &mut Exchange<'g>) -> &'g RouteGuard {
    let request = &*exchange.request;
    let host = if gateway.table.names_hosts() {
        host::find(request.uri(), request.headers())
    } else {
        Cow::Borrowed("")
    };
    // A page that wants to send a POST asks by OPTIONS, of the route that would take the POST.
    let of_preflight = preflight_method(request).and_then(|method| {
        let found = gateway
            .table
            .find(&host, exchange.path(), &method, request.headers());
        let RouteLookup::Route(index) = found else {
            return None;
        };
        gateway.routes[index]
            .target
            .route
            .cors
            .as_ref()
            .map(|_| RouteLookup::Route(index))
    });
    exchange.is_preflight = of_preflight.is_some();
    let found = of_preflight.unwrap_or_else(|| {
        gateway
            .table
            .find(&host, exchange.path(), request.method(), request.headers())
    });
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
