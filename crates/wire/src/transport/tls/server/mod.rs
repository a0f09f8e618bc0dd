//! TLS towards clients. An `acceptor` makes the handshakes of a listener, with a `certificate`
//! chosen by its `names`. `session` is the outcome of a handshake, with the `client_certificate`.
//! `spec` has the settings, `metrics` counts.

pub mod acceptor;
pub mod certificate;
pub mod client_certificate;
mod metrics;
mod names;
pub mod session;
pub mod spec;
