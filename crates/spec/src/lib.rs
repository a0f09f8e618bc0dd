//! Settings that an operator may write, as data: routes, listeners, the access log. Beside them is
//! the table that finds a request's route.
//!
//! The configuration makes these types, and the gateway serves by them: neither needs the other.

pub mod access_log;
pub mod body_keys;
pub mod listener;
pub mod plain_text;
pub mod route;
pub mod spelling;
