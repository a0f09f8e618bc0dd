//! A limit of one route at work: its charges, its counters, and its level in a client's terms.

use std::sync::Arc;

use crate::algorithm::level::Level;
use crate::clock;
use crate::decide::plans::cache::PlanCaches;
use crate::limit::algorithm::{CompiledAlgorithm, QuotaError};
use crate::limit::cost::ResponseCost;
use crate::limit::cost::quota_unit::QuotaScale;
use crate::limit::definition::{Limit, LimitUse};
use crate::limit::key::{ExtractedKey, Facts, Key, OnMissing};
use crate::limit::on_limit::{Degrade, OnLimit};
use crate::limit::rollout::Rollout;
use crate::request::answer::headers::{PolicyItem, Standing};
use crate::request::compiled_limit::{CompiledLimit, LargestCosts};
use crate::request::denied_keys::{DenialWatch, DeniedKeys};
use crate::request::metrics::{CountedAs, LimitMetrics, LimitMetricsCache, SettlementMetrics};
use crate::request::queue::{Queue, Queues};
use crate::request::response::permit::LaterCost;

/// A limit at work.
#[derive(Debug)]
pub(crate) struct Rule {
    pub compiled: CompiledLimit,
    pub metrics: Arc<LimitMetrics>,
    /// Only of a limit that may be settled after the response.
    settlements: Option<Arc<SettlementMetrics>>,
    /// Only of a limit whose requests may wait.
    pub queue: Option<Arc<Queue>>,
    /// Where it is watched whom the limit denies.
    pub denied_keys: Option<Arc<DeniedKeys>>,
}

/// The state of limits that outlives a change of the configuration: plans that were read, requests
/// that wait, whom limits deny, and counters.
#[derive(Debug, Default)]
pub struct LimitStates {
    pub plans: PlanCaches,
    /// Whom limits deny. `None`: nobody asks.
    pub denials: Option<DenialWatch>,
    queues: Queues,
    metrics: LimitMetricsCache,
}

impl LimitStates {
    /// States that watch whom limits deny. Somebody has to end its windows: see
    /// [`DenialWatch::turn`].
    pub fn watching_denials() -> Self {
        Self {
            denials: Some(DenialWatch::default()),
            ..Self::default()
        }
    }
}

impl Rule {
    pub fn new(
        limit_use: &LimitUse,
        costs: &LargestCosts,
        states: &LimitStates,
    ) -> Result<Self, QuotaError> {
        let limit = &limit_use.limit;
        let queue =
            matches!(limit.on_limit, OnLimit::Queue(_)).then(|| states.queues.queue(&limit.name));
        Ok(Self {
            metrics: states
                .metrics
                .limit(&limit.name, |counted| may_count(limit, counted)),
            settlements: may_settle(limit_use)
                .then(|| Arc::new(SettlementMetrics::new(&limit.name))),
            compiled: CompiledLimit::for_use(limit_use, costs, &states.plans)?,
            denied_keys: states
                .denials
                .as_ref()
                .map(|denials| denials.limit(&limit.name)),
            queue,
        })
    }

    #[inline]
    pub fn limit(&self) -> &Limit {
        &self.compiled.limit
    }

    #[inline]
    pub fn name(&self) -> &Arc<str> {
        &self.compiled.limit.name
    }

    /// The key that a request is counted by.
    pub fn key(&self, facts: &Facts<'_>) -> ExtractedKey {
        self.limit().key.extract(self.name(), facts)
    }

    /// The later settlement of such a cost: what the response tells, or whether it counts.
    #[inline]
    pub fn later(&self, by: Option<Arc<ResponseCost>>) -> Option<LaterCost> {
        let counted = &self.limit().count;
        if by.is_none() && counted.is_none() {
            return None;
        }
        Some(LaterCost {
            by,
            counted: counted.clone(),
            settlements: self.settlements.clone()?,
        })
    }

    /// The policy for clients without a plan.
    pub fn policy(&self) -> PolicyItem<'_> {
        let (counting, scale) = self.compiled.typical();
        self.policy_of(counting, scale)
    }

    /// The policy of requests that are counted so. A window is whole seconds: of a bucket, the
    /// first in which it fills, and the quota is all that flows in meanwhile. So a small burst
    /// tells the whole rate.
    pub fn policy_of(&self, counting: CompiledAlgorithm, scale: QuotaScale) -> PolicyItem<'_> {
        let mut tokens = counting.burst();
        let mut window_secs = None;
        if let CompiledAlgorithm::Tokens(quota) = counting {
            let window_us = if quota.has_calendar() {
                quota.window_us(clock::unix_micros())
            } else {
                quota.fill_us()
            };
            let secs = seconds_up(window_us).max(1);
            tokens = quota.tokens_within(secs.saturating_mul(1_000_000));
            window_secs = Some(secs);
        }
        PolicyItem {
            name: self.name(),
            quota: scale.quota(tokens),
            unit: scale.unit,
            window_secs,
        }
    }

    /// Whether the policy changes with time: a month is not as long as the next.
    pub fn has_calendar(&self) -> bool {
        match self.compiled.typical() {
            (CompiledAlgorithm::Tokens(quota), _) => quota.has_calendar(),
            (CompiledAlgorithm::Permits(_), _) => false,
        }
    }

    /// Takes note of a request over the limit.
    #[inline]
    pub fn watch_denial(&self, key: Option<&Key>) {
        if let (Some(denied_keys), Some(key)) = (&self.denied_keys, key) {
            denied_keys.count(key);
        }
    }

    /// Whether the limit is enforced on any request.
    pub fn acts(&self) -> bool {
        self.limit().rollout != Rollout::NONE
    }

    /// Whether a request is refused where the server does not tell the client's address: otherwise
    /// all clients would share one bucket. A limit that only counts refuses nobody, and
    /// `on_missing` may say otherwise.
    pub fn refuses_without_client_ip(&self) -> bool {
        self.acts()
            && self.limit().key.on_missing == OnMissing::Share
            && self.limit().needs_client_ip()
    }

    /// Whether a request that the limit denies may still wait, or pass to something cheaper.
    pub fn is_lenient(&self) -> bool {
        matches!(
            self.limit().on_limit,
            OnLimit::Queue(_) | OnLimit::Degrade(_)
        )
    }

    pub fn degrades(&self) -> Option<&Degrade> {
        match &self.limit().on_limit {
            OnLimit::Degrade(degrade) => Some(degrade),
            OnLimit::Reject | OnLimit::Answer(_) | OnLimit::Queue(_) => None,
        }
    }
}

/// The standing of a client. `passed`: the cost of the request, if it passed.
pub(crate) fn standing(
    counting: CompiledAlgorithm,
    scale: QuotaScale,
    level: &Level,
    passed: Option<u64>,
) -> Standing {
    let quota = scale.quota(counting.burst());
    let remaining = scale.remaining(level.remaining);
    let CompiledAlgorithm::Tokens(tokens) = counting else {
        return Standing {
            quota,
            remaining,
            reset_secs: None,
        };
    };
    // A request that passed tells the wait for another of its own cost, where it tells one.
    let typical_cost = scale.typical_cost.get();
    let tells_wait = level.retry_after_us > 0
        && passed.is_none_or(|cost| remaining == 0 && cost >= typical_cost);
    let wait_us = match remaining {
        _ if tells_wait => level.retry_after_us,
        // Granted, with nothing left: the next request passes once its cost is back.
        0 => level
            .reset_after_us
            .saturating_sub(tokens.spare_us(typical_cost)),
        _ => level.reset_after_us,
    };
    // An old level may be wrong: the bucket may have tokens again, or have given them to a lease.
    // Neither is promised.
    let least = u64::from(remaining == 0);
    Standing {
        quota,
        remaining,
        reset_secs: Some(seconds_up(wait_us).max(least)),
    }
}

/// Whether a limit can ever count such a decision.
fn may_count(limit: &Limit, counted: CountedAs) -> bool {
    match counted {
        CountedAs::Allowed | CountedAs::Denied => limit.rollout != Rollout::NONE,
        CountedAs::Degraded => matches!(limit.on_limit, OnLimit::Degrade(_)),
        CountedAs::Exempt => !limit.exemption.is_empty(),
        CountedAs::ShadowAllowed | CountedAs::ShadowDenied => limit.rollout != Rollout::ALL,
    }
}

/// Whether what some request costs is known only after its response.
fn may_settle(LimitUse { limit, cost }: &LimitUse) -> bool {
    if limit.count.is_some() {
        return true;
    }
    match cost {
        Some(cost) => cost.later().is_some(),
        None => limit.costs().any(|cost| cost.later().is_some()),
    }
}

/// Whole seconds, rounded up.
#[inline]
pub(crate) fn seconds_up(us: u64) -> u64 {
    us.div_ceil(1_000_000)
}
