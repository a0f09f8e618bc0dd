//! Why nobody signs in at a provider.

/// Why nobody signs in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenIdFault {
    /// It may pass.
    #[error("the provider cannot be asked: {0}")]
    Unavailable(String),
    #[error("{0}")]
    Refused(String),
}
