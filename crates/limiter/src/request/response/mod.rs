//! The part of a request's limits that lasts until its response has ended: permits and reservations
//! (`permit`), held by the response's body (`permit_body`), and the cost that the response tells
//! (`usage/`).

pub mod permit;
pub mod permit_body;
pub(crate) mod usage;
