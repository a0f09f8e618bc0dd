//! Signing in at a provider of OpenID Connect (OpenID Connect Core 1.0), by the authorization code
//! flow with PKCE.
//!
//! `spec` is what an operator writes, `pending` is what a browser brings back, `directory` is what
//! the provider says of itself, `provider` redeems a code, and `fault` says why not. Guarantees
//! that a person is who a token says that this provider has signed, for this client, for this one
//! sign-in, and that is still good.

pub mod directory;
pub mod fault;
pub mod pending;
pub mod provider;
pub mod spec;
