//! The paths of the console, each with its page.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{any, get, post};

use super::editor::{application, applications, form, revisions};
use super::pages::accounts::{account, audit, people, person, provider, sign_in};
use super::pages::{bucket, data, explain, limit, limits, nodes, overview, routes, upstreams};
use super::state::ConsoleState;
use super::{assets, forms, guard};
use tollgate_admin::carry_out::{carry_changes_out, carry_out};
use tollgate_admin::problem_details::ProblemDetails;

/// The longest form: the body of a policy, as it is stored, with its characters escaped.
const MAX_FORM: usize = 256 * 1024;

/// The longest form of people themselves: strangers send some of them.
const MAX_SMALL_FORM: usize = 8 * 1024;

/// The line of the console in the index of the admin port.
pub const INDEX: &str = "\
  GET    /console                 all of this as pages for people, and live charts
";

/// All paths with their pages.
pub fn router(console: ConsoleState) -> Router {
    Router::new()
        .route("/console", get(overview::show))
        .route("/console/", get(async || Redirect::permanent("/console")))
        .route("/console/routes", get(routes::list))
        .route("/console/routes/{route}", get(routes::show))
        .route("/console/limits", get(limits::list))
        .route("/console/limits/{limit}", get(limit::view))
        .route(
            "/console/limits/{limit}/bucket",
            get(bucket::show).post(bucket::submit),
        )
        .route("/console/explain", get(explain::show).post(explain::submit))
        .route("/console/upstreams", get(upstreams::show))
        .route("/console/nodes", get(nodes::show))
        .route(
            "/console/sign-in",
            get(sign_in::show)
                .post(sign_in::submit)
                .layer(small_forms()),
        )
        .route("/console/sign-in/provider", get(provider::begin))
        .route(
            "/console/sign-in/return",
            get(provider::finish).layer(from_fn(carry_out)),
        )
        .route(
            "/console/sign-out",
            post(sign_in::sign_out).layer(small_forms()),
        )
        .route(
            "/console/account",
            get(account::show)
                .post(account::submit)
                .layer(small_forms()),
        )
        .route("/console/people", get(people::list).post(people::create))
        .route(
            "/console/people/{name}",
            get(person::show).post(person::change),
        )
        .route("/console/audit", get(audit::show))
        .route("/console/applications", get(applications::list))
        .route(
            "/console/applications/{application}",
            get(application::show),
        )
        .route("/console/edit", get(form::show).post(form::submit))
        .route("/console/revisions", get(revisions::list))
        .route(
            "/console/revisions/{revision}",
            get(revisions::show).post(revisions::undo),
        )
        .route("/console/data", get(data::show))
        .route(
            "/console/theme",
            post(forms::choose_theme).layer(small_forms()),
        )
        .route("/console/assets/{version}/{name}", get(assets::get))
        .route(
            "/console/{*elsewhere}",
            any(async |uri: Uri| refused(ProblemDetails::not_found(uri.path()))),
        )
        .method_not_allowed_fallback(async || refused(ProblemDetails::method_not_allowed()))
        .layer(DefaultBodyLimit::max(MAX_FORM))
        .layer(from_fn_with_state(console.clone(), guard::guard))
        .layer(from_fn(carry_changes_out))
        .with_state(console)
}

/// Leads a browser that asks for the root of the port to the console. Programs get its index.
pub async fn lead_browsers(request: Request, next: Next) -> Response {
    let is_for_people = request.method() == Method::GET
        && request.uri().path() == "/"
        && accepts_pages(request.headers());
    if is_for_people {
        Redirect::to("/console").into_response()
    } else {
        next.run(request).await
    }
}

fn accepts_pages(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(ACCEPT).iter();
    lines.any(|line| line.to_str().is_ok_and(|types| types.contains("text/html")))
}

fn small_forms() -> DefaultBodyLimit {
    DefaultBodyLimit::max(MAX_SMALL_FORM)
}

/// Becomes a page behind the guard.
fn refused(problem: ProblemDetails) -> ProblemDetails {
    problem.hint("the pages are in the head of each: begin at /console")
}
