//! HTTP as the server and the proxy speak it, over real sockets: framing, bodies, timeouts,
//! upgrades, retries, draining.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that lacks what it needs fails"
)]

mod adaptive;
mod answer_bounds;
mod attempts;
mod bounds;
mod drain;
mod endings;
mod faults;
mod growth;
mod health;
mod hostile_upstream;
mod http1_strict;
mod http2;
mod http2_upstream;
mod interim;
mod latency;
mod messages;
mod min_rate;
mod proxy;
mod refused_messages;
mod replayed_bodies;
mod retry;
mod room;
mod server;
mod streaming;
mod support;
mod upgrade;
mod upstream_tls;
