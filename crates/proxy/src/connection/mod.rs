//! Connections to upstreams and the exchanges they carry. `client` opens connections and `pool`
//! keeps idle ones; `h2` has those that carry many exchanges at once, and `stream_counts` has the
//! numbers of their streams. `exchange` sends an `upstream_request` with its `upload` over HTTP/1
//! and reads the `response`; `failure` says why that came to nothing and whether the request may be
//! sent again. `upgrade` joins both sides of a connection that leaves HTTP into a `tunnel`.
//! `exhaustion` makes room when the process has no descriptor left.

pub mod client;
pub mod exchange;
pub mod exhaustion;
pub mod failure;
mod h2;
mod pool;
pub mod response;
pub mod stream_counts;
pub mod tunnel;
pub mod upgrade;
pub mod upload;
pub mod upstream_request;
