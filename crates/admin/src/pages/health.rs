//! `GET /livez`, `/readyz` and `/metrics`: for probes and scrapers.

use std::net::{IpAddr, Ipv6Addr};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use tokio::task::spawn_blocking;

use crate::caller::peer;
use crate::problem_details::ProblemDetails;
use crate::server::answers::count_until_sent;
use crate::state::{AdminState, LifecyclePhase};

/// Copies of the metrics that are made or sent at a time: each may have a megabyte, where there are
/// hundreds of routes.
pub const MAX_RENDERINGS: u32 = 16;

/// A scraper has one under way, unless the one before was cut off.
pub const MAX_RENDERINGS_PER_CLIENT: usize = 2;

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

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
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "probes",
    responses(
        (status = 200, body = String, description = "All series"),
        (status = 503, body = ProblemDetails, content_type = "application/problem+json", description = "Others scrape, or this client does: come back")
    )
)]
pub async fn metrics(State(state): State<AdminState>, request: Request) -> Response {
    let ip = peer(&request).map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |peer| peer.ip());
    let Some(place) = state.renderings.take(ip) else {
        return ProblemDetails::too_many_scrapes().into_response();
    };
    // Not on the control plane's thread, and it has its place to its end: a client that goes away
    // does not stop it.
    let rendering = spawn_blocking(move || ((state.render)(), place));
    match rendering.await {
        Ok((text, place)) => {
            count_until_sent(([(CONTENT_TYPE, TEXT_FORMAT)], text).into_response(), place)
        }
        Err(error) => {
            tracing::error!(%error, "the metrics were not rendered: this is a defect of the gateway");
            ProblemDetails::too_many_scrapes().into_response()
        }
    }
}
