//! The level of a bucket or window after a decision.

/// The level of one bucket or window after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Level {
    /// Whole tokens left.
    pub remaining: u64,
    /// Microseconds until the same request could pass; 0 when it passed. After the last one that
    /// passes, a window tells when the next one does.
    pub retry_after_us: u64,
    /// Microseconds until the bucket is full again.
    pub reset_after_us: u64,
}

impl Level {
    /// The level of a limit that denies whatever the store does not decide. The store is asked
    /// again within the second.
    pub const DENIED_WITHOUT_STORE: Self = Self {
        remaining: 0,
        retry_after_us: 1_000_000,
        reset_after_us: 1_000_000,
    };
}
