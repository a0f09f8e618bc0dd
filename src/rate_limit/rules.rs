//! The limits that guard one route: from a request to what to ask the limiter, and from its verdict to an answer.
//!
//! Guarantees that every decision is counted and told, once. Knows nothing of stores or of HTTP servers, and waits for
//! nothing: where a request may wait, it says so.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderValue;
use smallvec::SmallVec;

use super::bucket::{Shape, ShapeError};
use super::decision::{DecidedBy, Level, Verdict};
use super::enforced::Enforced;
use super::exempt::Exempt;
use super::headers::{self, Fields, Standing};
use super::key::{Extracted, Facts, Key, KeySpec};
use super::policy::{Degrade, Limit, LimitUse, OnLimit, OnOutage, Queueing};
use super::shadow::Shadows;
use super::tally::{Counted, Tally};
use crate::error::Failure;
use crate::store::Ask;

/// The limits of one route, prepared.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    /// `RateLimit-Policy` when all that act apply, which is nearly always.
    policy: Option<HeaderValue>,
    /// How many those are.
    acting: usize,
    /// Whether a denial may be anything but a refusal.
    lenient: bool,
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
    on_limit: OnLimit,
    enforced: Enforced,
    exempt: Exempt,
    /// Requests in a full bucket.
    quota: u64,
    policy: String,
    tally: Arc<Tally>,
}

/// The most tokens that any request takes of each limit, over all its uses: what decides whether nodes can share it.
#[derive(Debug, Default)]
pub struct LargestCosts(HashMap<Arc<str>, u64>);

/// What a request asks of the limiter.
#[derive(Debug, Default)]
pub struct Asking {
    /// One for each limit that has a say in the request.
    pub asks: SmallVec<[Ask; 2]>,
    /// For each of them, its rule's place.
    rules: SmallVec<[usize; 2]>,
    /// Limits that denied the request and let it pass to something cheaper: rule, ask and what was left.
    yielded: Vec<(usize, Ask, Level)>,
    shadows: Shadows,
}

/// What a verdict leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It stands: [`Rules::judge`] it.
    Judge,
    /// Limits that degrade have dropped out: ask again for the others, which the request must keep to all the same.
    AskAgain,
    /// The request may wait in the line that [`Rules::line`] knows by this number.
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
    pub fields: Fields,
    /// Why it is denied, if it is.
    pub denied: Option<Failure>,
    /// What it gets instead of what it asked for.
    pub degraded: Option<Degrade>,
    /// To be watched, whatever the answer.
    pub shadows: Shadows,
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
        let acting = || rules.iter().filter(|rule| rule.enforced != Enforced::NONE);
        let policy = headers::policy_value(acting().map(|rule| &*rule.policy));
        let acting = acting().count();
        let lenient = rules.iter().any(|rule| matches!(rule.on_limit, OnLimit::Queue(_) | OnLimit::Degrade(_)));
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

    /// What this request asks of the limiter. Limits whose key is not in the request may be left out or refuse it.
    pub fn ask(&self, facts: &Facts<'_>) -> Result<Asking, Failure> {
        let mut asking = Asking::default();
        for (index, rule) in self.rules.iter().enumerate() {
            if rule.exempt.covers(facts) {
                rule.tally.count(Counted::Exempt, DecidedBy::Local);
                continue;
            }
            match rule.key.extract(&rule.name, facts) {
                Extracted::Key(key) if rule.enforced.takes(key.as_bytes()) => {
                    asking.asks.push(rule.ask(key));
                    asking.rules.push(index);
                }
                Extracted::Key(key) => asking.shadows.add(rule.ask(key), rule.tally.clone()),
                Extracted::Skip => {}
                Extracted::Refuse => return Err(Failure::KeyMissing),
            }
        }
        Ok(asking)
    }

    /// What a verdict on `asking` leads to. Takes limits that degrade out of it, once all that deny are such or can wait.
    pub fn next(&self, asking: &mut Asking, verdict: &Verdict) -> Next {
        if verdict.granted || !self.lenient {
            return Next::Judge;
        }
        let denying = || self.levels(asking, verdict).filter(|(.., level)| level.retry_after_us > 0);
        if denying().any(|(_, rule, _)| matches!(rule.on_limit, OnLimit::Reject | OnLimit::Answer(_))) {
            return Next::Judge;
        }
        let slowest = denying().filter(|(_, rule, _)| matches!(rule.on_limit, OnLimit::Queue(_)));
        let slowest = slowest.max_by_key(|(.., level)| level.retry_after_us).map(|(at, ..)| at);
        if self.yield_to_something_cheaper(asking, verdict) {
            return Next::AskAgain;
        }
        slowest.map_or(Next::Judge, Next::Wait)
    }

    fn yield_to_something_cheaper(&self, asking: &mut Asking, verdict: &Verdict) -> bool {
        let before = asking.asks.len();
        for (at, level) in verdict.levels.iter().enumerate().take(before).rev() {
            if level.retry_after_us > 0 && matches!(self.rules[asking.rules[at]].on_limit, OnLimit::Degrade(_)) {
                let (rule, ask) = (asking.rules.remove(at), asking.asks.remove(at));
                asking.yielded.insert(0, (rule, ask, *level));
            }
        }
        asking.asks.len() < before
    }

    /// The line before the limit of the ask at `at`, if there may be one.
    pub fn line<'a>(&'a self, asking: &'a Asking, at: usize) -> Option<Line<'a>> {
        let (rule, ask) = (self.rules.get(*asking.rules.get(at)?)?, asking.asks.get(at)?);
        let OnLimit::Queue(bounds) = rule.on_limit else { return None };
        let charge_us = ask.shape.micros(ask.shape.charge(ask.cost));
        Some(Line { limit: &rule.name, key: &ask.key, bounds, charge_us })
    }

    /// The verdict on a request that finds the line at `at` too long: denied by that limit, whose place in `asking` is all
    /// that is left of it, since no other was asked.
    pub fn turn_away(&self, asking: &mut Asking, at: usize, retry_after_us: u64) -> Verdict {
        asking.rules = asking.rules.get(at).copied().into_iter().collect();
        asking.asks = asking.asks.get(at).cloned().into_iter().collect();
        let retry_after_us = retry_after_us.max(1);
        let level = Level { remaining: 0, retry_after_us, reset_after_us: retry_after_us };
        Verdict { decided_by: DecidedBy::Local, granted: false, levels: asking.asks.iter().map(|_| level).collect() }
    }

    /// What the last verdict on `asking` means for the answer.
    pub fn judge(&self, mut asking: Asking, verdict: &Verdict) -> Judged {
        self.count(&asking, verdict);
        let denied = (!verdict.granted).then(|| self.denied(&asking, verdict));
        let first = asking.yielded.first().map(|(index, ..)| &self.rules[*index]);
        let degraded = first.filter(|_| verdict.granted).and_then(|rule| Some((rule, rule.degrades()?)));
        let mut fields = self.fields(&asking, verdict);
        if let Some((rule, _)) = degraded {
            fields.mark_degraded(&rule.name);
        }
        let shadows = if verdict.granted { std::mem::take(&mut asking.shadows) } else { Shadows::default() };
        Judged { fields, denied, degraded: degraded.map(|(_, degrade)| degrade.clone()), shadows }
    }

    fn levels<'a>(
        &'a self,
        asking: &'a Asking,
        verdict: &'a Verdict,
    ) -> impl Iterator<Item = (usize, &'a Rule, &'a Level)> + Clone {
        let rules = asking.rules.iter().map(|&index| &self.rules[index]);
        rules.zip(&verdict.levels).enumerate().map(|(at, (rule, level))| (at, rule, level))
    }

    fn count(&self, asking: &Asking, verdict: &Verdict) {
        for (_, rule, level) in self.levels(asking, verdict) {
            match (verdict.granted, level.retry_after_us) {
                (true, _) => rule.tally.count(Counted::Allowed, verdict.decided_by),
                (false, 0) => {}
                (false, _) => rule.tally.count(Counted::Denied, verdict.decided_by),
            }
        }
        let yielded = if verdict.granted { Counted::Degraded } else { Counted::Denied };
        for (index, ..) in &asking.yielded {
            self.rules[*index].tally.count(yielded, verdict.decided_by);
        }
    }

    fn fields(&self, asking: &Asking, verdict: &Verdict) -> Fields {
        let judged = self.levels(asking, verdict).map(|(at, rule, level)| (rule, &asking.asks[at], level));
        let yielded = asking.yielded.iter().map(|(index, ask, level)| (&self.rules[*index], ask, level));
        let told = || judged.clone().chain(yielded.clone());
        let policy = if asking.rules.len() == self.acting {
            self.policy.clone()
        } else {
            headers::policy_value(told().map(|(rule, ..)| &*rule.policy))
        };
        Fields::render(
            policy,
            told().map(|(rule, ask, level)| (&*rule.name, rule.standing(ask, level))),
            self.legacy_headers,
        )
    }

    fn denied(&self, asking: &Asking, verdict: &Verdict) -> Failure {
        let denying = || self.levels(asking, verdict).filter(|(.., level)| level.retry_after_us > 0);
        let retry_after_us = denying().map(|(.., level)| level.retry_after_us).max().unwrap_or_default();
        let retry_after_secs = seconds_up(retry_after_us).max(1);
        match denying().next().map(|(_, rule, _)| &rule.on_limit) {
            Some(OnLimit::Answer(answer)) => Failure::Refused { answer: answer.clone(), retry_after_secs },
            _ => {
                let violated = denying().map(|(_, rule, _)| rule.name.clone()).collect();
                Failure::QuotaExceeded { violated, retry_after_secs }
            }
        }
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

    fn of_limit(&self, name: &str) -> u64 {
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
            on_limit: limit.on_limit.clone(),
            enforced: limit.enforced,
            exempt: limit.exempt.clone(),
            quota,
            policy: headers::policy_item(&limit.name, quota, window_secs),
            tally: Arc::new(Tally::of(&limit.name, |counted| may_count(limit, counted))),
        })
    }

    fn ask(&self, key: Key) -> Ask {
        let Self { shape, cost, largest_cost, on_outage, .. } = *self;
        Ask { key, shape, cost, largest_cost, on_outage }
    }

    fn degrades(&self) -> Option<&Degrade> {
        match &self.on_limit {
            OnLimit::Degrade(degrade) => Some(degrade),
            OnLimit::Reject | OnLimit::Answer(_) | OnLimit::Queue(_) => None,
        }
    }

    fn standing(&self, ask: &Ask, level: &Level) -> Standing {
        let remaining = level.remaining / self.cost;
        let wait_us = match (level.retry_after_us, remaining) {
            (0, 0) => {
                // Granted, and nothing left: the next request passes once its cost is back.
                let spare = ask.shape.capacity() - ask.shape.charge(self.cost).min(ask.shape.capacity());
                level.reset_after_us.saturating_sub(ask.shape.micros(spare))
            }
            (0, _) => level.reset_after_us,
            (retry_after_us, _) => retry_after_us,
        };
        Standing { quota: self.quota, remaining, reset_secs: seconds_up(wait_us) }
    }
}

/// Whether a limit can ever count such a decision.
fn may_count(limit: &Limit, counted: Counted) -> bool {
    match counted {
        Counted::Allowed | Counted::Denied => limit.enforced != Enforced::NONE,
        Counted::Degraded => matches!(limit.on_limit, OnLimit::Degrade(_)),
        Counted::Exempt => !limit.exempt.is_empty(),
        Counted::ShadowAllowed | Counted::ShadowDenied => limit.enforced != Enforced::ALL,
    }
}

fn seconds_up(us: u64) -> u64 {
    us.div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use http::{HeaderMap, Method, StatusCode, Uri};

    use super::super::key::{KeyPart, OnMissing};
    use super::super::limiter::Limiter;
    use super::super::policy::Rate;
    use super::*;
    use crate::respond::Respond;
    use crate::store::memory::MemoryStore;

    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }

    /// `burst` an hour, counted together.
    fn limit(name: &str, burst: u64) -> Limit {
        let key = KeySpec { parts: vec![KeyPart::Constant("all".into())], on_missing: OnMissing::Share };
        Limit::new(name, key, Rate { tokens: nonzero(burst), period_us: nonzero(3_600_000_000) }, nonzero(burst))
    }

    fn answer(status: u16) -> Arc<Respond> {
        Arc::new(Respond { status: StatusCode::from_u16(status).unwrap(), headers: vec![], body: "".into() })
    }

    /// Limits and where they count.
    struct Guard {
        rules: Rules,
        limiter: Limiter,
    }

    impl Guard {
        fn new(limits: impl IntoIterator<Item = Limit>) -> Self {
            let uses = limits.into_iter().map(|limit| LimitUse { cost: limit.cost, limit: Arc::new(limit) });
            let uses: Vec<_> = uses.collect();
            let rules = Rules::new(uses.iter(), &LargestCosts::over(uses.iter()), false).unwrap();
            Self { rules, limiter: Limiter::local(Arc::new(MemoryStore::new(100))) }
        }

        fn ask(&self) -> Asking {
            let (method, uri, headers) = (Method::GET, Uri::from_static("/"), HeaderMap::new());
            let facts = Facts {
                method: &method,
                uri: &uri,
                headers: &headers,
                client_ip: None,
                host: "",
                route: "",
                param: &|_| None,
            };
            self.rules.ask(&facts).unwrap()
        }

        /// Judges a request to the end, as long as it need not wait. Says how often the limiter was asked.
        fn pass(&self) -> (Judged, usize) {
            let mut asking = self.ask();
            for times in 1.. {
                let verdict = self.limiter.decide_now(&asking.asks).unwrap();
                if self.rules.next(&mut asking, &verdict) != Next::AskAgain {
                    return (self.rules.judge(asking, &verdict), times);
                }
            }
            unreachable!()
        }

        fn ratelimit(judged: &Judged) -> String {
            let mut headers = HeaderMap::new();
            judged.fields.apply(&mut headers);
            headers.get(headers::RATELIMIT).map_or("", |value| value.to_str().unwrap()).to_owned()
        }
    }

    #[test]
    fn a_limit_that_degrades_drops_out_and_the_others_still_hold() {
        let degrade = OnLimit::Degrade(Degrade::Respond(answer(200)));
        let guard = Guard::new([limit("all", 3), Limit { on_limit: degrade, ..limit("each", 1) }]);
        assert_eq!((guard.pass().0.degraded, guard.pass().1), (None, 2));
        let (judged, _) = guard.pass();
        assert_eq!((judged.denied.is_none(), judged.degraded.is_some()), (true, true));
        assert!(Guard::ratelimit(&judged).starts_with("\"all\";r=0;"), "charged as well: {:?}", judged.fields);
        assert!(Guard::ratelimit(&judged).contains("\"each\";r=0;t=3600"), "and both are told: {:?}", judged.fields);
        let (judged, _) = guard.pass();
        let Some(Failure::QuotaExceeded { violated, .. }) = judged.denied else { panic!("{judged:?}") };
        assert_eq!((violated, judged.degraded), (vec!["all".into(), "each".into()], None));
    }

    #[test]
    fn a_limit_that_rejects_goes_before_those_that_do_not() {
        let queue = Queueing { max_wait: Duration::from_secs(1), max_waiting: std::num::NonZeroUsize::MIN };
        let answered = OnLimit::Answer(answer(503));
        let limits = [
            Limit { on_limit: OnLimit::Queue(queue), ..limit("q", 1) },
            Limit { on_limit: OnLimit::Degrade(Degrade::Upstream("u".into())), ..limit("d", 1) },
            Limit { on_limit: answered, ..limit("r", 1) },
        ];
        let guard = Guard::new(limits.clone());
        assert!(guard.pass().0.denied.is_none());
        let (judged, times) = guard.pass();
        assert!(matches!(&judged.denied, Some(Failure::QuotaExceeded { violated, .. }) if violated.len() == 3));
        assert_eq!(times, 1);

        let guard = Guard::new(limits[..2].to_vec());
        guard.pass();
        let mut asking = guard.ask();
        let mut next = || {
            let verdict = guard.limiter.decide_now(&asking.asks).unwrap();
            guard.rules.next(&mut asking, &verdict)
        };
        assert_eq!((next(), next()), (Next::AskAgain, Next::Wait(0)));
        let line = guard.rules.line(&asking, 0).unwrap();
        assert_eq!((line.limit, line.bounds, line.charge_us), ("q", queue, 3_600_000_000));
    }

    #[test]
    fn the_answer_is_that_of_the_first_limit_that_denies() {
        let guard =
            Guard::new([Limit { on_limit: OnLimit::Answer(answer(503)), ..limit("own", 1) }, limit("plain", 1)]);
        guard.pass();
        let denied = guard.pass().0.denied.unwrap();
        assert_eq!(denied, Failure::Refused { answer: answer(503), retry_after_secs: 3_600 });
    }

    #[test]
    fn a_shadow_neither_denies_nor_blocks_nor_is_told_but_is_charged() {
        let guard = Guard::new([Limit { enforced: Enforced::NONE, ..limit("shadow", 1) }, limit("real", 3)]);
        for left in [2, 1, 0] {
            let (judged, _) = guard.pass();
            assert!(Guard::ratelimit(&judged).starts_with(&format!("\"real\";r={left};")), "{:?}", judged.fields);
            assert!(judged.denied.is_none());
            judged.shadows.watch(&guard.limiter);
        }
        let shadow = Guard { rules: Guard::new([limit("shadow", 1)]).rules, limiter: guard.limiter };
        assert!(shadow.pass().0.denied.is_some(), "its bucket is spent");
    }

    #[test]
    fn whoever_finds_the_line_too_long_is_denied_by_that_limit_alone() {
        let guard = Guard::new([limit("a", 5), limit("b", 5)]);
        let mut asking = guard.ask();
        let verdict = guard.rules.turn_away(&mut asking, 1, 2_500_000);
        let judged = guard.rules.judge(asking, &verdict);
        assert_eq!(Guard::ratelimit(&judged), "\"b\";r=0;t=3");
        let violated = vec!["b".into()];
        assert_eq!(judged.denied, Some(Failure::QuotaExceeded { violated, retry_after_secs: 3 }));
    }
}
