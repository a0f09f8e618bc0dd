//! Tollgate's limiter on an axum router of one's own.
//!
//! `cargo run --example axum`, then `for i in $(seq 8); do curl -s -o /dev/null -w '%{http_code} ' localhost:3000/; done`
//! shows five 200s and then 429s. With `Limiter::shared` instead of `Limiter::local` the limit holds across processes.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::layer::RateLimitLayer;
use tollgate_limiter::limit::algorithm::Rate;
use tollgate_limiter::limit::definition::Limit;
use tollgate_limiter::limit::definition::LimitUse;
use tollgate_limiter::limit::key::KeyPart;
use tollgate_limiter::limit::key::KeySpec;
use tollgate_limiter::limit::key::OnMissing;
use tollgate_limiter::store::memory::MemoryStore;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let one = NonZeroU64::MIN;
    let five = one.saturating_add(4);
    let key =
        KeySpec { parts: vec![KeyPart::ClientIp { ipv4_prefix: 32, ipv6_prefix: 64 }], on_missing: OnMissing::Share };
    // One a second, five at once.
    let rate = Rate { tokens: one, period_us: NonZeroU64::MIN.saturating_add(999_999) };
    let limit = Limit::new("per-client", key, rate, five);
    let buckets = Arc::new(MemoryStore::new(100_000));
    let limits = [LimitUse { limit: Arc::new(limit), cost: None }];
    let layer = RateLimitLayer::new(Limiter::local(buckets), &limits)?;

    let router = Router::new().route("/", get(async || "hello\n")).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
