//! The limits of one route: from a request to the checks for the limiter, and from its decision to
//! an answer.
//!
//! Guarantees that each decision is counted once and shown once. Waits for nothing: where a request
//! may wait, the result says so.

use std::sync::Arc;

use http::HeaderValue;

use crate::algorithm::level::Level;
use crate::decide::decision::{DecidedBy, Decision};
use crate::decide::limiter::Limiter;
use crate::decide::settlement::Reservation;
use crate::limit::algorithm::QuotaError;
use crate::limit::definition::LimitUse;
use crate::limit::key::{ExtractedKey, Facts};
use crate::limit::on_limit::{Degrade, OnLimit};
use crate::node::permits::ConcurrencyPermit;
use crate::request::answer::denial::Denial;
use crate::request::answer::headers::{self, RateLimitFields};
use crate::request::compiled_limit::LargestCosts;
use crate::request::metrics::CountedAs;
use crate::request::operator::explanation::{AppliedLimit, LimitsExplanation, lacking};
use crate::request::pending::{
    CheckIndex, DegradedCheck, NewCheck, Owner, PendingRequest, PlanLookup,
};
use crate::request::queue::{Queue, WaitingFor};
use crate::request::response::permit::{LaterCost, Permit};
use crate::request::rule::{LimitStates, Rule, seconds_up, standing};
use crate::request::shadow::Shadows;

/// The limits of one route, prepared.
#[derive(Debug)]
pub struct RuleSet {
    rules: Vec<Rule>,
    /// `RateLimit-Policy` when all enforced limits apply and the client has no plan, which is
    /// nearly always. Like all fields, it has the limits that clients are told of.
    policy: Option<HeaderValue>,
    /// Whether that changes with the calendar.
    has_calendar: bool,
    /// The number of those limits.
    acting: usize,
    /// Whether a denied request may wait or be degraded, rather than be refused.
    lenient: bool,
    legacy_headers: bool,
}

/// The step after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The decision stands: [`RuleSet::judge`] it.
    Judge,
    /// Limits that degrade were taken out: ask again for the others, which count for the request
    /// all the same.
    AskAgain,
    /// The request may wait in the queue of this owner's limit.
    Wait(usize),
}

/// The result of a request's limits.
#[derive(Debug)]
pub struct Judgement {
    pub fields: RateLimitFields,
    /// The denial, if it is denied, or refused for what it lacks.
    pub denied: Option<Denial>,
    /// The cheaper thing that it gets, if it is degraded.
    pub degraded: Option<Degrade>,
    /// Reservations and permits, to be held until the response has ended, and limits that only
    /// count.
    pub reserved: Reserved,
}

/// The reservations and permits of a request, and its limits that only count.
#[derive(Debug, Default)]
#[must_use = "a reservation that is not held is not settled, and a shadow that is not started is not counted"]
pub struct Reserved(Option<Box<ReservedParts>>);

#[derive(Debug)]
struct ReservedParts {
    list: Vec<(LaterCost, Reservation)>,
    permits: Vec<ConcurrencyPermit>,
    shadows: Shadows,
}

impl RuleSet {
    /// Prepares `uses`, each limit once: a later use of the same limit replaces an earlier one.
    /// Plans that were read and requests that wait go on as `states` has them.
    ///
    /// # Errors
    /// When a limit's rate or burst is out of bounds.
    pub fn new<'u>(
        uses: impl Iterator<Item = &'u LimitUse>,
        costs: &LargestCosts,
        states: &LimitStates,
        legacy_headers: bool,
    ) -> Result<Self, QuotaError> {
        let mut rules: Vec<Rule> = Vec::new();
        for limit_use in uses {
            rules.retain(|rule| *rule.name() != limit_use.limit.name);
            rules.push(Rule::new(limit_use, costs, states)?);
        }
        let acting = rules.iter().filter(|rule| rule.acts());
        let shown = acting.clone().filter(|rule| !rule.limit().hidden);
        let has_calendar = shown.clone().any(Rule::has_calendar);
        let policy = headers::policy_value(shown.map(Rule::policy));
        let acting = acting.count();
        let lenient = rules.iter().any(Rule::is_lenient);
        Ok(Self {
            rules,
            policy,
            has_calendar,
            acting,
            lenient,
            legacy_headers,
        })
    }

    /// Whether no limit guards the route.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a denied request may still wait or be degraded, as [`Self::next`] decides.
    pub(crate) fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// Adds the checks of this request to `pending`, which is too large to be moved about. A limit
    /// whose key is not in the request is left out, or refuses it. Where
    /// [`PendingRequest::take_lookups`] has something, [`Limiter::read_plans`] comes first.
    pub fn ask(&self, facts: &Facts<'_>, pending: &mut PendingRequest) {
        for (index, rule) in self.rules.iter().enumerate() {
            if rule.limit().exemption.applies_to(facts) {
                rule.metrics.count(CountedAs::Exempt, DecidedBy::Local);
                continue;
            }
            if facts.client_ip.is_none() && rule.refuses_without_client_ip() {
                pending.refuse(|| Denial::NoClientAddress {
                    limit: rule.name().clone(),
                    hidden: rule.limit().hidden,
                });
                continue;
            }
            match rule.key(facts) {
                ExtractedKey::Key(key) => pending.add(index, rule, key, facts),
                ExtractedKey::Skip => {}
                ExtractedKey::Refuse => pending.refuse(|| {
                    let missing = lacking(&rule.limit().key, facts);
                    Denial::KeyMissing {
                        limit: rule.name().clone(),
                        part: missing.into_iter().next().unwrap_or_default(),
                        hidden: rule.limit().hidden,
                    }
                }),
            }
        }
    }

    /// Charges `pending` by the plans that were read for it meanwhile, or by those that are known
    /// where the read failed.
    pub(crate) fn adopt_plans(&self, pending: &mut PendingRequest, lookups: &[PlanLookup]) {
        for PlanLookup { query, awaited_by } in lookups {
            let Some((at, stated_cost)) = *awaited_by else {
                continue;
            };
            let Some(owner) = pending.owners.get(at) else {
                continue;
            };
            let (index, Some(key)) = (owner.rule, pending.key(owner.check).cloned()) else {
                continue;
            };
            let plan = query.cache.plan(&query.field);
            let rule = &self.rules[index];
            let charge = rule.compiled.late_charge(plan.as_ref(), stated_cost);
            let (check, scale, later) = NewCheck::new(rule, key, charge);
            pending.replace(at, check);
            if let Some(owner) = pending.owners.get_mut(at) {
                (owner.scale, owner.planned, owner.later) = (scale, plan.is_some(), later);
            }
        }
    }

    /// Explains the limits on a request, in order, and the policy field of its answer. Nothing is
    /// decided.
    pub fn explain(&self, facts: &Facts<'_>) -> LimitsExplanation {
        let limits: Vec<AppliedLimit> = self
            .rules
            .iter()
            .map(|rule| AppliedLimit::new(&rule.compiled, facts))
            .collect();
        let shown = self
            .rules
            .iter()
            .zip(&limits)
            .filter(|(_, limit)| limit.acts() && !limit.limit.hidden);
        let policy = shown.map(|(rule, limit)| rule.policy_of(limit.counting, limit.scale));
        LimitsExplanation {
            policy: headers::policy_value(policy),
            limits,
        }
    }

    /// The step after a decision on `pending`. Takes limits that degrade out of it, once each
    /// denying limit degrades or can wait.
    pub(crate) fn next(&self, pending: &mut PendingRequest, decision: &Decision) -> Next {
        if decision.granted || !self.lenient {
            return Next::Judge;
        }
        let mut longest_us = 0;
        let mut next = Next::Judge;
        for (at, rule, level) in self.denying(pending, decision) {
            if !rule.is_lenient() {
                return Next::Judge;
            }
            if rule.queue.is_some() && level.retry_after_us >= longest_us {
                longest_us = level.retry_after_us;
                next = Next::Wait(at);
            }
        }
        if self.drop_degrading(pending, decision) {
            Next::AskAgain
        } else {
            next
        }
    }

    /// Takes out the denying limits that degrade. `true`: there was one.
    fn drop_degrading(&self, pending: &mut PendingRequest, decision: &Decision) -> bool {
        let before = pending.owners.len();
        let levels: Vec<Level> = pending
            .owners
            .iter()
            .map(|owner| level(decision, owner))
            .collect();
        for (at, level) in levels.into_iter().enumerate().rev() {
            if level.retry_after_us > 0 && self.rules[pending.owners[at].rule].degrades().is_some()
            {
                let check = pending.owners[at].check;
                let decided_by = decision.decider(check);
                self.rules[pending.owners[at].rule].watch_denial(pending.key(check));
                let (owner, counting) = pending.remove(at);
                if let Some(counting) = counting {
                    pending.degraded.insert(
                        0,
                        DegradedCheck {
                            owner,
                            counting,
                            level,
                            decided_by,
                        },
                    );
                }
            }
        }
        pending.owners.len() < before
    }

    /// The queue in which the owner's check may wait, if its limit has one.
    pub(crate) fn queue<'a>(
        &'a self,
        pending: &'a PendingRequest,
        owner: usize,
    ) -> Option<(&'a Arc<Queue>, WaitingFor<'a>)> {
        let owner = pending.owners.get(owner)?;
        let rule = self.rules.get(owner.rule)?;
        let OnLimit::Queue(bounds) = rule.limit().on_limit else {
            return None;
        };
        let key = pending.key(owner.check)?;
        let charge_us = pending.pace_us(owner.check);
        let waiting_for = WaitingFor {
            key,
            bounds,
            charge_us,
            refunded: rule.compiled.may_be_refunded(),
        };
        Some((rule.queue.as_ref()?, waiting_for))
    }

    /// The decision on a request whose queue is too long: denied by the owner's limit, whose check
    /// is all that is left of the request, since no other limit was asked.
    pub(crate) fn turn_away(
        &self,
        pending: &mut PendingRequest,
        owner: usize,
        retry_after_us: u64,
    ) -> Decision {
        pending.keep_only(owner);
        let retry_after_us = retry_after_us.max(1);
        let level = Level {
            remaining: 0,
            retry_after_us,
            reset_after_us: retry_after_us,
        };
        let levels = pending.checks.tokens.iter().map(|_| level).collect();
        let permit_levels = vec![level; pending.checks.permits.len()];
        Decision {
            permit_levels,
            ..Decision::new(DecidedBy::Local, false, 0, levels)
        }
    }

    /// The answer that the last decision on `pending` leads to. Takes the permits out of the
    /// decision.
    pub fn judge(&self, pending: &mut PendingRequest, decision: &mut Decision) -> Judgement {
        self.count(pending, decision);
        let denied = if decision.granted {
            pending.refusal.take().map(|refusal| *refusal)
        } else {
            Some(self.denial(pending, decision))
        };
        let mut fields = self.fields(pending, decision);
        let mut degraded = None;
        if decision.granted
            && let Some(first) = pending.degraded.first()
        {
            let rule = &self.rules[first.owner.rule];
            degraded = rule.degrades().cloned();
            if degraded.is_some() && !rule.limit().hidden {
                fields.mark_degraded(rule.name());
            }
        }
        let reserved = if decision.granted {
            Reserved::take(pending, decision)
        } else {
            Reserved::default()
        };
        Judgement {
            fields,
            denied,
            degraded,
            reserved,
        }
    }

    fn levels<'a>(
        &'a self,
        pending: &'a PendingRequest,
        decision: &'a Decision,
    ) -> impl Iterator<Item = (usize, &'a Rule, &'a Level)> + Clone {
        let owners = pending.owners.iter().enumerate();
        owners.filter_map(|(at, owner)| {
            Some((at, &self.rules[owner.rule], decision.level(owner.check)?))
        })
    }

    fn count(&self, pending: &PendingRequest, decision: &Decision) {
        for (at, rule, level) in self.levels(pending, decision) {
            let counted = match (decision.granted, level.retry_after_us) {
                (true, _) => CountedAs::Allowed,
                (false, 0) => continue,
                (false, _) => {
                    rule.watch_denial(pending.key(pending.owners[at].check));
                    CountedAs::Denied
                }
            };
            rule.metrics
                .count(counted, decision.decider(pending.owners[at].check));
        }
        let degraded = if decision.granted {
            CountedAs::Degraded
        } else {
            CountedAs::Denied
        };
        for DegradedCheck {
            owner, decided_by, ..
        } in &pending.degraded
        {
            self.rules[owner.rule].metrics.count(degraded, *decided_by);
        }
    }

    fn fields(&self, pending: &PendingRequest, decision: &Decision) -> RateLimitFields {
        let judged = pending.owners.iter().filter_map(|owner| {
            Some((
                owner,
                pending.counting(owner.check)?,
                decision.level(owner.check)?,
            ))
        });
        let judged = judged.filter(|(.., level)| decision.knows(level));
        let degraded = pending
            .degraded
            .iter()
            .map(|degraded| (&degraded.owner, degraded.counting, &degraded.level));
        let shown = judged
            .chain(degraded)
            .filter(|(owner, ..)| !self.rules[owner.rule].limit().hidden);
        let policy = if pending.owners.len() == self.acting
            && !self.has_calendar
            && !pending.owners.iter().any(|owner| owner.planned)
        {
            self.policy.clone()
        } else {
            headers::policy_value(shown.clone().map(|(owner, counting, _)| {
                self.rules[owner.rule].policy_of(counting, owner.scale)
            }))
        };
        let standings = shown.map(|(owner, counting, level)| {
            let passed = decision.granted.then(|| pending.cost(owner.check));
            (
                &**self.rules[owner.rule].name(),
                standing(counting, owner.scale, level, passed),
            )
        });
        RateLimitFields::render(policy, standings, self.legacy_headers)
    }

    /// The levels of the limits that deny.
    fn denying<'a>(
        &'a self,
        pending: &'a PendingRequest,
        decision: &'a Decision,
    ) -> impl Iterator<Item = (usize, &'a Rule, &'a Level)> {
        self.levels(pending, decision)
            .filter(|(.., level)| level.retry_after_us > 0)
    }

    fn denial(&self, pending: &PendingRequest, decision: &Decision) -> Denial {
        let mut retry_after_us = 0;
        for (.., level) in self.denying(pending, decision) {
            retry_after_us = retry_after_us.max(level.retry_after_us);
        }
        let retry_after_secs = seconds_up(retry_after_us).max(1);
        if let Some((_, rule, _)) = self.denying(pending, decision).next()
            && let OnLimit::Answer(answer) = &rule.limit().on_limit
        {
            return Denial::FixedAnswer {
                limit: rule.name().clone(),
                answer: answer.clone(),
                retry_after_secs,
            };
        }
        Denial::QuotaExceeded {
            violated: self
                .denying(pending, decision)
                .map(|(_, rule, _)| (rule.name(), rule.limit().hidden))
                .collect(),
            retry_after_secs,
        }
    }
}

fn level(decision: &Decision, owner: &Owner) -> Level {
    decision.level(owner.check).copied().unwrap_or_default()
}

impl Reserved {
    fn take(pending: &mut PendingRequest, decision: &mut Decision) -> Self {
        let mut list = Vec::new();
        for owner in &mut pending.owners {
            let CheckIndex::Tokens(at) = owner.check else {
                continue;
            };
            if let Some(later) = owner.later.take()
                && let Some((charge, policy)) = pending.checks.tokens.iter().nth(at)
            {
                list.push((
                    later,
                    Reservation::new(charge.clone(), policy.on_outage, decision.source(at)),
                ));
            }
        }
        if list.is_empty() && decision.permits.is_empty() && pending.shadows.is_empty() {
            return Self(None);
        }
        let permits = std::mem::take(&mut decision.permits);
        Self(Some(Box::new(ReservedParts {
            list,
            permits,
            shadows: std::mem::take(&mut pending.shadows),
        })))
    }

    /// Holds reservations and permits until the response has ended, and starts the limits that only
    /// count.
    #[inline]
    pub fn hold(self, limiter: &Limiter) -> Permit {
        match self.0 {
            Some(parts) => (*parts).hold(limiter),
            None => Permit::default(),
        }
    }
}

impl ReservedParts {
    fn hold(self, limiter: &Limiter) -> Permit {
        let mut permit = Permit::default();
        for (later, reservation) in self.list {
            permit.reserve(later, reservation, limiter);
        }
        permit.hold_permits(self.permits);
        self.shadows.start(limiter, &mut permit);
        permit
    }
}

#[cfg(test)]
mod tests;
