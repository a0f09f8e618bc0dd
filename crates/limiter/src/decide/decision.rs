//! The decision of all limits on a request, and the permits that come with it.

use crate::algorithm::level::Level;
use crate::node::permits::ConcurrencyPermit;
use crate::store::Levels;

/// The maker of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecidedBy {
    Redis,
    Lease,
    DenialCache,
    /// In this process: there is no store, or it is away.
    Local,
}

/// The outcome of all limits on one request.
#[derive(Debug)]
pub struct Decision {
    pub decided_by: DecidedBy,
    /// Denied requests charged nothing.
    pub granted: bool,
    /// When it was made, in microseconds of the clock that counts for `decided_by`; the earliest, where there are
    /// several.
    pub taken_at_us: u64,
    /// A level per token check, in order. Of a denied request, levels with a `retry_after_us` are those of the denying
    /// limits.
    pub levels: Levels,
    /// The levels of the permit checks, in order.
    pub permit_levels: Vec<Level>,
    /// Permits that the request holds until they are dropped.
    pub permits: Vec<ConcurrencyPermit>,
    /// Only denying levels are known: the other limits were not asked.
    pub(crate) denials_only: bool,
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

impl Decision {
    /// A decision on tokens alone.
    #[inline]
    pub fn new(decided_by: DecidedBy, granted: bool, taken_at_us: u64, levels: Levels) -> Self {
        let (permit_levels, permits) = (Vec::new(), Vec::new());
        Self { decided_by, granted, taken_at_us, levels, permit_levels, permits, denials_only: false }
    }

    /// This decision, of which only the denying levels are known.
    #[must_use]
    pub fn of_denials_only(self) -> Self {
        Self { denials_only: true, ..self }
    }

    /// Whether `level`, one of this decision, is known, and may be shown.
    #[inline]
    pub fn knows(&self, level: &Level) -> bool {
        !self.denials_only || level.retry_after_us > 0
    }
}
