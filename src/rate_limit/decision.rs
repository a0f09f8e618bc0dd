//! What a limit said, and who said it.

use smallvec::SmallVec;

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

/// The outcome of all limits on one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub decided_by: DecidedBy,
    /// Denied requests charged nothing.
    pub granted: bool,
    /// When, in microseconds of the clock of who decided; the earliest, where there are several.
    pub taken_at_us: u64,
    /// One per limit asked, in order. Of a denied request, those with a `retry_after_us` are the limits that denied it.
    pub levels: SmallVec<[Level; 4]>,
}

impl Verdict {
    /// Whether `level`, one of its own, is a fact. The denial cache knows only of the limits that deny: the others were not
    /// asked, and nothing may be told of them.
    pub fn knows(&self, level: &Level) -> bool {
        self.decided_by != DecidedBy::DenialCache || level.retry_after_us > 0
    }
}
