//! The decision of all limits on a request, and the permits that come with it.

use smallvec::SmallVec;

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

/// A maker per check.
pub(crate) type DecisionMakers = SmallVec<[DecidedBy; 8]>;

/// The outcome of all limits on one request.
#[derive(Debug)]
pub struct Decision {
    /// The maker of the decision. Limits may have makers of their own: see [`Self::source`] and
    /// [`Self::permit_decided_by`].
    pub decided_by: DecidedBy,
    /// Denied requests charged nothing.
    pub granted: bool,
    /// When it was made, in microseconds of the clock that counts for `decided_by`.
    pub taken_at_us: u64,
    /// A level per token check, in order. Of a denied request, levels with a `retry_after_us` are
    /// those of the denying limits.
    pub levels: Levels,
    /// The levels of the permit checks, in order.
    pub permit_levels: Vec<Level>,
    /// Permits that the request holds until they are dropped.
    pub permits: Vec<ConcurrencyPermit>,
    /// Only denying levels are known: the other limits were not asked.
    pub(crate) denials_only: bool,
    /// Boxed: few requests need it.
    pub(crate) sources: Option<Box<LimitSources>>,
}

/// The maker of the decision on one limit, and when it was made, in microseconds of the clock that
/// counts for that maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionSource {
    pub decided_by: DecidedBy,
    pub taken_at_us: u64,
    /// False: the limit let the request pass uncounted while the store was away.
    pub counted: bool,
}

/// The sources of a decision by limit, where they are not all the same.
#[derive(Debug, Default)]
pub(crate) struct LimitSources {
    /// A source per token check, or none: all are the decision's.
    tokens: Vec<DecisionSource>,
    /// A maker per permit check that was asked, or none.
    permits: DecisionMakers,
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
        let permit_levels = Vec::new();
        let permits = Vec::new();
        Self {
            decided_by,
            granted,
            taken_at_us,
            levels,
            permit_levels,
            permits,
            denials_only: false,
            sources: None,
        }
    }

    /// This decision, with a source per token check.
    #[must_use]
    pub(crate) fn with_sources(mut self, tokens: Vec<DecisionSource>) -> Self {
        self.sources.get_or_insert_default().tokens = tokens;
        self
    }

    /// This decision, with the maker of it on each permit check, as far as they were asked.
    #[must_use]
    pub(crate) fn with_permits_decided_by(mut self, permits: DecisionMakers) -> Self {
        if permits.iter().any(|by| *by != self.decided_by) {
            self.sources.get_or_insert_default().permits = permits;
        }
        self
    }

    /// The maker of the decision on the token check at `index`.
    pub fn source(&self, index: usize) -> DecisionSource {
        let own = self
            .sources
            .as_ref()
            .and_then(|sources| sources.tokens.get(index).copied());
        let all = DecisionSource {
            decided_by: self.decided_by,
            taken_at_us: self.taken_at_us,
            counted: true,
        };
        own.unwrap_or(all)
    }

    /// The maker of the decision on the permit check at `index`.
    pub fn permit_decided_by(&self, index: usize) -> DecidedBy {
        let own = self
            .sources
            .as_ref()
            .and_then(|sources| sources.permits.get(index).copied());
        own.unwrap_or(self.decided_by)
    }

    /// Lets what the store decided take effect `us` later.
    pub(crate) fn delay(&mut self, us: u64) {
        let tokens = self
            .sources
            .iter_mut()
            .flat_map(|sources| &mut sources.tokens);
        let tokens = tokens.map(|source| (source.decided_by, &mut source.taken_at_us));
        for (decided_by, taken_at_us) in tokens.chain([(self.decided_by, &mut self.taken_at_us)]) {
            if decided_by == DecidedBy::Redis {
                *taken_at_us = taken_at_us.saturating_add(us);
            }
        }
    }

    /// This decision, of which only the denying levels are known.
    #[must_use]
    pub fn with_denials_only(self) -> Self {
        Self {
            denials_only: true,
            ..self
        }
    }

    /// Whether `level`, one of this decision, is known, and may be shown.
    #[inline]
    pub fn knows(&self, level: &Level) -> bool {
        !self.denials_only || level.retry_after_us > 0
    }
}
