//! The bounds within which bodies are read ahead of the limits that count by a member of them.

use std::num::NonZeroUsize;
use std::time::Duration;

/// The bounds on what is read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyKeyBounds {
    /// The bytes of one body.
    pub max_body: NonZeroUsize,
    /// Bytes of all bodies together.
    pub max_memory: NonZeroUsize,
    /// The time from a request's head to the end of its body.
    pub timeout: Duration,
}

impl Default for BodyKeyBounds {
    fn default() -> Self {
        Self {
            max_body: kib(64),
            max_memory: kib(64 * 1024),
            timeout: Duration::from_secs(10),
        }
    }
}

/// A number of KiB, at least one.
const fn kib(count: usize) -> NonZeroUsize {
    match NonZeroUsize::new(count * 1024) {
        Some(bytes) => bytes,
        None => NonZeroUsize::MIN,
    }
}
