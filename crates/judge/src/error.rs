//! Why a run ends without a verdict.

use tollgate_limiter::limit::algorithm::QuotaError;
use tollgate_limiter::store::redis::ConnectError;

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Plan(&'static str),
    #[error("the limit cannot be one: {0}")]
    Limit(#[from] QuotaError),
    #[error("{0}")]
    Store(#[from] ConnectError),
    #[error("no Redis decides at the address given")]
    NoRedis,
    #[error(
        "some of these scenarios stand between the nodes and Redis, which they can for redis://host:port only: leave them \
         out, or name one server without TLS"
    )]
    NoProxy,
    #[error(
        "cluster-node-down pauses one master of several: it needs --redis redis-cluster://host:port, without TLS"
    )]
    NoCluster,
    #[error("Redis answers the run strangely: {0}")]
    Redis(String),
    #[error("a target is http://host:port/path: {0:?} is not")]
    Target(String),
    #[error("no target answers at {0}")]
    NoTarget(String),
    #[error("a gateway does not start: {0}")]
    Gateway(String),
    #[error("cannot go on: {0}")]
    Io(#[from] std::io::Error),
    #[error("a thread panicked")]
    Panicked,
}
