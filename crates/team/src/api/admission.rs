//! Admits a change of policies: asks whether the caller may change any, and finds a place for the
//! document.
//!
//! Guarantees that nothing is read of a body before that.

use axum::extract::{RawPathParams, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::Team;
use crate::caller::Caller;
use tollgate_admin::problem_details::ProblemDetails;

/// Lets reading pass, and changes by somebody who may make some.
pub async fn admit(
    State(team): State<Team>,
    parameters: RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    if reads {
        return next.run(request).await;
    }
    let Some(policies) = team.policies else {
        return next.run(request).await;
    };
    let application = parameters
        .iter()
        .find(|(name, _)| *name == "application")
        .map(|(_, application)| application);
    let Some(caller) = request.extensions().get::<Caller>().cloned() else {
        return ProblemDetails::unauthenticated("this needs an account").into_response();
    };
    if let Err(problem) = caller.may_change_policies(application) {
        return problem.into_response();
    }
    let is_admin = caller.rights.is_admin();
    match policies.place_for_document(&caller.name, is_admin).await {
        Ok(_place) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}
