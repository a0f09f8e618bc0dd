//! `listeners`: the addresses that the gateway listens on. `definition` is the section, `address`
//! has its single values, `tls` its certificates, and `authenticating` says which requests have an
//! identity.

pub mod address;
pub mod authenticating;
pub mod definition;
pub mod tls;
