//! A request before its decision: one check for each limit that is enforced on it.

use std::num::NonZeroU64;

use smallvec::SmallVec;

use crate::algorithm::level::Level;
use crate::decide::check::{CheckPolicy, Checks, PermitCheck};
use crate::decide::decision::{DecidedBy, Decision};
use crate::decide::plans::cache::PlanQuery;
use crate::limit::algorithm::CompiledAlgorithm;
use crate::limit::cost::quota_unit::QuotaScale;
use crate::limit::key::{Facts, Key};
use crate::node::permits::PermitNeed;
use crate::request::answer::denial::Denial;
use crate::request::compiled_limit::Charge;
use crate::request::response::permit::LaterCost;
use crate::request::rule::Rule;
use crate::request::shadow::Shadows;
use crate::store::BucketCharge;

/// A request before its decision.
#[derive(Debug, Default)]
pub struct PendingRequest {
    pub checks: Checks,
    /// The owner of each check, in the order of the rules.
    pub(crate) owners: SmallVec<[Owner; 2]>,
    /// Limits that denied the request and let it pass degraded, and their levels.
    pub(crate) degraded: Vec<DegradedCheck>,
    pub(crate) shadows: Shadows,
    plan_lookups: Vec<PlanLookup>,
    /// Why the request is refused although no limit denies it. The limits count it all the same, or
    /// such requests would be free.
    pub(crate) refusal: Option<Box<Denial>>,
}

/// The rule that a check belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub rule: usize,
    pub check: CheckIndex,
    pub scale: QuotaScale,
    pub planned: bool,
    pub later: Option<LaterCost>,
}

/// The place of a check in [`Checks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckIndex {
    Tokens(usize),
    Permit(usize),
}

/// A limit that degraded the request.
#[derive(Debug)]
pub(crate) struct DegradedCheck {
    pub owner: Owner,
    pub counting: CompiledAlgorithm,
    pub level: Level,
    pub decided_by: DecidedBy,
}

/// A plan that has to be read.
#[derive(Debug)]
pub struct PlanLookup {
    pub(crate) query: PlanQuery,
    /// The owner of the check that the plan is for, and the cost that the request states. `None`:
    /// no decision waits for it.
    pub(crate) awaited_by: Option<(usize, NonZeroU64)>,
}

/// A check that is not part of a request yet.
pub(crate) enum NewCheck {
    Tokens(BucketCharge, CheckPolicy),
    Permit(PermitCheck),
}

impl PlanLookup {
    pub(crate) fn query(&self) -> &PlanQuery {
        &self.query
    }
}

impl NewCheck {
    /// The check of a request with this key at this charge, how its client is told of it, and its
    /// later settlement.
    pub fn new(rule: &Rule, key: Key, charge: Charge) -> (Self, QuotaScale, Option<LaterCost>) {
        let Charge {
            counting,
            cost,
            scale,
            largest_cost,
            later,
        } = charge;
        let cost = cost.get();
        let on_outage = rule.limit().on_outage;
        let later = rule.later(later);
        let check = match counting {
            CompiledAlgorithm::Tokens(quota) => {
                let policy = CheckPolicy { on_outage };
                Self::Tokens(
                    BucketCharge {
                        key,
                        quota,
                        cost,
                        largest_cost,
                        local_us: on_outage.local_us(),
                    },
                    policy,
                )
            }
            CompiledAlgorithm::Permits(limit) => Self::Permit(PermitCheck {
                need: PermitNeed { key, limit, cost },
                largest_cost,
                on_outage,
            }),
        };
        (check, scale, later)
    }

    fn key(&self) -> &Key {
        match self {
            Self::Tokens(charge, _) => &charge.key,
            Self::Permit(check) => &check.need.key,
        }
    }

    /// This check alone.
    pub fn alone(self) -> Checks {
        let mut checks = Checks::default();
        match self {
            Self::Tokens(charge, policy) => checks.tokens.push(charge, policy),
            Self::Permit(check) => checks.permits.push(check),
        }
        checks
    }
}

impl PendingRequest {
    /// Adds the check of a request with this key by the rule at `index`. No request waits for a
    /// limit that only counts, nor for its plan.
    pub(crate) fn add(&mut self, index: usize, rule: &Rule, key: Key, facts: &Facts<'_>) {
        let (plan, query) = rule.compiled.plan(facts);
        let charge = rule.compiled.charge(plan.as_deref(), facts);
        let (check, scale, later) = NewCheck::new(rule, key, charge);
        let acts = rule.limit().rollout.takes(check.key().as_bytes());
        if let Some(mut query) = query {
            query.urgent &= acts;
            let awaited_by = query
                .urgent
                .then(|| (self.owners.len(), rule.compiled.stated_cost(facts)));
            self.plan_lookups.push(PlanLookup { query, awaited_by });
        }
        if !acts {
            self.shadows.add(check.alone(), rule, later);
            return;
        }
        let place = match check {
            NewCheck::Tokens(charge, policy) => {
                self.checks.tokens.push(charge, policy);
                CheckIndex::Tokens(self.checks.tokens.len() - 1)
            }
            NewCheck::Permit(check) => {
                self.checks.permits.push(check);
                CheckIndex::Permit(self.checks.permits.len() - 1)
            }
        };
        self.owners.push(Owner {
            rule: index,
            check: place,
            scale,
            planned: plan.is_some(),
            later,
        });
    }

    /// Notes that the request is refused. The first limit that refuses it says why.
    pub(crate) fn refuse(&mut self, denial: impl FnOnce() -> Denial) {
        self.refusal.get_or_insert_with(|| Box::new(denial()));
    }

    /// Replaces the check of `owner` by the one for a plan that was read: a plan has its limit's
    /// algorithm.
    pub(crate) fn replace(&mut self, owner: usize, check: NewCheck) {
        let Some(owner) = self.owners.get(owner) else {
            return;
        };
        match (owner.check, check) {
            (CheckIndex::Tokens(at), NewCheck::Tokens(charge, policy)) => {
                self.checks.tokens.replace(at, charge, policy)
            }
            (CheckIndex::Permit(at), NewCheck::Permit(check)) => {
                if let Some(known) = self.checks.permits.get_mut(at) {
                    *known = check;
                }
            }
            _ => {}
        }
    }

    /// Whether [`Self::take_lookups`] has something.
    #[inline]
    pub fn lacks_plans(&self) -> bool {
        !self.plan_lookups.is_empty()
    }

    /// The plans to read first. Empty nearly always.
    pub fn take_lookups(&mut self) -> Vec<PlanLookup> {
        std::mem::take(&mut self.plan_lookups)
    }

    #[inline]
    pub(crate) fn counting(&self, check: CheckIndex) -> Option<CompiledAlgorithm> {
        match check {
            CheckIndex::Tokens(at) => self
                .checks
                .tokens
                .charges()
                .get(at)
                .map(|charge| CompiledAlgorithm::Tokens(charge.quota)),
            CheckIndex::Permit(at) => self
                .checks
                .permits
                .get(at)
                .map(|check| CompiledAlgorithm::Permits(check.need.limit)),
        }
    }

    pub(crate) fn key(&self, check: CheckIndex) -> Option<&Key> {
        match check {
            CheckIndex::Tokens(at) => self
                .checks
                .tokens
                .charges()
                .get(at)
                .map(|charge| &charge.key),
            CheckIndex::Permit(at) => self.checks.permits.get(at).map(|check| &check.need.key),
        }
    }

    /// The tokens that a check takes. None of permits.
    pub(crate) fn cost(&self, check: CheckIndex) -> u64 {
        let CheckIndex::Tokens(at) = check else {
            return 0;
        };
        self.checks
            .tokens
            .charges()
            .get(at)
            .map_or(0, |charge| charge.cost)
    }

    /// Microseconds in which the bucket of a check yields one such request. When a permit comes
    /// back is not known.
    pub(crate) fn pace_us(&self, check: CheckIndex) -> u64 {
        let CheckIndex::Tokens(at) = check else {
            return 0;
        };
        self.checks
            .tokens
            .charges()
            .get(at)
            .map_or(0, |charge| charge.quota.pace_us(charge.cost))
    }

    /// Removes an owner and its check.
    pub(crate) fn remove(&mut self, owner: usize) -> (Owner, Option<CompiledAlgorithm>) {
        let removed = self.owners.remove(owner);
        let counting = self.counting(removed.check);
        match removed.check {
            CheckIndex::Tokens(at) => {
                self.checks.tokens.remove(at);
            }
            CheckIndex::Permit(at) => {
                self.checks.permits.remove(at);
            }
        }
        for owner in &mut self.owners {
            match (&mut owner.check, removed.check) {
                (CheckIndex::Tokens(at), CheckIndex::Tokens(gone))
                | (CheckIndex::Permit(at), CheckIndex::Permit(gone))
                    if *at > gone =>
                {
                    *at -= 1;
                }
                _ => {}
            }
        }
        (removed, counting)
    }

    /// Keeps only the check of one owner.
    pub(crate) fn keep_only(&mut self, owner: usize) {
        for at in (0..self.owners.len()).rev().filter(|at| *at != owner) {
            self.remove(at);
        }
    }
}

impl Decision {
    /// The level of a check.
    #[inline]
    pub(crate) fn level(&self, check: CheckIndex) -> Option<&Level> {
        match check {
            CheckIndex::Tokens(at) => self.levels.get(at),
            CheckIndex::Permit(at) => self.permit_levels.get(at),
        }
    }

    /// The maker of the decision on a check.
    #[inline]
    pub(crate) fn decider(&self, check: CheckIndex) -> DecidedBy {
        match check {
            CheckIndex::Tokens(at) => self.source(at).decided_by,
            CheckIndex::Permit(at) => self.permit_decided_by(at),
        }
    }
}
