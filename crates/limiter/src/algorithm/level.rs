//! The level of a bucket, as a decision leaves it.

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
