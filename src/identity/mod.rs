//! The client of a request, by name: authenticators by API key, password, token and client
//! certificate, and by a service that is asked.
//!
//! `spec` is what an operator writes, `credential` the places where a request carries one,
//! `authenticator` one authenticator at work and `route` those of a route together. `api_key`,
//! `stored_key`, `password` and `jwt` are what credentials of their kind are checked by, `forward`
//! asks a service; people sign in to the console by `openid`; `attempts` bounds those that fail,
//! `shared_checks` has the checks under way, and `upkeep` follows the keys of issuers.

pub mod api_key;
pub mod attempts;
pub mod authenticator;
pub mod credential;
pub mod forward;
mod generations;
pub mod jwt;
mod metrics;
pub mod openid;
pub mod password;
pub mod refusal;
pub mod route;
mod shared_checks;
pub mod source;
pub mod spec;
pub mod stored_key;
pub mod upkeep;

use std::collections::HashMap;
use std::sync::Arc;

use self::authenticator::Authenticator;

/// The authenticators of the node by name.
pub type Authenticators = HashMap<Arc<str>, Arc<Authenticator>>;
