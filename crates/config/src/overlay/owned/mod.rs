//! The parts of the file that are an application's own: the routes that its resources may name, and
//! the upstreams that its limits may use.

pub mod routes;
pub mod upstreams;
