//! One limit on one route, prepared: what it asks of the limiter for a request, and what its level means to the client.

use std::borrow::Cow;
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::algorithm::level::Level;
use crate::algorithm::quota::Quota;
use crate::clock;
use crate::decide::plans::cache::{Lookup, PlanCache, PlanCaches, Reading};
use crate::limit::algorithm_kind::QuotaError;
use crate::limit::cost::{ByResponse, Cost};
use crate::limit::key::{Extracted, Facts};
use crate::limit::plan::{Plan, PlanSource, Plans};
use crate::limit::rollout::Rollout;
use crate::limit::spec::{Consistency, Degrade, Limit, LimitUse, OnLimit};
use crate::request::headers::{PolicyItem, Standing};
use crate::request::metrics::{CountedAs, LimitMetrics, Settlements};
use crate::request::permit::Later;

/// A limit at work.
#[derive(Debug)]
pub(crate) struct Rule {
    pub terms: CompiledLimit,
    pub tally: Arc<LimitMetrics>,
    /// Of a limit that may be settled after the response.
    pub settlements: Option<Arc<Settlements>>,
}

/// A limit as one route uses it: what it asks, before anything is counted.
#[derive(Clone, Debug)]
pub(crate) struct CompiledLimit {
    pub limit: Arc<Limit>,
    quota: Quota,
    /// What nearly every request is held to: a usual one of a client without a plan.
    usual: Charge,
    /// What the route says that a request takes, whoever sends it.
    own_cost: Option<Cost>,
    largest: LargestCost,
    /// Where the limit's plans are in the shared store.
    plans: Option<Arc<PlanCache>>,
}

/// What a request is held to under a limit, whatever its key.
#[derive(Clone, Debug)]
pub(crate) struct Charge {
    pub quota: Quota,
    pub cost: NonZeroU64,
    /// What a request usually takes: clients are told how many such requests they have left.
    pub usual_cost: NonZeroU64,
    pub largest_cost: u64,
    /// What is settled after the response.
    pub later: Option<Arc<ByResponse>>,
}

/// Where a client's plan is from, and what was said there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanOrigin {
    File,
    /// A hash of the shared store. `None`: it has not said yet.
    Hash {
        hash: Arc<str>,
        reading: Option<Reading>,
    },
}

/// The most tokens that any request takes of each limit, over all its uses: what decides whether nodes can share it.
#[derive(Debug, Default)]
pub struct LargestCosts(HashMap<Arc<str>, LargestCost>);

/// The most that any request takes of one limit.
#[derive(Clone, Copy, Debug, Default)]
struct LargestCost {
    /// Where routes say what a request takes.
    said: u64,
    /// Some route leaves it to the limit, or to the client's plan.
    unsaid: bool,
}

impl LargestCosts {
    /// Over `uses`, which must be all there are.
    pub fn over<'u>(uses: impl Iterator<Item = &'u LimitUse>) -> Self {
        let mut costs = Self::default();
        for LimitUse { limit, cost } in uses {
            costs.0.entry(limit.name.clone()).or_default().add(cost.as_ref());
        }
        costs
    }

    fn with(&self, LimitUse { limit, cost }: &LimitUse) -> LargestCost {
        let mut largest = self.0.get(&limit.name).copied().unwrap_or_default();
        largest.add(cost.as_ref());
        largest
    }

    /// Of a limit, whoever uses it; of one that nobody uses, what it says itself.
    fn of_limit(&self, name: &str) -> LargestCost {
        self.0.get(name).copied().unwrap_or(LargestCost { said: 0, unsaid: true })
    }
}

impl LargestCost {
    fn add(&mut self, cost: Option<&Cost>) {
        match cost {
            Some(cost) => self.said = self.said.max(cost.largest().get()),
            None => self.unsaid = true,
        }
    }

    /// Of a bucket of `burst` tokens, where a request takes `unsaid` if nothing else is said.
    fn of(self, unsaid: &Cost, burst: NonZeroU64) -> u64 {
        let largest = if self.unsaid { self.said.max(unsaid.largest().get()) } else { self.said };
        largest.min(burst.get())
    }
}

impl Rule {
    pub fn new(limit_use: &LimitUse, costs: &LargestCosts, plans: &PlanCaches) -> Result<Self, QuotaError> {
        let limit = &limit_use.limit;
        Ok(Self {
            tally: Arc::new(LimitMetrics::of(&limit.name, |counted| may_count(limit, counted))),
            settlements: may_settle(limit_use).then(|| Arc::new(Settlements::of(&limit.name))),
            terms: CompiledLimit::of(limit, limit_use.cost.clone(), costs.with(limit_use), plans)?,
        })
    }

    pub fn limit(&self) -> &Limit {
        &self.terms.limit
    }

    pub fn name(&self) -> &Arc<str> {
        &self.terms.limit.name
    }

    /// The key that a request is counted by.
    pub fn key(&self, facts: &Facts<'_>) -> Extracted {
        self.limit().key.extract(self.name(), facts)
    }

    /// What settles such a cost.
    pub fn later(&self, by: Option<Arc<ByResponse>>) -> Option<Later> {
        Some(Later { by: by?, settlements: self.settlements.clone()? })
    }

    /// What clients without a plan are told of the limit.
    pub fn policy(&self) -> PolicyItem<'_> {
        let quota = self.terms.quota;
        self.policy_of(quota, self.terms.cost().usual(burst(quota)))
    }

    pub fn policy_of(&self, quota: Quota, usual_cost: NonZeroU64) -> PolicyItem<'_> {
        let window_secs = quota.in_flight().is_none().then(|| seconds_up(quota.fill_us()).max(1));
        PolicyItem { name: self.name(), quota: quota.burst() / usual_cost, window_secs }
    }

    /// Whether the limit acts on any request.
    pub fn acts(&self) -> bool {
        self.limit().enforced != Rollout::NONE
    }

    /// Whether a request that the limit denies may still wait, or pass to something cheaper.
    pub fn is_lenient(&self) -> bool {
        matches!(self.limit().on_limit, OnLimit::Queue(_) | OnLimit::Degrade(_))
    }

    pub fn degrades(&self) -> Option<&Degrade> {
        match &self.limit().on_limit {
            OnLimit::Degrade(degrade) => Some(degrade),
            OnLimit::Reject | OnLimit::Answer(_) | OnLimit::Queue(_) => None,
        }
    }
}

impl CompiledLimit {
    fn of(
        limit: &Arc<Limit>,
        own_cost: Option<Cost>,
        largest: LargestCost,
        plans: &PlanCaches,
    ) -> Result<Self, QuotaError> {
        let plans = match limit.plans.as_ref().map(|plans| &plans.source) {
            Some(PlanSource::Hash(hash)) => Some(plans.of(&hash.name, limit.algorithm.manner())),
            Some(PlanSource::Table(_)) | None => None,
        };
        let (limit, quota) = (limit.clone(), limit.algorithm.quota()?);
        // What costs by the request is read off each; the rest is the same for all.
        let (cost, usual_cost) = (NonZeroU64::MIN, NonZeroU64::MIN);
        let usual = Charge { quota, cost, usual_cost, largest_cost: 1, later: None };
        let terms = Self { limit, quota, usual, own_cost, largest, plans };
        Ok(Self { usual: terms.price_by(None, Cost::usual), ..terms })
    }

    /// Of a limit whoever uses it, for a look at its buckets: `costs` are over all uses.
    pub fn of_any_use(limit: &Arc<Limit>, costs: &LargestCosts, plans: &PlanCaches) -> Result<Self, QuotaError> {
        Self::of(limit, None, costs.of_limit(&limit.name), plans)
    }

    /// The request's plan as far as it is known, and what has to be read of it.
    pub fn plan(&self, facts: &Facts<'_>) -> (Option<Cow<'_, Plan>>, Option<Lookup>) {
        let Some(plans) = &self.limit.plans else { return (None, None) };
        match (&plans.source, &self.plans) {
            (PlanSource::Table(table), _) => {
                (plans.by.lend(facts, |value| table.get(value)).flatten().map(Cow::Borrowed), None)
            }
            (PlanSource::Hash(hash), Some(cache)) => plans.by.field(facts).map_or((None, None), |field| {
                let (plan, lookup) = cache.find(field, hash.cache, clock::monotonic_micros());
                (plan.map(Cow::Owned), lookup)
            }),
            (PlanSource::Hash(_), None) => (None, None),
        }
    }

    /// Where the request's plan is from, or would be. `None`: the limit has no plans, or the request does not say which.
    pub fn origin(&self, facts: &Facts<'_>) -> Option<PlanOrigin> {
        let plans = self.limit.plans.as_ref()?;
        match &self.plans {
            None => plans.by.lend(facts, |_| PlanOrigin::File),
            Some(cache) => {
                let reading = cache.reading(&plans.by.field(facts)?, clock::monotonic_micros());
                Some(PlanOrigin::Hash { hash: cache.hash().clone(), reading })
            }
        }
    }

    /// The cost of requests of clients without a plan.
    fn cost(&self) -> &Cost {
        self.own_cost.as_ref().unwrap_or(&self.limit.cost)
    }

    /// What a request is held to: by its plan, if it has one.
    pub fn price(&self, plan: Option<&Plan>, facts: &Facts<'_>) -> Charge {
        match (plan, self.cost()) {
            // No request is out of the ordinary.
            (None, Cost::Fixed(_) | Cost::Response(_)) => self.usual.clone(),
            _ => self.price_by(plan, |cost, burst| cost.of(facts, burst)),
        }
    }

    /// The same of a request that is not at hand any more, by the plan that was read for it meanwhile. Such a plan's own
    /// cost is fixed, so what else costs by the request is what it has [said](Self::said_cost).
    pub fn late_price(&self, plan: Option<&Plan>, said: NonZeroU64) -> Charge {
        self.price_by(plan, |cost, burst| match cost {
            Cost::Fixed(cost) => *cost,
            Cost::Header { .. } | Cost::Body { .. } | Cost::Response(_) => said.min(burst),
        })
    }

    /// The same with this plan, where a request's cost out of so large a bucket is `read` off it. Of a plan that was not
    /// known when the file was checked, a request takes a full bucket at most: no plan locks its client out.
    fn price_by(&self, plan: Option<&Plan>, read: impl FnOnce(&Cost, NonZeroU64) -> NonZeroU64) -> Charge {
        let quota = plan.map_or(self.quota, Plan::quota);
        let burst = burst(quota);
        let unsaid = plan.and_then(Plan::cost).unwrap_or(&self.limit.cost);
        let cost = self.own_cost.as_ref().unwrap_or(unsaid);
        let most = if self.plans.is_some() { burst } else { Cost::UNBOUNDED };
        let largest_cost = self.largest.of(unsaid, burst);
        let later = cost.later().cloned();
        let (usual_cost, cost) = (cost.usual(burst).min(most), read(cost, burst).min(most));
        let quota = match self.limit.consistency {
            Consistency::Exact => quota,
            Consistency::Leased => quota.leased(largest_cost),
        };
        Charge { quota, cost, usual_cost, largest_cost, later }
    }

    /// What a request says of its cost, whatever its plan: see [`Self::late_price`].
    pub fn said_cost(&self, facts: &Facts<'_>) -> NonZeroU64 {
        self.cost().of(facts, Cost::UNBOUNDED)
    }
}

/// Where a client stands, in requests of the usual cost.
pub(crate) fn standing(quota: Quota, usual_cost: NonZeroU64, level: &Level) -> Standing {
    let remaining = level.remaining / usual_cost;
    let wait_us = match (level.retry_after_us, remaining) {
        (0, 0) => {
            // Granted, and nothing left: the next request passes once its cost is back.
            level.reset_after_us.saturating_sub(quota.spare_us(usual_cost.get()))
        }
        (0, _) => level.reset_after_us,
        (retry_after_us, _) => retry_after_us,
    };
    // A bucket that was heard of a while ago may have tokens again, or have given them to the stock: both is no promise.
    let least = u64::from(remaining == 0);
    let reset_secs = quota.in_flight().is_none().then(|| seconds_up(wait_us).max(least));
    Standing { quota: quota.burst() / usual_cost, remaining, reset_secs }
}

/// Whether a limit can ever count such a decision.
fn may_count(limit: &Limit, counted: CountedAs) -> bool {
    match counted {
        CountedAs::Allowed | CountedAs::Denied => limit.enforced != Rollout::NONE,
        CountedAs::Degraded => matches!(limit.on_limit, OnLimit::Degrade(_)),
        CountedAs::Exempt => !limit.exempt.is_empty(),
        CountedAs::ShadowAllowed | CountedAs::ShadowDenied => limit.enforced != Rollout::ALL,
    }
}

/// Whether what some request costs is known only after its response.
fn may_settle(LimitUse { limit, cost }: &LimitUse) -> bool {
    let planned = || limit.plans.iter().flat_map(Plans::all).filter_map(Plan::cost).chain([&limit.cost]);
    match cost {
        Some(cost) => cost.later().is_some(),
        None => planned().any(|cost| cost.later().is_some()),
    }
}

/// Tokens in a full bucket.
fn burst(quota: Quota) -> NonZeroU64 {
    NonZeroU64::new(quota.burst()).unwrap_or(NonZeroU64::MIN)
}

/// Whole seconds, rounded up.
pub(crate) fn seconds_up(us: u64) -> u64 {
    us.div_ceil(1_000_000)
}
