//! HTTP/2 to upstreams. A `connection` carries many exchanges, and a `group` has those to one
//! endpoint; an `exchange` sends a request and reads the head of its `response`. A `lifetime` is
//! what GOAWAYs teach about connections. `settings` has the largest head that the upstream
//! announces. A `websocket` makes an extended CONNECT of an upgrade.

mod connection;
pub mod exchange;
pub mod group;
mod lifetime;
mod response;
mod settings;
mod websocket;

pub use connection::MultiplexedConnection;
