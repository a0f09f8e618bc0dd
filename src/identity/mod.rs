//! The client of a request, by name: authenticators by API key, password and client certificate.
//!
//! `spec` is what an operator writes, `credential` the places where a request carries one, `authenticator` one
//! authenticator at work and `route` those of a route together. `api_key` and `password` are what credentials of their kind
//! are checked by; `attempts` bounds those that fail.

pub mod api_key;
pub mod attempts;
pub mod authenticator;
pub mod credential;
mod metrics;
pub mod password;
pub mod refusal;
pub mod route;
pub mod spec;

use std::collections::HashMap;
use std::sync::Arc;

use self::authenticator::Authenticator;

/// The authenticators of the node by name.
pub type Authenticators = HashMap<Arc<str>, Arc<Authenticator>>;
