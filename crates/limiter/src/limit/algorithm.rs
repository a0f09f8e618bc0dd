//! How a limit counts, and how much it allows, as an operator says it. Plain data, checked at the edge by `config`.
//!
//! Guarantees that what can be asked of stores was checked: [`Algorithm::compile`] is the only way there.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::algorithm::calendar::{CalendarError, CalendarUnit, Period};
use crate::algorithm::concurrency::{ConcurrencyLimit, Scope};
use crate::algorithm::quota::Quota;
use crate::algorithm::token_bucket::{TokenBucket, TokenBucketError};
use crate::algorithm::window::{Window, WindowError};

/// `tokens` every `period_us` microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub tokens: NonZeroU64,
    pub period_us: NonZeroU64,
}

/// Quotas that come back with their window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowRate {
    pub tokens: NonZeroU64,
    pub per: WindowLength,
}

/// A window's length as it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowLength {
    Micros(NonZeroU64),
    /// Of a calendar, and so of no fixed length.
    Month,
}

/// How a limit counts, and how much it allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Tokens flow back one by one, and `burst` of them fit the bucket.
    TokenBucket { rate: Rate, burst: NonZeroU64 },
    /// So many tokens in each window, one window after the other. With a `zone`, an IANA time zone's name, windows are
    /// minutes, hours, days or months there; without, they are counted from 1970 on, and months are those of UTC.
    FixedWindow { rate: WindowRate, zone: Option<Arc<str>> },
    /// So many tokens in any stretch of time of this length.
    SlidingWindow { rate: Rate },
    /// So many requests in flight, each until its response's body has ended.
    Concurrency { most: NonZeroU64, scope: Scope },
}

/// How a limit counts, its numbers left aside: what its plans share with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AlgorithmKind {
    TokenBucket,
    FixedWindow { zone: Option<Arc<str>> },
    SlidingWindow,
    Concurrency { scope: Scope },
}

/// What a limit counts, told apart once, when it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompiledAlgorithm {
    /// Tokens, of a bucket or a window.
    Tokens(Quota),
    /// Requests in flight.
    Permits(ConcurrencyLimit),
}

/// What only some algorithms count by.
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

/// Why an algorithm's numbers cannot be counted by.
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
    pub fn burst(self) -> u64 {
        match self {
            Self::Tokens(quota) => quota.burst(),
            Self::Permits(limit) => limit.most(),
        }
    }

    /// Whether a request of `cost` can ever pass.
    pub fn holds(self, cost: u64) -> bool {
        match self {
            Self::Tokens(quota) => quota.holds(cost),
            Self::Permits(limit) => cost <= limit.most(),
        }
    }

    /// Microseconds that tokens may be spent after they were taken ahead; 0: none may be.
    pub fn lease_us(self) -> u64 {
        match self {
            Self::Tokens(quota) => quota.lease_us(),
            Self::Permits(_) => 0,
        }
    }
}

impl WindowLength {
    /// The unit of a calendar that it is one of.
    fn unit(self) -> Option<CalendarUnit> {
        let Self::Micros(micros) = self else { return Some(CalendarUnit::Month) };
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
    /// As operators write it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::FixedWindow { .. } => "fixed_window",
            Self::SlidingWindow => "sliding_window",
            Self::Concurrency { .. } => "concurrency",
        }
    }

    /// The algorithm that counts so, by these numbers. A bucket's burst is the rate's tokens if nothing else is said.
    ///
    /// # Errors
    /// When such numbers are another algorithm's.
    pub fn with_rate(&self, rate: WindowRate, burst: Option<NonZeroU64>) -> Result<Algorithm, Unsupported> {
        let WindowRate { tokens, per } = rate;
        let rate_per_period = || match per {
            WindowLength::Micros(period_us) => Ok(Rate { tokens, period_us }),
            WindowLength::Month => Err(Unsupported::Month(self.name())),
        };
        let algorithm = match self {
            Self::TokenBucket => Algorithm::TokenBucket { rate: rate_per_period()?, burst: burst.unwrap_or(tokens) },
            Self::FixedWindow { zone } => Algorithm::FixedWindow { rate, zone: zone.clone() },
            Self::SlidingWindow => Algorithm::SlidingWindow { rate: rate_per_period()? },
            Self::Concurrency { .. } => return Err(Unsupported::Rate(self.name())),
        };
        match (self, burst) {
            (Self::TokenBucket, _) | (_, None) => Ok(algorithm),
            (_, Some(_)) => Err(Unsupported::Burst(self.name())),
        }
    }

    /// The algorithm that counts so many requests in flight.
    ///
    /// # Errors
    /// When it does not count them.
    pub fn with_permits(&self, most: NonZeroU64) -> Result<Algorithm, Unsupported> {
        match self {
            Self::Concurrency { scope } => Ok(Algorithm::Concurrency { most, scope: *scope }),
            other => Err(Unsupported::Permits(other.name())),
        }
    }
}

impl Algorithm {
    pub fn kind(&self) -> AlgorithmKind {
        match self {
            Self::TokenBucket { .. } => AlgorithmKind::TokenBucket,
            Self::FixedWindow { zone, .. } => AlgorithmKind::FixedWindow { zone: zone.clone() },
            Self::SlidingWindow { .. } => AlgorithmKind::SlidingWindow,
            Self::Concurrency { scope, .. } => AlgorithmKind::Concurrency { scope: *scope },
        }
    }

    /// What the limiter counts by.
    ///
    /// # Errors
    /// When the numbers are out of bounds, or there is no such calendar.
    pub fn compile(&self) -> Result<CompiledAlgorithm, QuotaError> {
        let quota = match self {
            Self::TokenBucket { rate, burst } => TokenBucket::new(rate.tokens, rate.period_us, *burst)?.into(),
            Self::FixedWindow { rate, zone } => {
                Window::fixed(rate.tokens.get(), rate.per.period(zone.as_ref())?)?.into()
            }
            Self::SlidingWindow { rate } => Window::sliding(rate.tokens.get(), rate.period_us.get())?.into(),
            Self::Concurrency { most, scope } => {
                return Ok(CompiledAlgorithm::Permits(ConcurrencyLimit::new(most.get(), *scope)));
            }
        };
        Ok(CompiledAlgorithm::Tokens(quota))
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
