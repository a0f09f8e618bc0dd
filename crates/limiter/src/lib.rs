//! Rate limits that hold, for any tower service: exact on one node, exact across a fleet with
//! Redis, and each node's share of them while Redis is away. This is the limiter of the Tollgate
//! gateway, as a library.
//!
//! # A limit on an axum router
//!
#![cfg_attr(feature = "axum", doc = "```")]
#![cfg_attr(not(feature = "axum"), doc = "```ignore")]
//! use axum::{Router, routing::get};
//! use tollgate_limiter::{Limit, RateLimitLayer, client_ip};
//!
//! let limit = Limit::per_second("per-client", 10).burst(20).key(client_ip()); let app: Router =
//! Router::new().route("/", get(async || "hello")).layer(RateLimitLayer::in_memory([limit])?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Serve it with `app.into_make_service_with_connect_info::<SocketAddr>()`: `client_ip` is the peer's address, which axum
//! tells by `ConnectInfo` to the feature `axum`. Where it is not told, each request is answered 500 with a problem that says so, for a limit that
//! counts nobody is worse than none. Behind proxies of your own, [`RateLimitLayer::trust_proxies`] reads
//! `X-Forwarded-For` as far as they wrote it.
//!
//! A request over the limit is answered 429 with `Retry-After`, `RateLimit-Policy` and `RateLimit`
//! (draft-ietf-httpapi-ratelimit-headers-11) and a problem document (RFC 9457); its body is never read. Every other answer
//! says what is left.
//!
//! # Across a fleet, with Redis
//!
#![cfg_attr(all(feature = "axum", feature = "redis-core"), doc = "```no_run")]
#![cfg_attr(not(all(feature = "axum", feature = "redis-core")), doc = "```ignore")]
//! # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
//! # use tollgate_limiter::{Limit, RateLimitLayer, client_ip};
//! # let limit = Limit::per_second("per-client", 10).key(client_ip());
//! use tollgate_limiter::SharedLimiter;
//!
//! let redis = SharedLimiter::connect("redis://127.0.0.1:6379").await?;
//! let layer = RateLimitLayer::new(&redis, [limit])?;
//! # Ok(()) }
//! ```
//!
//! For every key and every window of length t, the fleet admits at most burst + rate · t. A [`SharedLimiter`] announces
//! its process to the others and looks for a Redis that is away, in tasks of its own. Meanwhile each process enforces its
//! share, the limit divided by the processes that were last seen, and pays what it admitted when Redis is back. No request
//! waits for Redis longer than [`RedisSpec::timeout`](store::redis::spec::RedisSpec), and none at all during an outage.
//!
//! # Whom a limit counts
//!
//! Keys are made of [`client_ip`], [`header`], [`cookie`], [`host`], [`route`], of what another layer put into the request's
//! extensions ([`extension`]: a user id), or of anything else that a closure reads ([`key_fn`]). Several parts in an array
//! are one key. [`everyone`] is one bucket for all.
//!
//! # How a limit counts
//!
//! A [token bucket](Limit::per_second) by default; [`LimitBuilder::fixed_window`] and [`LimitBuilder::sliding_window`];
//! [requests in flight](Limit::in_flight). [`LimitBuilder::queue`] lets requests wait for their turn,
//! [`LimitBuilder::shadow`] tries a limit out, [`LimitBuilder::leased`] asks Redis less. [`LimitBuilder::plans`] takes the
//! rates of some clients from a hash in Redis, which may change while the program runs.
//!
//! # Metrics and features
//!
//! Decisions and calls to the store are counted through the `metrics` facade: `tollgate_ratelimit_decisions_total{limit,
//! verdict, decided_by}`, `tollgate_store_up` and others. Features: `redis`, or `redis-core` for Redis without TLS; `axum`
//! (reads `ConnectInfo` and `MatchedPath`); `calendar` (windows by the calendar of a time zone).
//!
//! A program with axum and tokio compiles some 140 crates with `redis`, 130 with `redis-core`, 70 with neither.
//! International host names in URLs are 21 of them: `cargo update -p idna_adapter --precise 1.0.0` leaves these out, for a
//! program that has no other use for such names.

pub mod algorithm;
pub mod clock;
pub mod decide;
pub mod layer;
pub mod limit;
pub mod node;
pub mod request;
#[cfg(feature = "redis-core")]
pub mod shared;
pub mod store;

/// The programs of the README compile.
#[cfg(all(doctest, feature = "axum", feature = "redis-core"))]
#[doc = include_str!("../README.md")]
struct Readme;

pub use layer::RateLimitLayer;
pub use limit::builder::{
    LimitBuilder, LimitError, client_ip, cookie, everyone, extension, header, host, identity,
    key_fn, route,
};
pub use limit::client_address::TrustedProxies;
pub use limit::definition::Limit;
#[cfg(feature = "redis-core")]
pub use shared::SharedLimiter;
