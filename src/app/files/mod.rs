//! The files beside the configuration, under watch: those of TLS, of credentials and of endpoints.

pub mod credentials;
pub mod endpoints;
pub mod tls;
pub mod tls_watch;
