//! Limits in a line: `Limit::per_second("per-client", 10).burst(20).key(client_ip())`.
//!
//! Nothing is checked before [`LimitBuilder::build`], which names the limit and what is wrong with
//! it.

mod error;

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, HeaderName};

pub use self::error::LimitError;
use crate::algorithm::concurrency::Scope;
use crate::limit::algorithm::{Algorithm, AlgorithmKind, WindowLength, WindowRate};
use crate::limit::cost::Cost;
use crate::limit::definition::{Consistency, Limit, LimitUse, OnOutage};
use crate::limit::exemption::Exemption;
use crate::limit::key::{CustomKey, Facts, IdentityPart, KeyPart, KeySpec, OnMissing};
use crate::limit::on_limit::{OnLimit, Queueing};
use crate::limit::plan::{PlanHash, PlanSource, Plans};
use crate::limit::rollout::Rollout;
use crate::limit::status_set::{StatusRange, StatusSet};

/// A limit in the making. Made by [`Limit::per_second`] and its like.
///
/// ```
/// use std::time::Duration;
/// use tollgate_limiter::{Limit, client_ip};
///
/// let limit = Limit::per_minute("logins", 5).sliding_window().key(client_ip()).build()?;
/// assert_eq!(&*limit.limit.name, "logins");
/// # Ok::<(), tollgate_limiter::LimitError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a limit is of use in a RateLimitLayer"]
pub struct LimitBuilder {
    name: Arc<str>,
    tokens: u64,
    period: Duration,
    kind: AlgorithmKind,
    burst: Option<u64>,
    key: Option<KeySpec>,
    on_missing: OnMissing,
    cost: u64,
    count: Vec<StatusRange>,
    on_outage: OnOutage,
    on_limit: OnLimit,
    consistency: Consistency,
    rollout: Rollout,
    exemption: Exemption,
    plans: Option<Plans>,
    hidden: bool,
}

impl Limit {
    /// `tokens` a second, in a token bucket that holds as many; see [`LimitBuilder::burst`].
    pub fn per_second(name: impl Into<Arc<str>>, tokens: u64) -> LimitBuilder {
        Self::every(name, tokens, Duration::from_secs(1))
    }

    /// `tokens` a minute.
    pub fn per_minute(name: impl Into<Arc<str>>, tokens: u64) -> LimitBuilder {
        Self::every(name, tokens, Duration::from_secs(60))
    }

    /// `tokens` an hour.
    pub fn per_hour(name: impl Into<Arc<str>>, tokens: u64) -> LimitBuilder {
        Self::every(name, tokens, Duration::from_secs(3_600))
    }

    /// `tokens` a day of 24 hours.
    pub fn per_day(name: impl Into<Arc<str>>, tokens: u64) -> LimitBuilder {
        Self::every(name, tokens, Duration::from_secs(86_400))
    }

    /// `tokens` in each `period`, exact to the microsecond.
    pub fn every(name: impl Into<Arc<str>>, tokens: u64, period: Duration) -> LimitBuilder {
        LimitBuilder::new(name.into(), tokens, period, AlgorithmKind::TokenBucket)
    }

    /// `most` requests in flight, each until its response's body has ended.
    pub fn in_flight(name: impl Into<Arc<str>>, most: u64) -> LimitBuilder {
        LimitBuilder::new(
            name.into(),
            most,
            Duration::ZERO,
            AlgorithmKind::Concurrency {
                scope: Scope::default(),
            },
        )
    }
}

impl LimitBuilder {
    fn new(name: Arc<str>, tokens: u64, period: Duration, kind: AlgorithmKind) -> Self {
        Self {
            name,
            tokens,
            period,
            kind,
            burst: None,
            key: None,
            on_missing: OnMissing::default(),
            cost: 1,
            count: Vec::new(),
            on_outage: OnOutage::default(),
            on_limit: OnLimit::default(),
            consistency: Consistency::default(),
            rollout: Rollout::default(),
            exemption: Exemption::default(),
            plans: None,
            hidden: false,
        }
    }

    /// Tokens that may be taken at once. Without it: as many as the rate says.
    pub fn burst(self, tokens: u64) -> Self {
        Self {
            burst: Some(tokens),
            ..self
        }
    }

    /// Sets the key that tells requests apart: one part, or an array of them.
    pub fn key(self, key: impl Into<KeySpec>) -> Self {
        Self {
            key: Some(key.into()),
            ..self
        }
    }

    /// Sets how a request that lacks a part of the key is treated. Without it: all of them share a
    /// bucket.
    pub fn on_missing(self, on_missing: OnMissing) -> Self {
        Self { on_missing, ..self }
    }

    /// Counts the tokens of each window of the period, one window after the other.
    pub fn fixed_window(self) -> Self {
        Self {
            kind: AlgorithmKind::FixedWindow { zone: None },
            ..self
        }
    }

    /// Counts the tokens of any stretch of time as long as the period.
    pub fn sliding_window(self) -> Self {
        Self {
            kind: AlgorithmKind::SlidingWindow,
            ..self
        }
    }

    /// Tokens that a request takes; 1 without it.
    pub fn cost(self, tokens: u64) -> Self {
        Self {
            cost: tokens,
            ..self
        }
    }

    /// Counts only requests whose response has one of these status codes: the others get back what
    /// they took, once their response has begun. A request takes its tokens before, so as many as
    /// are in flight never exceed the limit. One that is given up before its response counts.
    /// Without it: all count.
    ///
    /// Five wrong passwords a minute, and any number of right ones:
    /// ```
    /// use tollgate_limiter::{Limit, client_ip};
    ///
    /// let logins = Limit::per_minute("failed-logins", 5).sliding_window().key(client_ip()).count_statuses([401, 403]);
    /// let failures = Limit::per_minute("failures", 100).key(client_ip()).count_statuses([500..=599]);
    /// # (logins.build()?, failures.build()?);
    /// # Ok::<(), tollgate_limiter::LimitError>(())
    /// ```
    pub fn count_statuses<S: Into<StatusRange>>(
        self,
        statuses: impl IntoIterator<Item = S>,
    ) -> Self {
        let count = self
            .count
            .into_iter()
            .chain(statuses.into_iter().map(Into::into))
            .collect();
        Self { count, ..self }
    }

    /// Sets how the limit is enforced while the shared store is away. Without it: each node
    /// enforces its share.
    pub fn on_outage(self, on_outage: OnOutage) -> Self {
        Self { on_outage, ..self }
    }

    /// Sets how a request over the limit is treated. Without it: 429.
    pub fn on_limit(self, on_limit: OnLimit) -> Self {
        Self { on_limit, ..self }
    }

    /// Lets requests over the limit wait, each for `max_wait` at most and `max_waiting` at a time.
    pub fn queue(self, max_wait: Duration, max_waiting: NonZeroUsize) -> Self {
        self.on_limit(OnLimit::Queue(Queueing {
            max_wait,
            max_waiting,
        }))
    }

    /// Takes tokens ahead of the requests that need them: fewer calls to the store, at the price of
    /// a part of the burst.
    pub fn leased(self) -> Self {
        Self {
            consistency: Consistency::Leased,
            ..self
        }
    }

    /// Counts and denies nobody: to try a limit out.
    pub fn shadow(self) -> Self {
        Self {
            rollout: Rollout::NONE,
            ..self
        }
    }

    /// Hides the limit from clients: answers have no fields of it, and a refusal does not name it.
    /// A denied request is told when to come back all the same.
    ///
    /// ```
    /// use tollgate_limiter::{Limit, client_ip};
    ///
    /// let told = Limit::per_second("per-client", 10).key(client_ip());
    /// let scrapers = Limit::per_hour("scrapers", 5_000).key(client_ip()).hidden();
    /// # assert!(!told.build()?.limit.hidden && scrapers.build()?.limit.hidden);
    /// # Ok::<(), tollgate_limiter::LimitError>(())
    /// ```
    pub fn hidden(self) -> Self {
        Self {
            hidden: true,
            ..self
        }
    }

    /// Skips these requests.
    pub fn exempt(self, exemption: Exemption) -> Self {
        Self { exemption, ..self }
    }

    /// Takes the rate of some clients from a hash in Redis: the plan of a request is the field that
    /// `by` says, a text such as `100/s burst=200 cost=2`. A request without a plan has the limit's
    /// own rate. For layers of a [`SharedLimiter`](crate::SharedLimiter). See [`PlanHash`] for how
    /// such a hash is written.
    pub fn plans(self, by: KeyPart, hash: PlanHash) -> Self {
        Self {
            plans: Some(Plans {
                by,
                source: PlanSource::Hash(hash),
            }),
            ..self
        }
    }

    /// The limit, for a [`RateLimitLayer`](crate::RateLimitLayer).
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn build(self) -> Result<LimitUse, LimitError> {
        if !is_name(&self.name) {
            return Err(LimitError::Name(self.name));
        }
        if let Some(Plans {
            source: PlanSource::Hash(PlanHash { name: hash, .. }),
            ..
        }) = &self.plans
            && !is_name(hash)
        {
            return Err(LimitError::PlanHash {
                limit: self.name,
                hash: hash.clone(),
            });
        }
        let algorithm = self.algorithm()?;
        let count = self.counted()?;
        let Self {
            name,
            key,
            on_missing,
            on_outage,
            on_limit,
            consistency,
            rollout,
            exemption,
            plans,
            hidden,
            ..
        } = self;
        let burst = algorithm
            .compile()
            .map_err(|error| LimitError::Quota {
                limit: name.clone(),
                error,
            })?
            .burst();
        let cost = nonzero(&name, "the cost", self.cost)?;
        if cost.get() > burst {
            return Err(LimitError::Cost {
                limit: name,
                cost: cost.get(),
                burst,
            });
        }
        let key = KeySpec {
            on_missing,
            ..key.ok_or_else(|| LimitError::NoKey(name.clone()))?
        };
        let cost = Cost::Fixed(cost);
        let limit = Limit {
            name,
            key,
            algorithm,
            cost,
            count,
            on_outage,
            on_limit,
            rollout,
            exemption,
            plans,
            consistency,
            hidden,
        };
        Ok(LimitUse {
            limit: Arc::new(limit),
            cost: None,
        })
    }

    /// The status codes to count by, if any are set.
    fn counted(&self) -> Result<Option<StatusSet>, LimitError> {
        if self.count.is_empty() {
            return Ok(None);
        }
        if self.kind.counts_in_flight() {
            return Err(LimitError::StatusesInFlight(self.name.clone()));
        }
        if self.consistency == Consistency::Leased {
            return Err(LimitError::StatusesLeased(self.name.clone()));
        }
        let set = StatusSet::new(self.count.iter().cloned());
        set.map(Some).map_err(|error| LimitError::Statuses {
            limit: self.name.clone(),
            error,
        })
    }

    fn algorithm(&self) -> Result<Algorithm, LimitError> {
        let tokens = nonzero(&self.name, "the number of tokens", self.tokens)?;
        if self.burst.is_some() && !self.kind.has_burst() {
            return Err(LimitError::Burst(self.name.clone()));
        }
        if let Ok(in_flight) = self.kind.with_permits(tokens) {
            return Ok(in_flight);
        }
        let period_us = u64::try_from(self.period.as_micros()).unwrap_or(u64::MAX);
        let period_us = nonzero(&self.name, "the period in microseconds", period_us)?;
        let rate = WindowRate {
            tokens,
            per: WindowLength::Micros(period_us),
        };
        let burst = match self.burst {
            Some(burst) => Some(nonzero(&self.name, "the burst", burst)?),
            None => None,
        };
        self.kind
            .with_rate(rate, burst)
            .map_err(|_| LimitError::Burst(self.name.clone()))
    }
}

/// Names begin the keys and stand in header fields: no key of one limit may be that of another, or
/// of a hash of plans.
fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

fn nonzero(limit: &Arc<str>, what: &'static str, number: u64) -> Result<NonZeroU64, LimitError> {
    NonZeroU64::new(number).ok_or_else(|| LimitError::Zero {
        limit: limit.clone(),
        what,
    })
}

impl From<KeyPart> for KeySpec {
    fn from(part: KeyPart) -> Self {
        Self {
            parts: vec![part],
            on_missing: OnMissing::default(),
        }
    }
}

impl<const N: usize> From<[KeyPart; N]> for KeySpec {
    fn from(parts: [KeyPart; N]) -> Self {
        Self {
            parts: parts.into(),
            on_missing: OnMissing::default(),
        }
    }
}

/// The client's address: IPv4 addresses each, IPv6 by their /64.
pub fn client_ip() -> KeyPart {
    KeyPart::ClientIp {
        ipv4_prefix: 32,
        ipv6_prefix: 64,
    }
}

/// A header field. Whoever may send any value has as many buckets: meant for fields that a proxy in
/// front sets or checks.
pub fn header(name: HeaderName) -> KeyPart {
    KeyPart::Header(name)
}

/// A cookie.
pub fn cookie(name: &str) -> KeyPart {
    KeyPart::Cookie(name.into())
}

/// The identity that an authenticator found.
pub fn identity() -> KeyPart {
    KeyPart::Identity(IdentityPart::Qualified)
}

/// The host that the request is for.
pub fn host() -> KeyPart {
    KeyPart::Host
}

/// The route: of axum the `MatchedPath`, `/users/{id}`.
pub fn route() -> KeyPart {
    KeyPart::Route
}

/// A single bucket for all requests.
pub fn everyone() -> KeyPart {
    KeyPart::Constant("everyone".into())
}

/// A key of your own, called `name` in messages: what `read` makes of a request. `None`: the
/// request lacks it. Counts as secret: longer values, and values of any length in the store, are
/// hashed.
///
/// ```
/// use tollgate_limiter::{Limit, key_fn};
///
/// let tenant = key_fn("tenant", |request| Some(request.host.find().split('.').next()?.to_owned()));
/// let limit = Limit::per_hour("per-tenant", 1_000).key(tenant);
/// # limit.build().unwrap();
/// ```
pub fn key_fn(
    name: &str,
    read: impl Fn(&Facts<'_>) -> Option<String> + Send + Sync + 'static,
) -> KeyPart {
    KeyPart::Custom(CustomKey::new(name, read))
}

/// A value that a layer outside put into the request's extensions, such as the id of a user it
/// authenticated.
///
/// ```
/// use tollgate_limiter::{Limit, extension};
///
/// #[derive(Clone)]
/// struct UserId(u64);
///
/// let limit = Limit::per_minute("per-user", 60).key(extension("user", |user: &UserId| user.0.to_string()));
/// # limit.build().unwrap();
/// ```
pub fn extension<T: Send + Sync + 'static>(
    name: &str,
    read: impl Fn(&T) -> String + Send + Sync + 'static,
) -> KeyPart {
    key_fn(name, move |request| {
        request.extensions.and_then(Extensions::get::<T>).map(&read)
    })
}

#[cfg(test)]
mod tests;
