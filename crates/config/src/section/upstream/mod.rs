//! `upstreams`: groups of servers. `definition` is the section, `endpoint` has the endpoints that
//! are listed and `discovery` those that are found, `balance` chooses one, `health` probes them,
//! `bounds` bounds what they get, and `tls` secures the way to them.

pub mod balance;
pub mod bounds;
pub mod definition;
pub mod discovery;
pub mod endpoint;
pub mod health;
pub mod tls;
