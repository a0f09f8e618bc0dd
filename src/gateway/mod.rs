//! From a request to a route to a response.

pub mod route;
