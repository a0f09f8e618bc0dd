//! What all limits on a request came to, and what it holds of them.

use smallvec::SmallVec;

use crate::algorithm::level::Level;
use crate::node::permits::ConcurrencyPermit;

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

/// The outcome of all limits on one request.
#[derive(Debug)]
pub struct Decision {
    pub decided_by: DecidedBy,
    /// Denied requests charged nothing.
    pub granted: bool,
    /// When, in microseconds of the clock of who decided; the earliest, where there are several.
    pub taken_at_us: u64,
    /// One per limit asked, in order. Of a denied request, those with a `retry_after_us` are the limits that denied it.
    pub levels: SmallVec<[Level; 4]>,
    /// Slots that the request is in, of those limits that count requests in flight, until this is dropped.
    pub slots: Vec<ConcurrencyPermit>,
    /// Only what denies is known: the others were not asked.
    pub(crate) denials_only: bool,
}

impl Decision {
    /// A verdict without slots.
    pub fn new(decided_by: DecidedBy, granted: bool, taken_at_us: u64, levels: SmallVec<[Level; 4]>) -> Self {
        Self { decided_by, granted, taken_at_us, levels, slots: Vec::new(), denials_only: false }
    }

    /// The same, of which only the levels are known that deny.
    #[must_use]
    pub fn of_denials_only(self) -> Self {
        Self { denials_only: true, ..self }
    }

    /// Whether `level`, one of its own, is a fact, and may be told.
    pub fn knows(&self, level: &Level) -> bool {
        !self.denials_only || level.retry_after_us > 0
    }
}
