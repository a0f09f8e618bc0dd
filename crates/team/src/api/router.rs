//! The paths of policies on the admin port, each with its page.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use tollgate_policies::model::MOST_BODY_BYTES;

use super::{admission, candidates, document, objects, openapi, revisions};
use crate::Team;
use tollgate_admin::AdminExtension;

/// A policy document, or a draft.
const MOST_DOCUMENT: usize = 16 << 20;

/// An object, with what is between its values.
const MOST_OBJECT: usize = 2 * MOST_BODY_BYTES;

const INDEX: &str = "\
  GET    /policies                all policies as one document, at=REVISION; POST: makes them what a document says
  GET    /policies/applications   each object by itself; PUT and DELETE with If-Match
  GET    /policies/revisions      what was changed, by whom and why; POST: changes several objects at once
  GET    /policies/diff           what differs between the revisions from=A and to=B
";

/// The pages of policies, for the admin port.
pub fn extension(team: Team) -> AdminExtension {
    AdminExtension {
        router: router(team),
        index: INDEX.to_owned(),
        api: openapi::description(),
    }
}

/// All paths with their pages.
fn router(team: Team) -> Router {
    Router::new()
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
        .layer(from_fn_with_state(team.clone(), admission::admit))
        .with_state(team)
}
