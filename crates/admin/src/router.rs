//! The paths of the admin port, each with its page. A new page is a file in `pages` and a line
//! here.

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Uri};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use utoipa::openapi::OpenApi;

use super::caller::require_caller;
use super::carry_out::carry_changes_out;
use super::pages::{buckets, explain, health, limits, nodes, upstreams};
use super::problem_details::ProblemDetails;
use super::state::AdminState;
use super::{browser_guard, openapi};

/// Pages that are registered from outside of the port, behind its guards.
pub struct AdminExtension {
    pub router: Router,
    /// The lines of the pages in the index.
    pub index: String,
    /// The description of the pages for programs.
    pub api: OpenApi,
}

/// The beginning of the index.
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
";

/// The end of the index, behind the pages of extensions.
const INDEX_END: &str = "\
  GET    /openapi.json            this port as OpenAPI 3.1
  GET    /explain                 what becomes of a request, and why: url, method, client_ip, header.NAME, identity.id, body.NAME, listener

A bucket is named by key=KEY, as /explain shows it, or by what its limit counts by: client_ip, method, host, route,
header.NAME, cookie.NAME, query.NAME, path.NAME, body.NAME, identity.id, identity.plan, identity.label.NAME, claim.NAME. A change
takes dry_run=true, and must say who asks for it:
  curl -X DELETE -H 'X-Tollgate-Operator: ada' 'http://127.0.0.1:9901/buckets/per-client?client_ip=203.0.113.9'
";

fn plain_text(text: Bytes) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], text)
}

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

/// Answers have keys of clients and what people may do: no cache keeps them, and no browser takes
/// them for a page.
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

/// All paths with their pages, those of an extension among them.
pub fn router(state: AdminState, extension: Option<AdminExtension>) -> Router {
    let (pages, index, api) = match extension {
        Some(AdminExtension { router, index, api }) => (router, index, Some(api)),
        None => (Router::new(), String::new(), None),
    };
    let index = Bytes::from(format!("{INDEX}{index}{INDEX_END}"));
    let api = Bytes::from(openapi::text(api));
    open_pages()
        .route("/", get(async move || plain_text(index)))
        .route("/limits", get(limits::list))
        .route(
            "/buckets/{limit}",
            get(buckets::peek).delete(buckets::reset),
        )
        .route("/buckets/{limit}/grant", post(buckets::grant))
        .route("/upstreams", get(upstreams::list))
        .route("/nodes", get(nodes::list))
        .route("/explain", get(explain::show))
        .route("/openapi.json", get(async move || openapi::show(api)))
        .with_state(state.clone())
        .merge(pages)
        .fallback(async |uri: Uri| ProblemDetails::not_found(uri.path()))
        .method_not_allowed_fallback(async || ProblemDetails::method_not_allowed())
        .layer(from_fn_with_state(state.callers.clone(), require_caller))
        .layer(from_fn(carry_changes_out))
        .layer(from_fn_with_state(state.origins, browser_guard::guard))
        .layer(map_response(refuse_by_problems))
        .layer(map_response(keep_private))
}
