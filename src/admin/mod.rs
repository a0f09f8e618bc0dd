//! The operator's port: health, metrics, and a look into limits and routes. Never reachable through a listener.
//!
//! Connections are served as a listener's are, by `serve`, with bounds of its own: nobody can hold it up for long.
//!
//! `buckets` and `explain` are its pages, `desk` does what they ask for, `describe` reads what they were asked, `guard` keeps
//! web pages out, `problem` is what goes wrong. There is no login.

pub mod buckets;
pub mod describe;
pub mod desk;
pub mod explain;
pub mod guard;
pub mod problem;
mod serve;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn;
use axum::response::IntoResponse;
use axum::routing::{get, post};

use crate::gateway::Gateway;
use desk::Desk;
use problem::Problem;
pub use serve::serve;

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

/// What the port shows and changes.
#[derive(Clone)]
pub struct Panel {
    pub readiness: Readiness,
    pub render: Render,
    /// The configuration at work.
    pub gateway: Arc<ArcSwap<Gateway>>,
    pub desk: Arc<Desk>,
}

const INDEX: &str = "\
tollgate admin
  GET    /livez                   200 while the process runs
  GET    /readyz                  200 while it takes requests; 503 while it starts or drains
  GET    /metrics                 Prometheus text format
  GET    /limits                  the limits, and what each counts by
  GET    /buckets/{limit}         one bucket's level; changes nothing. local=true: what this node holds
  DELETE /buckets/{limit}         makes it full, in the whole fleet
  POST   /buckets/{limit}/grant   gives tokens=N back, at most until it is full
  GET    /explain                 what becomes of a request, and why: url, method, client_ip, header.NAME, listener

A bucket is named by key=KEY, as /explain shows it, or by what its limit counts by: client_ip, method, host, route,
header.NAME, cookie.NAME, query.NAME, path.NAME. A change takes dry_run=true, and must say who asks for it:
  curl -X DELETE -H 'X-Tollgate-Operator: ada' 'http://127.0.0.1:9901/buckets/per-client?client_ip=203.0.113.9'
";

/// The pages.
fn router(panel: Panel) -> Router {
    Router::new()
        .route("/", get(async || INDEX))
        .route("/livez", get(async || "live\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/limits", get(buckets::list))
        .route("/buckets/{limit}", get(buckets::peek).delete(buckets::reset))
        .route("/buckets/{limit}/grant", post(buckets::grant))
        .route("/explain", get(explain::page))
        .fallback(async |uri: Uri| Problem::not_found(uri.path()))
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .layer(from_fn(guard::guard))
        .with_state(panel)
}

async fn readyz(State(panel): State<Panel>) -> impl IntoResponse {
    match panel.readiness.phase() {
        Phase::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        Phase::Serving => (StatusCode::OK, "ready\n"),
        Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
    }
}

async fn metrics(State(panel): State<Panel>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], (panel.render)())
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
