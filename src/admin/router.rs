//! The paths of the admin port, each with its page. A new page is a file in `pages` and a line
//! here.

use axum::Router;
use axum::body::to_bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Uri};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tollgate_policies::model::MOST_BODY_BYTES;

use super::caller::require_caller;
use super::carry_out::carry_changes_out;
use super::pages::policies::{candidates, changes, document, objects, revisions};
use super::pages::{buckets, explain, health, limits, nodes, upstreams};
use super::problem_details::ProblemDetails;
use super::state::AdminState;
use super::{browser_guard, openapi};

/// A policy document, or a draft.
const MOST_DOCUMENT: usize = 16 << 20;

/// An object, with what is between its values.
const MOST_OBJECT: usize = 2 * MOST_BODY_BYTES;

const INDEX: &str = "\
tollgate admin
  GET    /livez                   200 while the process runs
  GET    /readyz                  200 while it takes requests; 503 while it starts or drains
  GET    /metrics                 Prometheus text format
  GET    /limits                  the limits, and what each counts by
  GET    /buckets/{limit}         one bucket's level; changes nothing. local=true: what this node holds
  DELETE /buckets/{limit}         makes it full, in the whole fleet
  POST   /buckets/{limit}/grant   gives tokens=N back, at most until it is full
  GET    /upstreams               the endpoints of each upstream, and whether they are in service
  GET    /nodes                   the nodes of the fleet, and what each runs
  GET    /policies                all policies as one document, at=REVISION; POST: makes them what a document says
  GET    /policies/applications   each object by itself; PUT and DELETE with If-Match
  GET    /policies/revisions      what was changed, by whom and why; POST: changes several objects at once
  GET    /policies/diff           what differs between the revisions from=A and to=B
  GET    /openapi.json            this port as OpenAPI 3.1
  GET    /console                 all of this as pages for people, and live charts
  GET    /explain                 what becomes of a request, and why: url, method, client_ip, header.NAME, identity.id, body.NAME, listener

A bucket is named by key=KEY, as /explain shows it, or by what its limit counts by: client_ip, method, host, route,
header.NAME, cookie.NAME, query.NAME, path.NAME, body.NAME, identity.id, identity.plan, identity.label.NAME, claim.NAME. A change
takes dry_run=true, and must say who asks for it:
  curl -X DELETE -H 'X-Tollgate-Operator: ada' 'http://127.0.0.1:9901/buckets/per-client?client_ip=203.0.113.9'
";

/// Probes and metrics alone, for a port of their own: nothing else is there.
pub fn probes(state: AdminState) -> Router {
    open_pages()
        .fallback(async |uri: Uri| ProblemDetails::not_found(uri.path()))
        .method_not_allowed_fallback(async || ProblemDetails::method_not_allowed())
        .with_state(state)
}

/// Pages that want no caller.
fn open_pages() -> Router<AdminState> {
    Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
}

/// Answers have keys of clients, policies and who may do what: no cache keeps them, and no browser
/// takes them for a page.
async fn keep_private(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The longest refusal that is a text.
const MOST_REFUSAL: usize = 4 << 10;

/// Refusals that the framework makes are texts: programs get problems alone.
async fn refuse_by_problems(response: Response) -> Response {
    let is_text = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !response.status().is_client_error() || !is_text {
        return response;
    }
    let status = response.status();
    let text = to_bytes(response.into_body(), MOST_REFUSAL)
        .await
        .unwrap_or_default();
    ProblemDetails::of_text(status, &text).into_response()
}

/// All paths with their pages.
pub fn router(state: AdminState) -> Router {
    open_pages()
        .route("/", get(async || INDEX))
        .route("/limits", get(limits::list))
        .route(
            "/buckets/{limit}",
            get(buckets::peek).delete(buckets::reset),
        )
        .route("/buckets/{limit}/grant", post(buckets::grant))
        .route("/upstreams", get(upstreams::list))
        .route("/nodes", get(nodes::list))
        .route("/explain", get(explain::show))
        .route("/openapi.json", get(openapi::show))
        .route("/policies", get(document::export).post(document::import))
        .route("/policies/applications", get(objects::applications))
        .route(
            "/policies/applications/{application}",
            get(objects::show_application)
                .put(objects::write_application)
                .delete(objects::remove_application)
                .layer(DefaultBodyLimit::max(MOST_OBJECT)),
        )
        .route(
            "/policies/applications/{application}/{kind}",
            get(objects::list),
        )
        .route(
            "/policies/applications/{application}/{kind}/{name}",
            get(objects::show)
                .put(objects::write)
                .delete(objects::remove)
                .layer(DefaultBodyLimit::max(MOST_OBJECT)),
        )
        .route(
            "/policies/applications/{application}/{kind}/{name}/history",
            get(objects::history),
        )
        .route(
            "/policies/applications/{application}/{kind}/{name}/promote",
            post(candidates::promote),
        )
        .route(
            "/policies/applications/{application}/{kind}/{name}/abort",
            post(candidates::abort),
        )
        .route(
            "/policies/revisions",
            get(revisions::list).post(revisions::commit),
        )
        .route("/policies/revisions/{revision}", get(revisions::show))
        .route("/policies/revisions/{revision}/undo", post(revisions::undo))
        .route(
            "/policies/revisions/{revision}/revert",
            post(revisions::revert),
        )
        .route("/policies/diff", get(revisions::diff))
        .layer(DefaultBodyLimit::max(MOST_DOCUMENT))
        .layer(from_fn_with_state(state.clone(), changes::admit))
        .fallback(async |uri: Uri| ProblemDetails::not_found(uri.path()))
        .method_not_allowed_fallback(async || ProblemDetails::method_not_allowed())
        .layer(from_fn_with_state(state.clone(), require_caller))
        .layer(from_fn(carry_changes_out))
        .layer(from_fn_with_state(
            state.origins.clone(),
            browser_guard::guard,
        ))
        .layer(map_response(refuse_by_problems))
        .layer(map_response(keep_private))
        .with_state(state)
}
