//! Sends a request to an upstream and brings its response back. `forward` is the way through and
//! `retry` decides whether a request that was not processed is sent again; `attempts` sends
//! requests again for routes that ask for it, and `replay` keeps their bodies. `gave_up` records
//! endpoints that kept a request waiting until it was dropped. `mirror` sends copies to another
//! upstream. `report` is the way of a request, for the access log. `message` changes messages on
//! their way, and `connection` has the connections to upstreams.
//!
//! Failures stay typed: no status code is chosen here.

mod attempts;
pub mod connection;
mod forward;
mod gave_up;
mod kept_bytes;
pub mod message;
mod mirror;
mod replay;
pub mod report;
mod request_source;
mod retry;
pub mod upstream;

pub use attempts::RetryTerms;
pub use connection::tunnel::{TunnelBytes, TunnelEnd, TunnelObserver};
pub use forward::Proxy;
pub use mirror::Mirror;
pub use request_source::RequestSource;
