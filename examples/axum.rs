//! Tollgate's limiter on an axum router of one's own.
//!
//! `cargo run --example axum`, then `for i in $(seq 8); do curl -s -o /dev/null -w '%{http_code} '
//! localhost:3000/; done` shows five 200s and then 429s. With `REDIS_URL=redis://127.0.0.1:6379`
//! the limit holds across processes.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate_limiter::{Limit, RateLimitLayer, SharedLimiter, client_ip};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = Limit::per_second("per-client", 1).burst(5).key(client_ip());
    let layer = match std::env::var("REDIS_URL") {
        Ok(url) => RateLimitLayer::new(&SharedLimiter::connect(&url).await?, [limit])?,
        Err(_) => RateLimitLayer::in_memory([limit])?,
    };
    let router = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(layer);
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(
        listener,
        router.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .await?;
    Ok(())
}
