//! A limit as one route uses it: the charge of a request under it, by the client's plan if it has
//! one.
//!
//! Guarantees that a request with a plan costs no more than a full bucket of it, so that no plan
//! locks its client out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::clock;
use crate::decide::plans::cache::{PlanCache, PlanCaches, PlanQuery, PlanReading};
use crate::limit::algorithm::{CompiledAlgorithm, QuotaError};
use crate::limit::cost::quota_unit::{QuotaScale, QuotaUnit};
use crate::limit::cost::{Cost, ResponseCost};
use crate::limit::definition::{Consistency, Limit, LimitUse};
use crate::limit::key::Facts;
use crate::limit::plan::{Plan, PlanSource};

/// A limit as one route uses it, before anything is counted.
#[derive(Clone, Debug)]
pub(crate) struct CompiledLimit {
    pub limit: Arc<Limit>,
    counting: CompiledAlgorithm,
    /// The charge of nearly every request: a usual one of a client without a plan.
    typical: Charge,
    /// The cost that the route sets, whatever the client.
    own_cost: Option<Cost>,
    largest: LargestCost,
    /// The limit's plans in the shared store.
    plans: Option<Arc<PlanCache>>,
}

/// The charge of a request under a limit, whatever its key.
#[derive(Clone, Debug)]
pub(crate) struct Charge {
    pub counting: CompiledAlgorithm,
    pub cost: NonZeroU64,
    /// The unit that clients are shown.
    pub scale: QuotaScale,
    pub largest_cost: u64,
    /// Set when the cost is settled after the response.
    pub later: Option<Arc<ResponseCost>>,
}

/// The origin of a client's plan, and what was read there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanOrigin {
    File,
    /// A hash of the shared store. `None`: it was not read yet.
    Hash {
        hash: Arc<str>,
        reading: Option<PlanReading>,
    },
}

/// The most tokens that any request takes of each limit, over all uses of the limit. They decide
/// whether nodes can share it.
#[derive(Debug, Default)]
pub struct LargestCosts(HashMap<Arc<str>, LargestCost>);

/// The most that any request takes of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LargestCost {
    /// The largest cost that a route sets.
    stated: u64,
    /// Some route leaves the cost to the limit, or to the client's plan.
    leaves_default: bool,
    /// Some route sets a cost that the response tells.
    settled: bool,
}

impl LargestCosts {
    /// The largest costs over `uses`, which must be all there are.
    pub fn over<'u>(uses: impl Iterator<Item = &'u LimitUse>) -> Self {
        let mut costs = Self::default();
        for LimitUse { limit, cost } in uses {
            costs
                .0
                .entry(limit.name.clone())
                .or_default()
                .add(cost.as_ref());
        }
        costs
    }

    /// Whether both say the same of the limit called `name`.
    pub fn agrees(&self, other: &Self, name: &str) -> bool {
        self.0.get(name) == other.0.get(name)
    }

    fn with(&self, LimitUse { limit, cost }: &LimitUse) -> LargestCost {
        let mut largest = self.0.get(&limit.name).copied().unwrap_or_default();
        largest.add(cost.as_ref());
        largest
    }

    /// The largest cost over all uses of a limit; of an unused limit, its own cost.
    fn of_limit(&self, name: &str) -> LargestCost {
        self.0.get(name).copied().unwrap_or(LargestCost {
            leaves_default: true,
            ..LargestCost::default()
        })
    }
}

impl LargestCost {
    fn add(&mut self, cost: Option<&Cost>) {
        match cost {
            Some(cost) => {
                self.stated = self.stated.max(cost.largest().get());
                self.settled |= cost.later().is_some();
            }
            None => self.leaves_default = true,
        }
    }

    /// The largest cost under a bucket of `burst` tokens, where a request takes `default_cost`
    /// unless its route sets a cost.
    fn tokens(self, default_cost: &Cost, burst: NonZeroU64) -> u64 {
        let largest = if self.leaves_default {
            self.stated.max(default_cost.largest().get())
        } else {
            self.stated
        };
        largest.min(burst.get())
    }
}

impl CompiledLimit {
    /// Compiles a limit as one route uses it: `costs` are over all uses.
    pub fn for_use(
        limit_use: &LimitUse,
        costs: &LargestCosts,
        plans: &PlanCaches,
    ) -> Result<Self, QuotaError> {
        Self::new(
            &limit_use.limit,
            limit_use.cost.clone(),
            costs.with(limit_use),
            plans,
        )
    }

    fn new(
        limit: &Arc<Limit>,
        own_cost: Option<Cost>,
        largest: LargestCost,
        plans: &PlanCaches,
    ) -> Result<Self, QuotaError> {
        let plans = match limit.plans.as_ref().map(|plans| &plans.source) {
            Some(PlanSource::Hash(hash)) => Some(plans.cache(&hash.name, limit.algorithm.kind())),
            Some(PlanSource::Table(_) | PlanSource::Assigned(_)) | None => None,
        };
        let counting = limit.algorithm.compile()?;
        let limit = limit.clone();
        // A cost that depends on the request is read off each; the rest is the same for all.
        let cost = NonZeroU64::MIN;
        let unit = QuotaUnit::Requests;
        let typical = Charge {
            counting,
            cost,
            scale: QuotaScale {
                typical_cost: cost,
                unit,
            },
            largest_cost: 1,
            later: None,
        };
        let compiled = Self {
            limit,
            counting,
            typical,
            own_cost,
            largest,
            plans,
        };
        Ok(Self {
            typical: compiled.charge_by(None, Cost::typical),
            ..compiled
        })
    }

    /// Compiles a limit for a look at its buckets, whatever the use: `costs` are over all uses.
    pub fn for_any_use(
        limit: &Arc<Limit>,
        costs: &LargestCosts,
        plans: &PlanCaches,
    ) -> Result<Self, QuotaError> {
        Self::new(limit, None, costs.of_limit(&limit.name), plans)
    }

    /// The request's plan as far as it is known, and the query that has to be made for it.
    pub fn plan(&self, facts: &Facts<'_>) -> (Option<Cow<'_, Plan>>, Option<PlanQuery>) {
        let Some(plans) = &self.limit.plans else {
            return (None, None);
        };
        match (&plans.source, &self.plans) {
            (PlanSource::Table(table), _) => (
                plans
                    .by
                    .with_value(facts, |value| table.get(value))
                    .flatten()
                    .map(Cow::Borrowed),
                None,
            ),
            (PlanSource::Assigned(assigned), _) => (
                plans
                    .by
                    .with_value(facts, |value| assigned.find(value))
                    .flatten()
                    .map(Cow::Borrowed),
                None,
            ),
            (PlanSource::Hash(hash), Some(cache)) => {
                plans.by.field(facts).map_or((None, None), |field| {
                    let (plan, lookup) = cache.find(field, hash.cache, clock::monotonic_micros());
                    (plan.map(Cow::Owned), lookup)
                })
            }
            (PlanSource::Hash(_), None) => (None, None),
        }
    }

    /// The origin of the request's plan, or the place where one would be. `None`: the limit has no
    /// plans, or the request does not say which.
    pub fn origin(&self, facts: &Facts<'_>) -> Option<PlanOrigin> {
        let plans = self.limit.plans.as_ref()?;
        match &self.plans {
            None => plans.by.with_value(facts, |_| PlanOrigin::File),
            Some(cache) => {
                let reading = cache.reading(&plans.by.field(facts)?, clock::monotonic_micros());
                Some(PlanOrigin::Hash {
                    hash: cache.hash().clone(),
                    reading,
                })
            }
        }
    }

    /// The counting for clients without a plan, and how they are told of it.
    pub fn typical(&self) -> (CompiledAlgorithm, QuotaScale) {
        (self.counting, scale(self.cost(), self.counting))
    }

    /// Whether a part of a charge may come back to the bucket, on whatever route: some cost is told
    /// by the response.
    pub fn may_be_refunded(&self) -> bool {
        self.largest.settled
            || (self.largest.leaves_default
                && self.limit.costs().any(|cost| cost.later().is_some()))
    }

    /// The cost of requests of clients without a plan.
    fn cost(&self) -> &Cost {
        self.own_cost.as_ref().unwrap_or(&self.limit.cost)
    }

    /// The charge of a request, by its plan if it has one.
    pub fn charge(&self, plan: Option<&Plan>, facts: &Facts<'_>) -> Charge {
        match (plan, self.cost()) {
            // The cost is the same for each request.
            (None, Cost::Fixed(_) | Cost::Response(_)) => self.typical.clone(),
            _ => self.charge_by(plan, |cost, burst| cost.tokens(facts, burst)),
        }
    }

    /// The charge of a request that is no longer at hand, by the plan that was read for it
    /// meanwhile. Such a plan's own cost is fixed, so a cost that depends on the request is the
    /// [stated one](Self::stated_cost).
    pub fn late_charge(&self, plan: Option<&Plan>, stated_cost: NonZeroU64) -> Charge {
        self.charge_by(plan, |cost, burst| match cost {
            Cost::Fixed(cost) => *cost,
            Cost::Header { .. } | Cost::Body { .. } | Cost::Response(_) => stated_cost.min(burst),
        })
    }

    /// The charge by this plan, where `read` gives a request's cost out of a bucket of that size.
    /// By a plan that was not known when the file was checked, a request takes a full bucket at
    /// most: no plan locks its client out.
    fn charge_by(
        &self,
        plan: Option<&Plan>,
        read: impl FnOnce(&Cost, NonZeroU64) -> NonZeroU64,
    ) -> Charge {
        let counting = plan.map_or(self.counting, Plan::compiled);
        if plan.is_some_and(Plan::is_closed) {
            return Charge::unpayable(counting);
        }
        let burst = burst(counting);
        let default_cost = plan.and_then(Plan::cost).unwrap_or(&self.limit.cost);
        let cost = self.own_cost.as_ref().unwrap_or(default_cost);
        let most = if self.plans.is_some() {
            burst
        } else {
            Cost::UNBOUNDED
        };
        let largest_cost = self.largest.tokens(default_cost, burst);
        // Permits come back by themselves, when the response has ended.
        let later = cost
            .later()
            .filter(|_| matches!(counting, CompiledAlgorithm::Tokens(_)))
            .cloned();
        let scale = scale(cost, counting);
        let scale = QuotaScale {
            typical_cost: scale.typical_cost.min(most),
            ..scale
        };
        let cost = read(cost, burst).min(most);
        let counting = match (counting, self.limit.consistency) {
            (CompiledAlgorithm::Tokens(quota), Consistency::Leased) => {
                CompiledAlgorithm::Tokens(quota.leased(largest_cost))
            }
            (counting, _) => counting,
        };
        Charge {
            counting,
            cost,
            scale,
            largest_cost,
            later,
        }
    }

    /// The cost that a request states, whatever its plan: see [`Self::late_charge`].
    pub fn stated_cost(&self, facts: &Facts<'_>) -> NonZeroU64 {
        self.cost().tokens(facts, Cost::UNBOUNDED)
    }
}

impl Charge {
    /// A charge that never fits: one token more than there are.
    fn unpayable(counting: CompiledAlgorithm) -> Self {
        let cost = burst(counting).saturating_add(1);
        Self {
            counting,
            cost,
            scale: QuotaScale {
                typical_cost: cost,
                unit: QuotaUnit::Requests,
            },
            largest_cost: 1,
            later: None,
        }
    }
}

/// How a client is told of what requests of this cost leave. Permits are requests in flight,
/// whatever they take.
fn scale(cost: &Cost, counting: CompiledAlgorithm) -> QuotaScale {
    let unit = match counting {
        CompiledAlgorithm::Tokens(_) => QuotaUnit::for_cost(cost),
        CompiledAlgorithm::Permits(_) => QuotaUnit::Requests,
    };
    QuotaScale {
        typical_cost: cost.typical(burst(counting)),
        unit,
    }
}

/// Tokens in a full bucket, or permits in all.
pub(crate) fn burst(counting: CompiledAlgorithm) -> NonZeroU64 {
    NonZeroU64::new(counting.burst()).unwrap_or(NonZeroU64::MIN)
}
