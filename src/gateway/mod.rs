//! From a request to a route to a response.

pub mod account;
pub mod path;
pub mod route;
pub mod table;
