//! The limits that guard one route: from a request to what to ask the limiter, and from its verdict to an answer.
//!
//! Guarantees that every decision is counted and told. Knows nothing of stores or of HTTP servers.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderValue;
use metrics::{Counter, counter};
use smallvec::SmallVec;

use super::bucket::{Shape, ShapeError};
use super::catalog;
use super::decision::{DecidedBy, Level, Verdict};
use super::headers::{self, Fields, Standing};
use super::key::{Extracted, Facts, Key, KeySpec};
use super::policy::{LimitUse, OnOutage};
use crate::error::Failure;
use crate::store::Ask;

/// The limits of one route, prepared.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    /// `RateLimit-Policy` when all of them apply, which is nearly always.
    policy: Option<HeaderValue>,
    legacy_headers: bool,
}

#[derive(Debug)]
struct Rule {
    name: Arc<str>,
    key: KeySpec,
    shape: Shape,
    cost: u64,
    largest_cost: u64,
    on_outage: OnOutage,
    /// Requests in a full bucket.
    quota: u64,
    policy: String,
    decisions: Decisions,
}

/// `tollgate_ratelimit_decisions_total` of one limit, resolved once.
struct Decisions([[Counter; BY.len()]; 2]);

const BY: [DecidedBy; 4] = [DecidedBy::Redis, DecidedBy::Lease, DecidedBy::DenialCache, DecidedBy::Local];

/// The most tokens that any request takes of each limit, over all its uses: what decides whether nodes can share it.
#[derive(Debug, Default)]
pub struct LargestCosts(HashMap<Arc<str>, u64>);

/// What a request asks of the limiter.
#[derive(Debug)]
pub struct Asking {
    /// One for each limit that applies to the request.
    pub asks: SmallVec<[Ask; 2]>,
    rules: SmallVec<[usize; 2]>,
}

/// What one limit makes of a request.
#[derive(Debug)]
pub struct Explained<'r> {
    pub limit: &'r Arc<str>,
    pub key: Extracted,
    /// The parts of the key that are not in the request.
    pub lacking: Vec<String>,
    /// Tokens that the request takes.
    pub cost: u64,
    /// Its item of `RateLimit-Policy`.
    pub policy: &'r str,
}

/// What became of a request.
#[derive(Debug)]
pub struct Judged {
    pub fields: Fields,
    /// Why it is denied, if it is.
    pub denied: Option<Failure>,
}

impl Rules {
    /// Prepares `uses`, each limit once: a later use of the same limit replaces an earlier one.
    pub fn new<'u>(
        uses: impl Iterator<Item = &'u LimitUse>,
        costs: &LargestCosts,
        legacy_headers: bool,
    ) -> Result<Self, ShapeError> {
        let mut rules: Vec<Rule> = Vec::new();
        for limit_use in uses {
            rules.retain(|rule| rule.name != limit_use.limit.name);
            rules.push(Rule::new(limit_use, costs)?);
        }
        let policy = headers::policy_value(rules.iter().map(|rule| &*rule.policy));
        Ok(Self { rules, policy, legacy_headers })
    }

    /// Whether no limit guards the route.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What this request asks of the limiter. Limits whose key is not in the request may be left out or refuse it.
    pub fn ask(&self, facts: &Facts<'_>) -> Result<Asking, Failure> {
        let mut asking = Asking { asks: SmallVec::new(), rules: SmallVec::new() };
        for (index, rule) in self.rules.iter().enumerate() {
            match rule.key.extract(&rule.name, facts) {
                Extracted::Key(key) => {
                    asking.asks.push(rule.ask(key));
                    asking.rules.push(index);
                }
                Extracted::Skip => {}
                Extracted::Refuse => return Err(Failure::KeyMissing),
            }
        }
        Ok(asking)
    }

    /// Each limit, in order, with what it makes of a request: to explain, not to decide.
    pub fn explain<'r>(&'r self, facts: &'r Facts<'_>) -> impl Iterator<Item = Explained<'r>> {
        self.rules.iter().map(|rule| Explained {
            limit: &rule.name,
            key: rule.key.extract(&rule.name, facts),
            lacking: catalog::lacking(&rule.key, facts),
            cost: rule.cost,
            policy: &rule.policy,
        })
    }

    /// What the verdict on `asking` means for the answer.
    pub fn judge(&self, asking: &Asking, verdict: &Verdict) -> Judged {
        let judged = || asking.rules.iter().map(|&index| &self.rules[index]).zip(&verdict.levels);
        let standings = judged().map(|(rule, level)| (&*rule.name, rule.standing(level)));
        let policy = if asking.rules.len() == self.rules.len() {
            self.policy.clone()
        } else {
            headers::policy_value(judged().map(|(rule, _)| &*rule.policy))
        };
        let fields = Fields::render(policy, standings, self.legacy_headers);
        let mut violated = Vec::new();
        let mut retry_after_us = 0;
        for (rule, level) in judged() {
            let denies = !verdict.granted && level.retry_after_us > 0;
            if verdict.granted || denies {
                rule.decisions.count(!denies, verdict.decided_by);
            }
            if denies {
                violated.push(rule.name.clone());
                retry_after_us = retry_after_us.max(level.retry_after_us);
            }
        }
        let denied = (!verdict.granted)
            .then(|| Failure::QuotaExceeded { violated, retry_after_secs: seconds_up(retry_after_us).max(1) });
        Judged { fields, denied }
    }
}

impl LargestCosts {
    /// Over `uses`, which must be all there are.
    pub fn over<'u>(uses: impl Iterator<Item = &'u LimitUse>) -> Self {
        let mut costs = Self::default();
        for LimitUse { limit, cost } in uses {
            let largest = costs.0.entry(limit.name.clone()).or_default();
            *largest = cost.get().max(*largest);
        }
        costs
    }

    pub(super) fn of_limit(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }
}

impl Rule {
    fn new(LimitUse { limit, cost }: &LimitUse, costs: &LargestCosts) -> Result<Self, ShapeError> {
        let shape = Shape::new(limit.rate.tokens, limit.rate.period_us, limit.burst)?;
        let quota = limit.burst.get() / *cost;
        let window_secs = seconds_up(shape.micros(shape.capacity())).max(1);
        Ok(Self {
            name: limit.name.clone(),
            key: limit.key.clone(),
            shape,
            cost: cost.get(),
            largest_cost: costs.of_limit(&limit.name).max(cost.get()),
            on_outage: limit.on_outage,
            quota,
            policy: headers::policy_item(&limit.name, quota, window_secs),
            decisions: Decisions::of(&limit.name),
        })
    }

    fn ask(&self, key: Key) -> Ask {
        let Self { shape, cost, largest_cost, on_outage, .. } = *self;
        Ask { key, shape, cost, largest_cost, on_outage }
    }

    fn standing(&self, level: &Level) -> Standing {
        let remaining = level.remaining / self.cost;
        let wait_us = match (level.retry_after_us, remaining) {
            (0, 0) => {
                // Granted, and nothing left: the next request passes once its cost is back.
                let spare = self.shape.capacity() - self.shape.charge(self.cost).min(self.shape.capacity());
                level.reset_after_us.saturating_sub(self.shape.micros(spare))
            }
            (0, _) => level.reset_after_us,
            (retry_after_us, _) => retry_after_us,
        };
        Standing { quota: self.quota, remaining, reset_secs: seconds_up(wait_us) }
    }
}

impl Decisions {
    fn of(limit: &Arc<str>) -> Self {
        let row = |verdict: &'static str| {
            BY.map(|by| {
                let limit = limit.to_string();
                counter!("tollgate_ratelimit_decisions_total", "limit" => limit, "verdict" => verdict, "decided_by" => by.as_str())
            })
        };
        Self([row("denied"), row("allowed")])
    }

    fn count(&self, allowed: bool, by: DecidedBy) {
        let column = BY.iter().position(|&known| known == by).unwrap_or(BY.len() - 1);
        self.0[usize::from(allowed)][column].increment(1);
    }
}

impl std::fmt::Debug for Decisions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decisions")
    }
}

fn seconds_up(us: u64) -> u64 {
    us.div_ceil(1_000_000)
}
