//! The server: accepts connections, reads requests off them and writes the answers. `listener`
//! accepts, `connection` serves each accepted socket, and `worker` is the thread for both; `h1` and
//! `h2` speak HTTP over a connection; `drain` stops the server without breaking requests.
//!
//! Guarantees that each request which reaches a [`Handler`] can be read in one way only and has
//! exactly one Host field (none only in HTTP/1.0), and that the same handler answers requests which
//! cannot be read.

mod coalesced_write;
mod connection;
mod connection_info;
mod connection_limit;
mod date;
pub mod drain;
pub mod h1;
mod h2;
mod handler;
mod listener;
mod socket;
mod timeouts;
pub mod worker;

pub use connection_info::ConnectionInfo;
pub use connection_limit::{ConnectionLimit, ProcessLimit};
pub use drain::{Drain, DrainSignal, Drained};
pub use handler::Handler;
pub use listener::{bind, bind_shared, reserve_shared, serve};

pub use tollgate_wire::http::h1::upgrade::{OnUpgrade, Upgraded};
pub use tollgate_wire::http::interim::InterimSlot;
