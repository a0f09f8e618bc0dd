//! `GET /livez`, `/readyz` and `/metrics`: for probes and scrapers.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use crate::admin::state::{AdminState, LifecyclePhase};

/// `GET /livez`: whether the process runs
#[utoipa::path(get, path = "/livez", operation_id = "livez", tag = "probes", responses((status = 200, body = String, description = "It does")))]
pub async fn livez() -> &'static str {
    "live\n"
}

/// `GET /readyz`: whether it takes requests
#[utoipa::path(
    get, path = "/readyz", operation_id = "readyz", tag = "probes",
    responses(
        (status = 200, body = String, description = "It does"),
        (status = 503, body = String, description = "It starts, or drains")
    )
)]
pub async fn readyz(State(state): State<AdminState>) -> impl IntoResponse {
    match state.readiness.phase() {
        LifecyclePhase::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        LifecyclePhase::Serving => (StatusCode::OK, "ready\n"),
        LifecyclePhase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
    }
}

/// `GET /metrics`: in the text format of Prometheus
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "probes", responses((status = 200, body = String, description = "All series")))]
pub async fn metrics(State(state): State<AdminState>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], (state.render)())
}
