//! `routes`: which requests a route takes, and what becomes of them.
//!
//! `definition` is the section, `matching` its conditions, and `action` what it does, with
//! `distribution` among several upstreams. `fields` changes header fields, `compress`, `cors`,
//! `maintenance` and `retry` are keys of their own, and `identified` and `certificates` judge
//! what goes by an identity or a certificate.

pub mod action;
pub mod certificates;
pub mod compress;
pub mod cors;
pub mod definition;
pub mod distribution;
pub mod fields;
pub mod identified;
pub mod maintenance;
pub mod matching;
pub mod retry;
