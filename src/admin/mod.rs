//! The operator's port: health, readiness and metrics. Never reachable through a listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

/// Where the gateway is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Serving,
    Draining,
}

/// The phase, shared.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicU8>);

/// Renders the metrics, fresh.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

#[derive(Clone)]
struct Admin {
    readiness: Readiness,
    render: Render,
}

const INDEX: &str = "\
tollgate admin
  /livez    200 while the process runs
  /readyz   200 while it takes requests; 503 while it starts or drains
  /metrics  Prometheus text format
";

/// Serves the admin port until dropped.
pub async fn serve(listener: TcpListener, readiness: Readiness, render: Render) -> std::io::Result<()> {
    let router = Router::new()
        .route("/", get(async || INDEX))
        .route("/livez", get(async || "live\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Admin { readiness, render });
    axum::serve(listener, router).await
}

async fn readyz(State(admin): State<Admin>) -> impl IntoResponse {
    match admin.readiness.phase() {
        Phase::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        Phase::Serving => (StatusCode::OK, "ready\n"),
        Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
    }
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], (admin.render)())
}

impl Readiness {
    /// Moves on to `phase`.
    pub fn enter(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Release);
    }

    fn phase(&self) -> Phase {
        match self.0.load(Ordering::Acquire) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            _ => Phase::Draining,
        }
    }
}
