//! The definition of a limit: its name and all of its parts, and how a route uses it.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::limit::algorithm::{Algorithm, Rate};
use crate::limit::cost::Cost;
use crate::limit::exemption::Exemption;
use crate::limit::key::{KeyPart, KeySpec};
use crate::limit::on_limit::OnLimit;
use crate::limit::plan::{Plan, Plans};
use crate::limit::rollout::Rollout;
use crate::limit::status_set::StatusSet;

/// How a limit is enforced while the store is away.
///
/// ```
/// use tollgate_limiter::limit::definition::OnOutage;
/// use tollgate_limiter::{Limit, client_ip};
///
/// let logins = Limit::per_minute("logins", 5).key(client_ip()).on_outage(OnOutage::Deny);
/// # logins.build().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OnOutage {
    /// This node enforces its share of the limit.
    #[default]
    Local,
    /// Every request passes.
    Allow,
    /// Every request is denied.
    Deny,
    /// Like [`Self::Local`] until the store has been away for `time`, then `then`. With
    /// [`AfterLocal::Deny`] and a time of the store's `autonomy` at most, the limit holds however
    /// long a part of the fleet is cut off.
    LocalFor { time: Duration, then: AfterLocal },
}

/// How a limit is enforced once its time of [`OnOutage::LocalFor`] is over.
///
/// ```
/// use std::time::Duration;
/// use tollgate_limiter::limit::definition::{AfterLocal, OnOutage};
/// use tollgate_limiter::{Limit, client_ip};
///
/// let on_outage = OnOutage::LocalFor { time: Duration::from_secs(10), then: AfterLocal::Deny };
/// let payments = Limit::per_minute("payments", 60).key(client_ip()).on_outage(on_outage);
/// # payments.build().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AfterLocal {
    /// Every request passes.
    Allow,
    /// Every request is denied.
    Deny,
}

impl OnOutage {
    /// The treatment when the store has been away for `away`: not [`Self::LocalFor`].
    #[must_use]
    pub fn after(self, away: Duration) -> Self {
        match self {
            Self::LocalFor {
                time,
                then: AfterLocal::Allow,
            } if away >= time => Self::Allow,
            Self::LocalFor {
                time,
                then: AfterLocal::Deny,
            } if away >= time => Self::Deny,
            Self::LocalFor { .. } => Self::Local,
            Self::Local | Self::Allow | Self::Deny => self,
        }
    }

    /// The microseconds without the store for which this node enforces its share.
    #[must_use]
    pub fn local_us(self) -> u64 {
        match self {
            Self::Local => u64::MAX,
            Self::LocalFor { time, .. } => u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
            Self::Allow | Self::Deny => 0,
        }
    }

    /// Whether this node enforces its share, for some time at least.
    #[must_use]
    pub fn is_local(self) -> bool {
        matches!(self, Self::Local | Self::LocalFor { .. })
    }
}

/// How a fleet shares one limit: with a call per request, or with fewer. The limit holds either
/// way.
///
/// ```
/// use tollgate_limiter::{Limit, client_ip};
///
/// let busy = Limit::per_second("busy", 5_000).key(client_ip()).leased();
/// # assert_eq!(busy.build().unwrap().limit.consistency, tollgate_limiter::limit::definition::Consistency::Leased);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Consistency {
    /// The store decides on each request.
    #[default]
    Exact,
    /// A node takes a few tokens ahead and spends them in process for up to 50 ms, at the price of
    /// a part of the burst. A limit whose burst is too small for that is exact. For token buckets
    /// only.
    Leased,
}

/// A limit: the requests that share a bucket, and how much they may take of it.
///
/// ```
/// use std::num::NonZeroU64;
/// use tollgate_limiter::limit::cost::Cost;
/// use tollgate_limiter::{Limit, client_ip};
///
/// let reads = Limit::per_second("reads", 10).burst(20).key(client_ip()).build()?.limit;
/// let cost = Cost::Body { unit: NonZeroU64::new(1024).unwrap(), max: Cost::UNBOUNDED };
/// let writes = Limit { name: "writes".into(), cost, ..(*reads).clone() };
/// assert!(writes.needs_client_ip());
/// # Ok::<(), tollgate_limiter::LimitError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Part of every key, so two limits never share a bucket.
    pub name: Arc<str>,
    /// Requests with the same key share one bucket.
    pub key: KeySpec,
    /// How tokens are counted, and how many there are.
    pub algorithm: Algorithm,
    /// Tokens one request takes, unless the route or the client's plan says otherwise.
    pub cost: Cost,
    /// The responses that count: what a request took is refunded if its response has another
    /// status. `None`: all.
    pub count: Option<StatusSet>,
    /// The decision while the store is away.
    pub on_outage: OnOutage,
    /// How a denied request is treated.
    pub on_limit: OnLimit,
    /// The keys that the limit acts on. Requests of the others are counted as if it did, and pass.
    pub rollout: Rollout,
    /// Requests that the limit skips.
    pub exemption: Exemption,
    /// Other rates for some clients.
    pub plans: Option<Plans>,
    /// How nodes share the limit.
    pub consistency: Consistency,
    /// Clients are not told of the limit: neither by fields, nor by its name where it refuses them.
    /// A denied request is told when to come back all the same.
    pub hidden: bool,
}

/// A limit as one route or listener uses it.
///
/// ```
/// use std::sync::Arc;
/// use tollgate_limiter::decide::limiter::Limiter;
/// use tollgate_limiter::limit::definition::LimitUse;
/// use tollgate_limiter::store::memory::MemoryStore;
/// use tollgate_limiter::{Limit, RateLimitLayer, client_ip};
///
/// let limit = Limit::per_second("per-client", 10).key(client_ip()).build()?.limit;
/// let upload = LimitUse { limit, cost: Some(std::num::NonZeroU64::new(5).unwrap().into()) };
/// let layer = RateLimitLayer::of_uses(Limiter::local(Arc::new(MemoryStore::new(10_000))), &[upload])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUse {
    pub limit: Arc<Limit>,
    /// Tokens one request takes here, at most the burst. `None`: as many as the client's plan or
    /// the limit says.
    pub cost: Option<Cost>,
}

impl Limit {
    /// Whether requests are told apart by the client's address.
    pub fn needs_client_ip(&self) -> bool {
        let plans_by = self.plans.as_ref().map(|plans| &plans.by);
        self.key
            .parts
            .iter()
            .chain(plans_by)
            .any(|part| matches!(part, KeyPart::ClientIp { .. }))
    }

    /// The costs of requests on routes that set none: those of its plans, and its own.
    pub(crate) fn costs(&self) -> impl Iterator<Item = &Cost> {
        let plans = self.plans.iter().flat_map(Plans::all);
        plans.filter_map(Plan::cost).chain([&self.cost])
    }

    /// A token bucket per `key`, one token a request, with all else at its default.
    ///
    /// ```
    /// # use std::num::NonZeroU64;
    /// use tollgate_limiter::limit::algorithm::Rate;
    /// use tollgate_limiter::limit::definition::Limit;
    /// use tollgate_limiter::limit::key::{KeyPart, KeySpec, OnMissing};
    ///
    /// let hundred = NonZeroU64::new(100).unwrap();
    /// let per_second = Rate { tokens: hundred, period_us: NonZeroU64::new(1_000_000).unwrap() };
    /// let client = KeyPart::ClientIp { ipv4_prefix: 32, ipv6_prefix: 64 };
    /// let key = KeySpec { parts: vec![client], on_missing: OnMissing::Share };
    /// let limit = Limit::new("per-client", key, per_second, hundred);
    /// assert!(limit.algorithm.compile().is_ok());
    /// ```
    pub fn new(name: &str, key: KeySpec, rate: Rate, burst: NonZeroU64) -> Self {
        Self {
            name: name.into(),
            key,
            algorithm: Algorithm::TokenBucket { rate, burst },
            cost: Cost::Fixed(NonZeroU64::MIN),
            count: None,
            on_outage: OnOutage::default(),
            consistency: Consistency::default(),
            on_limit: OnLimit::default(),
            rollout: Rollout::default(),
            exemption: Exemption::default(),
            plans: None,
            hidden: false,
        }
    }
}
