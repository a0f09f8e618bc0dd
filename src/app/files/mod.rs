//! The files beside the configuration, under watch: those of TLS, of credentials, of endpoints and
//! of maintenance.

pub mod credentials;
pub mod endpoints;
pub mod maintenance;
pub mod tls;
pub mod tls_watch;
