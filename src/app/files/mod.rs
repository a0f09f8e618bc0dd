//! The files beside the configuration, under watch: those of TLS, and those of credentials.

pub mod credentials;
pub mod tls;
pub mod tls_watch;
