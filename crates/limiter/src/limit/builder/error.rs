//! The mistakes in a limit that is put together in code.

use std::fmt;
use std::sync::Arc;

use crate::limit::algorithm::QuotaError;
use crate::limit::status_set::NoStatus;

/// Why a limit cannot be one. Names the limit.
///
/// ```
/// use tollgate_limiter::{Limit, LimitError, everyone};
///
/// let refused: LimitError = Limit::per_second("all", 5).burst(0).key(everyone()).build().unwrap_err();
/// let told = "the limit \"all\": the burst is 0, and must be at least 1";
/// assert_eq!(refused.to_string(), told);
/// assert_eq!(format!("{refused:?}"), told);
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error(
        "{0:?} is no name of a limit: take 1 to 64 letters, digits, dots, dashes and underscores"
    )]
    Name(Arc<str>),
    #[error(
        "the limit {0:?} has no key: say whom it counts, for instance .key(client_ip()), or .key(everyone())"
    )]
    NoKey(Arc<str>),
    #[error("the limit {limit:?}: {what} is 0, and must be at least 1")]
    Zero { limit: Arc<str>, what: &'static str },
    #[error("the limit {0:?}: a burst belongs to a token bucket; leave it out")]
    Burst(Arc<str>),
    #[error("the limit {limit:?}: a request that costs {cost} never passes a limit of {burst}")]
    Cost {
        limit: Arc<str>,
        cost: u64,
        burst: u64,
    },
    #[error("the limit {limit:?}: {error}")]
    Quota { limit: Arc<str>, error: QuotaError },
    #[error(
        "the limit {limit:?}: {hash:?} is no name of a hash of plans: take what a limit's name may have"
    )]
    PlanHash { limit: Arc<str>, hash: Arc<str> },
    #[error(
        "the limit {0:?} has plans in Redis, and its layer reads none: make the layer of a SharedLimiter"
    )]
    PlansUnread(Arc<str>),
    #[error("the limit {limit:?}: {error}")]
    Statuses { limit: Arc<str>, error: NoStatus },
    #[error(
        "the limit {0:?}: requests in flight count whatever their status; leave out the status codes"
    )]
    StatusesInFlight(Arc<str>),
    #[error(
        "the limit {0:?}: tokens that are taken ahead are not given back by the status; leave out one of the two"
    )]
    StatusesLeased(Arc<str>),
    #[error("two limits are called {0:?}: each needs a name of its own")]
    Twice(Arc<str>),
}

/// The message: what `main` returns is printed by `Debug`.
impl fmt::Debug for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
