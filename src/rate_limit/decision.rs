//! What a limit said, and who said it.

/// Who made a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecidedBy {
    Redis,
    Lease,
    DenialCache,
    /// In this process: there is no store, or it is away.
    Local,
}

impl DecidedBy {
    /// The value of the `decided_by` metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Lease => "lease",
            Self::DenialCache => "denial_cache",
            Self::Local => "local",
        }
    }
}

/// The level of one bucket after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Level {
    /// Whole tokens left.
    pub remaining: u64,
    /// Microseconds until the same request could pass; 0 when it passed.
    pub retry_after_us: u64,
    /// Microseconds until the bucket is full again.
    pub reset_after_us: u64,
}
