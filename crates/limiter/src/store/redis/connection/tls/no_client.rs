//! Stands in for TLS where the crate was built with `redis-core` alone. Guarantees that nothing
//! goes out in the clear that should have been encrypted.

use fred::error::ErrorKind;
use fred::types::config::{Config, Server};

use crate::store::redis::connection::tls::{TlsError, TlsSpec};

impl TlsSpec {
    /// # Errors
    /// [`TlsError::NotBuilt`].
    pub(crate) fn apply(&self, _: &mut Config) -> Result<(), TlsError> {
        Err(TlsError::NotBuilt)
    }
}

pub(crate) fn verify_as(_: &mut Server, _: &str) {}

pub(crate) fn is_tls_failure(_: &ErrorKind) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_asks_for_tls_is_refused() {
        assert_eq!(
            TlsSpec::default().apply(&mut Config::default()),
            Err(TlsError::NotBuilt)
        );
    }
}
