//! How a limit counts, and how much it allows, as an operator says it.
//!
//! Guarantees that the numbers were checked before a store counts by them: [`Algorithm::compile`]
//! is the only way there.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::algorithm::calendar::{CalendarError, CalendarUnit, Period};
use crate::algorithm::concurrency::{ConcurrencyLimit, Scope};
use crate::algorithm::quota::Quota;
use crate::algorithm::token_bucket::{TokenBucket, TokenBucketError};
use crate::algorithm::window::{Window, WindowError};
use crate::limit::units::show_rate;

/// A rate: `tokens` every `period_us` microseconds.
///
/// A hundred per second:
/// ```
/// # use std::num::NonZeroU64;
/// use tollgate_limiter::limit::algorithm::Rate;
///
/// let rate = Rate { tokens: NonZeroU64::new(100).unwrap(), period_us: NonZeroU64::new(1_000_000).unwrap() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub tokens: NonZeroU64,
    pub period_us: NonZeroU64,
}

/// A rate of a window: `tokens` in each window of length `per`. See [`Algorithm`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowRate {
    pub tokens: NonZeroU64,
    pub per: WindowLength,
}

/// The length of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowLength {
    Micros(NonZeroU64),
    /// A month of a calendar, which has no fixed length.
    Month,
}

/// How a limit counts, and how much it allows.
///
/// ```
/// use std::num::NonZeroU64;
/// use std::sync::Arc;
/// use tollgate_limiter::limit::algorithm::{Algorithm, WindowLength, WindowRate};
/// use tollgate_limiter::limit::definition::Limit;
/// use tollgate_limiter::everyone;
///
/// let limit = Limit::per_day("monthly", 1_000).key(everyone()).build()?.limit;
/// let rate = WindowRate { tokens: NonZeroU64::new(1_000).unwrap(), per: WindowLength::Month };
/// let monthly = Limit { algorithm: Algorithm::FixedWindow { rate, zone: None }, ..(*limit).clone() };
/// assert_eq!(monthly.algorithm.burst().get(), 1_000);
/// # Ok::<(), tollgate_limiter::LimitError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Tokens flow back one by one, and `burst` of them fit the bucket.
    TokenBucket { rate: Rate, burst: NonZeroU64 },
    /// `rate.tokens` in each window, one window after the other. With a `zone`, an IANA time zone's
    /// name, windows are minutes, hours, days or months there; without, they are counted from 1970
    /// on, and months are those of UTC.
    FixedWindow {
        rate: WindowRate,
        zone: Option<Arc<str>>,
    },
    /// `rate.tokens` in any stretch of time of the rate's period.
    SlidingWindow { rate: Rate },
    /// `most` requests in flight, each until its response's body has ended.
    Concurrency { most: NonZeroU64, scope: Scope },
}

/// How a limit counts, without its numbers: its plans share this with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AlgorithmKind {
    TokenBucket,
    FixedWindow { zone: Option<Arc<str>> },
    SlidingWindow,
    Concurrency { scope: Scope },
}

/// The form in which stores keep what a key consumed.
#[derive(PartialEq, Eq)]
enum StoredForm {
    Backlog,
    WindowEntries,
    PermitHolders,
}

/// An algorithm whose numbers were checked, as the limiter counts by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompiledAlgorithm {
    /// Tokens, of a bucket or a window.
    Tokens(Quota),
    /// Requests in flight.
    Permits(ConcurrencyLimit),
}

/// A number or unit that only some algorithms have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    #[error("a {0} has no burst")]
    Burst(&'static str),
    #[error("a {0} counts no months, which differ in length")]
    Month(&'static str),
    #[error("{0} has no rate")]
    Rate(&'static str),
    #[error("a {0} has no max_in_flight")]
    Permits(&'static str),
}

/// Why a limit cannot count by an algorithm's numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    #[error(transparent)]
    TokenBucket(#[from] TokenBucketError),
    #[error(transparent)]
    Window(#[from] WindowError),
    #[error("windows by the calendar of a place are a minute, an hour, a day or a month long")]
    NoUnit,
    #[error("there is no time zone \"{0}\"")]
    UnknownZone(Arc<str>),
    #[error("months and time zones need the feature \"calendar\" of tollgate-limiter")]
    NoCalendar,
}

impl CompiledAlgorithm {
    /// Tokens or permits that may be taken at once, at most.
    #[inline]
    pub fn burst(self) -> u64 {
        match self {
            Self::Tokens(quota) => quota.burst(),
            Self::Permits(limit) => limit.most(),
        }
    }

    /// Whether a request of `cost` can ever pass.
    #[inline]
    pub fn holds(self, cost: u64) -> bool {
        match self {
            Self::Tokens(quota) => quota.holds(cost),
            Self::Permits(limit) => cost <= limit.most(),
        }
    }

    /// Microseconds that tokens may be spent after they were taken ahead; 0: none may be.
    #[inline]
    pub fn lease_us(self) -> u64 {
        match self {
            Self::Tokens(quota) => quota.lease_us(),
            Self::Permits(_) => 0,
        }
    }
}

impl WindowLength {
    /// The unit of a calendar that has this length.
    fn unit(self) -> Option<CalendarUnit> {
        let Self::Micros(micros) = self else {
            return Some(CalendarUnit::Month);
        };
        [CalendarUnit::Minute, CalendarUnit::Hour, CalendarUnit::Day]
            .into_iter()
            .find(|unit| unit.longest_us() == micros.get())
    }

    fn period(self, zone: Option<&Arc<str>>) -> Result<Period, QuotaError> {
        match (self, zone) {
            (Self::Micros(micros), None) => Ok(Period::every(micros.get())),
            (per, zone) => {
                let unit = per.unit().ok_or(QuotaError::NoUnit)?;
                let name = zone.map_or("UTC", |zone| zone);
                Period::calendar(unit, name).map_err(|error| match error {
                    CalendarError::UnknownZone => QuotaError::UnknownZone(name.into()),
                    CalendarError::Unavailable => QuotaError::NoCalendar,
                })
            }
        }
    }
}

impl AlgorithmKind {
    /// Each kind once, with the defaults of what it has besides.
    pub const ALL: [Self; 4] = [
        Self::TokenBucket,
        Self::FixedWindow { zone: None },
        Self::SlidingWindow,
        Self::Concurrency {
            scope: Scope::Fleet,
        },
    ];

    /// The kind that operators call `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name that operators write.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::FixedWindow { .. } => "fixed_window",
            Self::SlidingWindow => "sliding_window",
            Self::Concurrency { .. } => "concurrency",
        }
    }

    /// Whether it has a burst besides its rate.
    pub fn has_burst(&self) -> bool {
        match self {
            Self::TokenBucket => true,
            Self::FixedWindow { .. } | Self::SlidingWindow | Self::Concurrency { .. } => false,
        }
    }

    /// Whether it counts requests in flight, and no tokens.
    pub fn counts_in_flight(&self) -> bool {
        match self {
            Self::TokenBucket | Self::FixedWindow { .. } | Self::SlidingWindow => false,
            Self::Concurrency { .. } => true,
        }
    }

    fn rate_without_months(&self, rate: &WindowRate) -> Result<Rate, Unsupported> {
        match rate.per {
            WindowLength::Micros(period_us) => Ok(Rate {
                tokens: rate.tokens,
                period_us,
            }),
            WindowLength::Month => Err(Unsupported::Month(self.name())),
        }
    }

    /// Whether the buckets of a limit go on when its algorithm changes from this to `new`.
    /// Otherwise they begin anew.
    pub fn keeps_buckets(&self, new: &Self) -> bool {
        self.stored_form() == new.stored_form()
    }

    fn stored_form(&self) -> StoredForm {
        match self {
            Self::TokenBucket => StoredForm::Backlog,
            Self::FixedWindow { .. } | Self::SlidingWindow => StoredForm::WindowEntries,
            Self::Concurrency { .. } => StoredForm::PermitHolders,
        }
    }

    /// The algorithm of this kind with a rate. A bucket's burst is the rate's tokens unless `burst`
    /// is given.
    ///
    /// # Errors
    /// When this kind has no rate, no burst, or no months.
    pub fn with_rate(
        &self,
        rate: WindowRate,
        burst: Option<NonZeroU64>,
    ) -> Result<Algorithm, Unsupported> {
        let algorithm = match self {
            Self::TokenBucket => Algorithm::TokenBucket {
                burst: burst.unwrap_or(rate.tokens),
                rate: self.rate_without_months(&rate)?,
            },
            Self::FixedWindow { zone } => Algorithm::FixedWindow {
                rate,
                zone: zone.clone(),
            },
            Self::SlidingWindow => Algorithm::SlidingWindow {
                rate: self.rate_without_months(&rate)?,
            },
            Self::Concurrency { .. } => return Err(Unsupported::Rate(self.name())),
        };
        if burst.is_some() && !self.has_burst() {
            return Err(Unsupported::Burst(self.name()));
        }
        Ok(algorithm)
    }

    /// The algorithm of this kind with a number of permits for requests in flight.
    ///
    /// # Errors
    /// When this kind counts tokens.
    pub fn with_permits(&self, most: NonZeroU64) -> Result<Algorithm, Unsupported> {
        match self {
            Self::TokenBucket | Self::FixedWindow { .. } | Self::SlidingWindow => {
                Err(Unsupported::Permits(self.name()))
            }
            Self::Concurrency { scope } => Ok(Algorithm::Concurrency {
                most,
                scope: *scope,
            }),
        }
    }
}

impl Algorithm {
    /// The kind: the algorithm without its numbers.
    pub fn kind(&self) -> AlgorithmKind {
        match self {
            Self::TokenBucket { .. } => AlgorithmKind::TokenBucket,
            Self::FixedWindow { zone, .. } => AlgorithmKind::FixedWindow { zone: zone.clone() },
            Self::SlidingWindow { .. } => AlgorithmKind::SlidingWindow,
            Self::Concurrency { scope, .. } => AlgorithmKind::Concurrency { scope: *scope },
        }
    }

    /// Checks the numbers and makes them the limiter's.
    ///
    /// # Errors
    /// When the numbers are out of bounds, the time zone is unknown, or it needs the feature
    /// `calendar`.
    pub fn compile(&self) -> Result<CompiledAlgorithm, QuotaError> {
        let quota = match self {
            Self::TokenBucket { rate, burst } => {
                TokenBucket::new(rate.tokens, rate.period_us, *burst)?.into()
            }
            Self::FixedWindow { rate, zone } => {
                Window::fixed(rate.tokens.get(), rate.per.period(zone.as_ref())?)?.into()
            }
            Self::SlidingWindow { rate } => {
                Window::sliding(rate.tokens.get(), rate.period_us.get())?.into()
            }
            Self::Concurrency { most, scope } => {
                return Ok(CompiledAlgorithm::Permits(ConcurrencyLimit::new(
                    most.get(),
                    *scope,
                )));
            }
        };
        Ok(CompiledAlgorithm::Tokens(quota))
    }

    /// Whether a cost of `tokens` comes back within 366 days, also beyond the burst. A bucket's
    /// comes back at its rate, a window forgets at its end.
    pub fn comes_back(&self, tokens: NonZeroU64) -> bool {
        match self {
            Self::TokenBucket { rate, .. } => !matches!(
                TokenBucket::new(rate.tokens, rate.period_us, tokens),
                Err(TokenBucketError::TooSlow)
            ),
            Self::FixedWindow { .. } | Self::SlidingWindow { .. } | Self::Concurrency { .. } => {
                true
            }
        }
    }

    /// The numbers as the configuration file writes them: `10/s`, `1000/month in Europe/Berlin`.
    pub fn show(&self) -> String {
        match self {
            Self::TokenBucket { rate, .. } | Self::SlidingWindow { rate } => {
                show_rate(rate.tokens, rate.period_us)
            }
            Self::FixedWindow { rate, zone } => {
                let shown = match rate.per {
                    WindowLength::Micros(period_us) => show_rate(rate.tokens, period_us),
                    WindowLength::Month => format!("{}/month", rate.tokens),
                };
                match zone {
                    Some(zone) => format!("{shown} in {zone}"),
                    None => shown,
                }
            }
            Self::Concurrency {
                most,
                scope: Scope::Fleet,
            } => format!("{most} in flight"),
            Self::Concurrency {
                most,
                scope: Scope::Node,
            } => format!("{most} in flight on each node"),
        }
    }

    /// Tokens that may be taken at once, at most.
    pub fn burst(&self) -> NonZeroU64 {
        match self {
            Self::TokenBucket { burst, .. } => *burst,
            Self::FixedWindow { rate, .. } => rate.tokens,
            Self::SlidingWindow { rate } => rate.tokens,
            Self::Concurrency { most, .. } => *most,
        }
    }
}
