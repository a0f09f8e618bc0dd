//! Admits a change of policies: asks whether the caller may change any, and finds a place for the
//! document.
//!
//! Guarantees that nothing is read of a body before that.

use axum::extract::{RawPathParams, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::admin::problem_details::ProblemDetails;
use crate::team::Team;
use crate::team::caller::Caller;

/// Lets reading pass, and changes by somebody who may make some.
pub async fn admit(
    State(team): State<Team>,
    parameters: RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    let Some(policies) = team.policies.filter(|_| !reads) else {
        return next.run(request).await;
    };
    let application = parameters
        .iter()
        .find(|(name, _)| *name == "application")
        .map(|(_, application)| application);
    let admitted = match request.extensions().get::<Caller>() {
        Some(caller) => caller
            .may_change_policies(application)
            .map(|()| (caller.name.clone(), caller.rights.is_admin())),
        None => Err(ProblemDetails::unauthenticated("this needs an account")),
    };
    let place = match admitted {
        Ok((account, is_admin)) => policies.place_for_document(&account, is_admin).await,
        Err(problem) => Err(problem),
    };
    match place {
        Ok(_place) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}
