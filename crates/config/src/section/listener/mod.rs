//! `listeners`: the addresses that the gateway listens on. `definition` is the section, `address`
//! has its single values, `tls` its certificates, and `serving` says what listeners know of a
//! route's clients.

pub mod address;
pub mod definition;
pub mod serving;
pub mod tls;
