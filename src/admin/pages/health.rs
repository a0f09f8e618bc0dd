//! `GET /livez`, `/readyz` and `/metrics`: for probes and scrapers.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use crate::admin::state::{AdminState, LifecyclePhase};

/// `GET /livez`
pub async fn livez() -> &'static str {
    "live\n"
}

/// `GET /readyz`
pub async fn readyz(State(state): State<AdminState>) -> impl IntoResponse {
    match state.readiness.phase() {
        LifecyclePhase::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        LifecyclePhase::Serving => (StatusCode::OK, "ready\n"),
        LifecyclePhase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
    }
}

/// `GET /metrics`
pub async fn metrics(State(state): State<AdminState>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], (state.render)())
}
