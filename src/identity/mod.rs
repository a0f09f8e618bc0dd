//! The client of a request, by name: authenticators by API key, password, token and client
//! certificate, and by a service that is asked.
//!
//! A kind of authenticator is a folder: `api_key`, `password`, `jwt`, `forward` and
//! `client_certificate`. Its settings implement the trait of `method`, and its check of a request
//! the trait of `authenticator`; `spec` registers the settings, `named` the check. `route` has the
//! authenticators of a route together, `credential` finds and removes credentials, and `attempts`
//! bounds those that fail. People sign in to the console by `openid`.

pub mod api_key;
pub mod attempts;
pub mod authenticator;
mod client_certificate;
pub mod credential;
pub mod forward;
mod generations;
pub mod jwt;
pub mod key_table;
pub mod method;
mod metrics;
pub mod named;
pub mod openid;
pub mod password;
pub mod refusal;
pub mod route;
pub mod source;
pub mod spec;
