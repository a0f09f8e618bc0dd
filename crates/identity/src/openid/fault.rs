//! Why nobody signs in at a provider.

/// Why nobody signs in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenIdFault {
    /// The provider cannot be asked now. Later it may.
    #[error("the provider cannot be asked: {0}")]
    Unavailable(String),
    #[error("{0}")]
    Refused(String),
}
