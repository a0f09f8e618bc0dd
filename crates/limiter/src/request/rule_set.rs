//! The limits that guard one route: from a request to what to ask the limiter, and from its verdict to an answer.
//!
//! Guarantees that every decision is counted and told, once. Knows nothing of stores or of HTTP servers, and waits for
//! nothing: where a request may wait, it says so.

use std::num::NonZeroU64;

use http::HeaderValue;
use smallvec::SmallVec;

use crate::algorithm::level::Level;
use crate::decide::decision::{DecidedBy, Decision};
use crate::decide::limiter::Limiter;
use crate::decide::plans::cache::{Lookup, PlanCaches};
use crate::decide::settlement::Reservation;
use crate::limit::algorithm_kind::QuotaError;
use crate::limit::key::{Extracted, Facts, Key};
use crate::limit::spec::{Degrade, LimitUse, OnLimit, Queueing};
use crate::node::permits::ConcurrencyPermit;
use crate::request::denial::Denial;
use crate::request::explanation::{AppliedLimit, LimitsExplanation, lacking};
use crate::request::headers::{self, RateLimitFields};
use crate::request::metrics::CountedAs;
use crate::request::permit::{Later, Permit};
pub use crate::request::rule::LargestCosts;
use crate::request::rule::{Charge, Rule, seconds_up, standing};
use crate::request::shadow::Shadows;
use crate::store::Ask;

/// The limits of one route, prepared.
#[derive(Debug)]
pub struct RuleSet {
    rules: Vec<Rule>,
    /// `RateLimit-Policy` when all that act apply and the client has no plan, which is nearly always.
    policy: Option<HeaderValue>,
    /// How many those are.
    acting: usize,
    /// Whether a denial may be anything but a refusal.
    lenient: bool,
    legacy_headers: bool,
}

/// What a request asks of the limiter.
#[derive(Debug, Default)]
pub struct PendingRequest {
    /// One for each limit that has a say in the request.
    pub asks: SmallVec<[Ask; 2]>,
    /// For each of them, whose it is.
    owners: SmallVec<[Owner; 2]>,
    /// Limits that denied the request and let it pass to something cheaper, and what was left of them.
    yielded: Vec<(Owner, Ask, Level)>,
    shadows: Shadows,
    wanted: Vec<Wanted>,
}

/// A plan that is not known, or not anew.
#[derive(Debug)]
pub struct Wanted {
    pub(crate) lookup: Lookup,
    /// The ask that goes by it, and what the request says of its cost. `None`: no decision waits for it.
    pub(crate) place: Option<(usize, NonZeroU64)>,
}

/// Whose ask it is.
#[derive(Clone, Debug)]
struct Owner {
    rule: usize,
    usual_cost: NonZeroU64,
    planned: bool,
    later: Option<Later>,
}

/// What a verdict leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It stands: [`RuleSet::judge`] it.
    Judge,
    /// Limits that degrade have dropped out: ask again for the others, which the request must keep to all the same.
    AskAgain,
    /// The request may wait in the line that [`RuleSet::line`] knows by this number.
    Wait(usize),
}

/// Where a request waits.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    pub limit: &'a str,
    pub key: &'a Key,
    pub bounds: Queueing,
    /// How long the bucket takes to yield one such request.
    pub charge_us: u64,
}

/// What became of a request.
#[derive(Debug)]
pub struct Judged {
    pub fields: RateLimitFields,
    /// Why it is denied, if it is.
    pub denied: Option<Denial>,
    /// What it gets instead of what it asked for.
    pub degraded: Option<Degrade>,
    /// What it took more or less of than it may need: to be held, with what watches.
    pub reserved: Reserved,
}

/// What a request's limits reserved for it, and those that watch it.
#[derive(Debug, Default)]
#[must_use = "what is not held is not settled, and what does not watch is not counted"]
pub struct Reserved {
    list: Vec<(Later, Reservation)>,
    slots: Vec<ConcurrencyPermit>,
    shadows: Shadows,
}

impl RuleSet {
    /// Prepares `uses`, each limit once: a later use of the same limit replaces an earlier one. Plans in the shared store
    /// are known as `plans` has them.
    pub fn new<'u>(
        uses: impl Iterator<Item = &'u LimitUse>,
        costs: &LargestCosts,
        plans: &PlanCaches,
        legacy_headers: bool,
    ) -> Result<Self, QuotaError> {
        let mut rules: Vec<Rule> = Vec::new();
        for limit_use in uses {
            rules.retain(|rule| *rule.name() != limit_use.limit.name);
            rules.push(Rule::new(limit_use, costs, plans)?);
        }
        let acting = || rules.iter().filter(|rule| rule.acts());
        let policy = headers::policy_value(acting().map(Rule::policy));
        let acting = acting().count();
        let lenient = rules.iter().any(Rule::is_lenient);
        Ok(Self { rules, policy, acting, lenient, legacy_headers })
    }

    /// Whether no limit guards the route.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a denied request may still wait, or pass to something cheaper: then [`Self::next`] tells.
    pub fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// Adds to `asking`, which is too large to be moved about, what this request asks of the limiter. Limits whose key is
    /// not in the request may be left out or refuse it. Where [`PendingRequest::take_wanted`] has something,
    /// [`crate::decide::limiter::Limiter::read_plans`] comes first.
    pub fn ask(&self, facts: &Facts<'_>, asking: &mut PendingRequest) -> Result<(), Denial> {
        for (index, rule) in self.rules.iter().enumerate() {
            if rule.limit().exempt.covers(facts) {
                rule.tally.count(CountedAs::Exempt, DecidedBy::Local);
                continue;
            }
            match rule.key(facts) {
                Extracted::Key(key) => asking.add(index, rule, key, facts),
                Extracted::Skip => {}
                Extracted::Refuse => {
                    return Err(Denial::KeyMissing {
                        limit: rule.name().clone(),
                        part: lacking(&rule.limit().key, facts).swap_remove(0),
                    });
                }
            }
        }
        Ok(())
    }

    /// Goes by the plans that were read for `asking` meanwhile, or by what is known where they were not.
    pub fn take_in(&self, asking: &mut PendingRequest, read: &[Wanted]) {
        for Wanted { lookup, place } in read {
            let Some((at, said)) = *place else { continue };
            let (Some(ask), Some(owner)) = (asking.asks.get_mut(at), asking.owners.get_mut(at)) else { continue };
            let plan = lookup.cache.plan(&lookup.field);
            let rule = &self.rules[owner.rule];
            let price = rule.terms.late_price(plan.as_ref(), said);
            (*ask, *owner) = rule_asks(owner.rule, rule, ask.key.clone(), price, plan.is_some());
        }
    }

    /// What every limit makes of a request, in order, and what its answer is told of them: to explain, not to decide.
    pub fn explain(&self, facts: &Facts<'_>) -> LimitsExplanation {
        let limits: Vec<AppliedLimit> = self.rules.iter().map(|rule| AppliedLimit::of(&rule.terms, facts)).collect();
        let acting = self.rules.iter().zip(&limits).filter(|(_, limit)| limit.acts());
        let policy = acting.map(|(rule, limit)| rule.policy_of(limit.quota, limit.usual_cost));
        LimitsExplanation { policy: headers::policy_value(policy), limits }
    }

    /// What a verdict on `asking` leads to. Takes limits that degrade out of it, once all that deny are such or can wait.
    pub fn next(&self, asking: &mut PendingRequest, verdict: &Decision) -> Next {
        if verdict.granted || !self.lenient {
            return Next::Judge;
        }
        let denying = || self.levels(asking, verdict).filter(|(.., level)| level.retry_after_us > 0);
        if denying().any(|(_, rule, _)| !rule.is_lenient()) {
            return Next::Judge;
        }
        let slowest = denying().filter(|(_, rule, _)| matches!(rule.limit().on_limit, OnLimit::Queue(_)));
        let slowest = slowest.max_by_key(|(.., level)| level.retry_after_us).map(|(at, ..)| at);
        if self.yield_to_something_cheaper(asking, verdict) {
            return Next::AskAgain;
        }
        slowest.map_or(Next::Judge, Next::Wait)
    }

    fn yield_to_something_cheaper(&self, asking: &mut PendingRequest, verdict: &Decision) -> bool {
        let before = asking.asks.len();
        for (at, level) in verdict.levels.iter().enumerate().take(before).rev() {
            if level.retry_after_us > 0 && self.rules[asking.owners[at].rule].degrades().is_some() {
                let (owner, ask) = (asking.owners.remove(at), asking.asks.remove(at));
                asking.yielded.insert(0, (owner, ask, *level));
            }
        }
        asking.asks.len() < before
    }

    /// The line before the limit of the ask at `at`, if there may be one.
    pub fn line<'a>(&'a self, asking: &'a PendingRequest, at: usize) -> Option<Line<'a>> {
        let (rule, ask) = (self.rules.get(asking.owners.get(at)?.rule)?, asking.asks.get(at)?);
        let OnLimit::Queue(bounds) = rule.limit().on_limit else { return None };
        let charge_us = ask.quota.pace_us(ask.cost);
        Some(Line { limit: rule.name(), key: &ask.key, bounds, charge_us })
    }

    /// The verdict on a request that finds the line at `at` too long: denied by that limit, whose place in `asking` is all
    /// that is left of it, since no other was asked.
    pub fn turn_away(&self, asking: &mut PendingRequest, at: usize, retry_after_us: u64) -> Decision {
        asking.owners = asking.owners.get(at).cloned().into_iter().collect();
        asking.asks = asking.asks.get(at).cloned().into_iter().collect();
        let retry_after_us = retry_after_us.max(1);
        let level = Level { remaining: 0, retry_after_us, reset_after_us: retry_after_us };
        Decision::new(DecidedBy::Local, false, 0, asking.asks.iter().map(|_| level).collect())
    }

    /// What the last verdict on `asking` means for the answer.
    pub fn judge(&self, asking: &mut PendingRequest, mut verdict: Decision) -> Judged {
        self.count(asking, &verdict);
        let denied = (!verdict.granted).then(|| self.denied(asking, &verdict));
        let first = asking.yielded.first().map(|(owner, ..)| &self.rules[owner.rule]);
        let degraded = first.filter(|_| verdict.granted).and_then(|rule| Some((rule, rule.degrades()?)));
        let mut fields = self.fields(asking, &verdict);
        if let Some((rule, _)) = degraded {
            fields.mark_degraded(rule.name());
        }
        let degraded = degraded.map(|(_, degrade)| degrade.clone());
        let reserved = if verdict.granted { Reserved::of(asking, &mut verdict) } else { Reserved::default() };
        Judged { fields, denied, degraded, reserved }
    }

    fn levels<'a>(
        &'a self,
        asking: &'a PendingRequest,
        verdict: &'a Decision,
    ) -> impl Iterator<Item = (usize, &'a Rule, &'a Level)> + Clone {
        let rules = asking.owners.iter().map(|owner| &self.rules[owner.rule]);
        rules.zip(&verdict.levels).enumerate().map(|(at, (rule, level))| (at, rule, level))
    }

    fn count(&self, asking: &PendingRequest, verdict: &Decision) {
        for (_, rule, level) in self.levels(asking, verdict) {
            match (verdict.granted, level.retry_after_us) {
                (true, _) => rule.tally.count(CountedAs::Allowed, verdict.decided_by),
                (false, 0) => {}
                (false, _) => rule.tally.count(CountedAs::Denied, verdict.decided_by),
            }
        }
        let yielded = if verdict.granted { CountedAs::Degraded } else { CountedAs::Denied };
        for (owner, ..) in &asking.yielded {
            self.rules[owner.rule].tally.count(yielded, verdict.decided_by);
        }
    }

    fn fields(&self, asking: &PendingRequest, verdict: &Decision) -> RateLimitFields {
        let judged = asking.owners.iter().zip(&asking.asks).zip(&verdict.levels);
        let judged = judged.map(|((owner, ask), level)| (owner, ask, level));
        let judged = judged.filter(|(.., level)| verdict.knows(level));
        let yielded = asking.yielded.iter().map(|(owner, ask, level)| (owner, ask, level));
        let told = judged.chain(yielded);
        let policy = if asking.owners.len() == self.acting && !asking.owners.iter().any(|owner| owner.planned) {
            self.policy.clone()
        } else {
            let item = |owner: &Owner, ask: &Ask| self.rules[owner.rule].policy_of(ask.quota, owner.usual_cost);
            headers::policy_value(told.clone().map(|(owner, ask, _)| item(owner, ask)))
        };
        let standings = told.map(|(owner, ask, level)| {
            (&**self.rules[owner.rule].name(), standing(ask.quota, owner.usual_cost, level))
        });
        RateLimitFields::render(policy, standings, self.legacy_headers)
    }

    fn denied(&self, asking: &PendingRequest, verdict: &Decision) -> Denial {
        let denying = || self.levels(asking, verdict).filter(|(.., level)| level.retry_after_us > 0);
        let retry_after_us = denying().map(|(.., level)| level.retry_after_us).max().unwrap_or_default();
        let retry_after_secs = seconds_up(retry_after_us).max(1);
        match denying().next().map(|(_, rule, _)| &rule.limit().on_limit) {
            Some(OnLimit::Answer(answer)) => Denial::FixedAnswer { answer: answer.clone(), retry_after_secs },
            _ => {
                let violated = denying().map(|(_, rule, _)| rule.name().clone()).collect();
                Denial::QuotaExceeded { violated, retry_after_secs }
            }
        }
    }
}

impl Wanted {
    pub(crate) fn is_awaited(&self) -> bool {
        self.place.is_some() && self.lookup.cache.is_readable()
    }
}

impl Reserved {
    fn of(asking: &mut PendingRequest, verdict: &mut Decision) -> Self {
        let mut list = Vec::new();
        for (owner, ask) in asking.owners.iter_mut().zip(&asking.asks) {
            if let Some(later) = owner.later.take() {
                list.push((later, Reservation::of(ask.clone(), verdict)));
            }
        }
        Self { list, slots: std::mem::take(&mut verdict.slots), shadows: std::mem::take(&mut asking.shadows) }
    }

    /// Holds what is reserved until the response is told, and lets those watch that only watch.
    pub fn hold(self, limiter: &Limiter) -> Permit {
        let mut holding = Permit::default();
        // Nearly always.
        if self.list.is_empty() && self.slots.is_empty() && self.shadows.is_empty() {
            return holding;
        }
        for (later, reservation) in self.list {
            holding.reserve(later, reservation, limiter);
        }
        holding.stay_in(self.slots);
        self.shadows.watch(limiter, &mut holding);
        holding
    }
}

impl PendingRequest {
    /// Whether [`Self::take_wanted`] has something.
    pub fn lacks_plans(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// The plans to read first. Empty nearly always.
    pub fn take_wanted(&mut self) -> Vec<Wanted> {
        std::mem::take(&mut self.wanted)
    }

    /// No request waits for a limit that only counts, nor for its plan.
    fn add(&mut self, index: usize, rule: &Rule, key: Key, facts: &Facts<'_>) {
        let (plan, lookup) = rule.terms.plan(facts);
        let price = rule.terms.price(plan.as_deref(), facts);
        let (ask, owner) = rule_asks(index, rule, key, price, plan.is_some());
        let acts = rule.limit().enforced.takes(ask.key.as_bytes());
        if let Some(lookup) = lookup {
            let place = (acts && lookup.urgent).then(|| (self.asks.len(), rule.terms.said_cost(facts)));
            self.wanted.push(Wanted { lookup, place });
        }
        if acts {
            self.asks.push(ask);
            self.owners.push(owner);
        } else {
            self.shadows.add(ask, rule.tally.clone(), owner.later);
        }
    }
}

/// What a request with this key asks of a rule at this price, and whose ask that is.
fn rule_asks(index: usize, rule: &Rule, key: Key, price: Charge, planned: bool) -> (Ask, Owner) {
    let Charge { quota, cost, usual_cost, largest_cost, later } = price;
    let (on_outage, settled_later) = (rule.limit().on_outage, later.is_some());
    let ask = Ask { key, quota, cost: cost.get(), largest_cost, on_outage, settled_later };
    (ask, Owner { rule: index, usual_cost, planned, later: rule.later(later) })
}

#[cfg(test)]
mod tests;
