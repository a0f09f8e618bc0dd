//! The judge of a run: what was promised, and what a run shows instead.
//!
//! It shares no arithmetic with the limiter. Buckets are judged like gateways, by
//! [`tollgate_judge::judge`].

use std::num::NonZeroU64;

use tollgate_judge::TestedLimit;
use tollgate_judge::judge::{AdmittedRequest, judge};
use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::limit::algorithm::Rate;

use super::run::{Observed, ObservedDecision};
use super::schedule::{Fault, KeyPlan, LimitNumbers, MS, Schedule};
use super::server::EPOCH_US;
use super::terms::{LEASED_PERCENT, PERCENT};
use super::wire::TIMEOUT;

/// A run and its schedule.
pub struct Trial<'a> {
    pub schedule: &'a Schedule,
    pub observed: &'a Observed,
}

/// The promises that a run broke, in words.
pub fn broken_promises(trial: &Trial<'_>) -> Vec<String> {
    let keys = 0..trial.schedule.keys.len();
    let mut broken: Vec<String> = keys
        .flat_map(|key| {
            [
                trial.is_over(key),
                trial.is_wasted(key),
                trial.is_charged_wrongly(key),
                trial.is_locked_out(key),
            ]
        })
        .flatten()
        .collect();
    broken.extend(trial.is_late());
    broken.extend(trial.is_decided_elsewhere());
    broken.extend(
        (0..trial.schedule.demands.len()).filter_map(|demand| trial.has_too_many_in_flight(demand)),
    );
    broken.extend(trial.observed.permits_left.iter().filter_map(|(demand, (in_use, claimed))| {
        let (most, _) = trial.schedule.demands[*demand].permits?;
        let is_back = *in_use == 0 && *claimed == most;
        (!is_back).then(|| format!("d{demand}: {in_use} permits in use at the end, and {claimed} of {most} to claim"))
    }));
    broken
}

fn nonzero(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

impl Trial<'_> {
    fn of_key(&self, key: usize) -> impl Iterator<Item = &ObservedDecision> {
        let demands = &self.schedule.demands;
        self.observed
            .decisions
            .iter()
            .filter(move |made| demands[made.request.demand].keys.contains(&key))
    }

    fn admitted(&self, key: usize) -> Vec<AdmittedRequest> {
        let granted = self.of_key(key).filter(|made| made.granted);
        let admitted = granted.map(|made| AdmittedRequest {
            key: 0,
            cost: made.request.cost,
            sent_us: made.sent_us,
            answered_us: made.answered_us,
        });
        admitted.collect()
    }

    /// Never over.
    fn is_over(&self, key: usize) -> Option<String> {
        let plan = &self.schedule.keys[key];
        match plan.limit {
            LimitNumbers::Fixed { width, .. } => self.is_window_over(key, width * MS),
            LimitNumbers::Sliding { width, .. } => self.is_stretch_over(key, width * MS),
            _ => {
                let largest =
                    |of: fn(LimitNumbers) -> u64| plan.versions().map(of).max().unwrap_or(1);
                let [tokens, burst] = [
                    largest(|limit| limit.rate().0),
                    largest(|limit| limit.rate().2),
                ]
                .map(nonzero);
                let rate = Rate {
                    tokens,
                    period_us: nonzero(plan.limit.rate().1 * MS),
                };
                let judgement = judge(
                    &self.admitted(key),
                    &TestedLimit { rate, burst },
                    &self.schedule.conceded(key),
                );
                judgement
                    .worst
                    .map(|worst| format!("k{key}: over by {}: {worst:?}", judgement.over))
            }
        }
    }

    fn quota(plan: &KeyPlan) -> u64 {
        plan.versions()
            .map(|limit| limit.rate().2)
            .max()
            .unwrap_or_default()
    }

    /// Tokens conceded between two times.
    fn conceded(&self, key: usize, from_us: u64, to_us: u64) -> u64 {
        let conceded = self.schedule.conceded(key);
        conceded
            .iter()
            .filter(|one| one.from_us <= to_us && one.to_us >= from_us)
            .map(|one| one.tokens)
            .sum()
    }

    /// Steps of the server's clock: when, and by how many microseconds.
    fn steps(&self) -> Vec<(u64, i64)> {
        let mut steps: Vec<_> = self
            .schedule
            .faults
            .iter()
            .filter_map(|fault: &Fault| match *fault {
                Fault::ClockStep { at, by } => Some((at * MS, by * 1_000)),
                _ => None,
            })
            .collect();
        steps.sort_unstable();
        steps
    }

    /// The first and the last time at which the server's clock passes `server_us`.
    fn passes(&self, server_us: u64) -> (u64, u64) {
        let mut from_us = 0;
        let mut offset_us = 0_i64;
        let mut passes: Vec<u64> = Vec::new();
        let steps = self.steps();
        for place in 0..=steps.len() {
            let until_us = steps.get(place).map_or(u64::MAX, |(at_us, _)| *at_us);
            let begins = server_us
                .saturating_sub(EPOCH_US)
                .saturating_add_signed(-offset_us);
            // Either the clock runs over it, or it steps over it.
            if begins < until_us && (begins > from_us || passes.is_empty()) {
                passes.push(begins.max(from_us));
            }
            if let Some((at_us, by_us)) = steps.get(place) {
                (from_us, offset_us) = (*at_us, offset_us + by_us);
            }
        }
        (
            passes.first().copied().unwrap_or(0),
            passes.last().copied().unwrap_or(u64::MAX),
        )
    }

    /// Of fixed windows by the server's clock, several in a row have their quotas together. Where
    /// the clock stepped back over the end of a window, that window and the next one are judged
    /// together.
    fn is_window_over(&self, key: usize, width_us: u64) -> Option<String> {
        let admitted = self.admitted(key);
        let last_us = admitted.iter().map(|one| one.answered_us).max()?;
        let first = EPOCH_US / width_us;
        let ends = (first..).map(|window| self.passes((window + 1) * width_us));
        let ends: Vec<(u64, u64)> = std::iter::once((0, 0))
            .chain(ends)
            .take_while(|end| end.0 <= last_us + width_us)
            .collect();
        let clean: Vec<(u64, u64)> = (0..)
            .zip(&ends)
            .filter(|(_, end)| end.0 == end.1)
            .map(|(at, end)| (at, end.0))
            .collect();
        let quota = Self::quota(&self.schedule.keys[key]);
        for (begins, (from, from_us)) in clean.iter().enumerate() {
            for (to, to_us) in &clean[begins + 1..] {
                let within = admitted
                    .iter()
                    .filter(|one| one.sent_us >= *from_us && one.answered_us < *to_us);
                let tokens: u64 = within.map(|one| one.cost).sum();
                let most = quota * (to - from) + self.conceded(key, *from_us, *to_us);
                if tokens > most {
                    let windows = to - from;
                    return Some(format!(
                        "k{key}: {tokens} of {most} in {windows} windows from {from_us} to {to_us}"
                    ));
                }
            }
        }
        None
    }

    /// The server's time, as if its clock stood still until it is as late again after it stepped
    /// back.
    fn furthest(&self, at_us: u64) -> u64 {
        let mut offset_us = 0_i64;
        let mut furthest = 0;
        for (step_us, by_us) in self
            .steps()
            .into_iter()
            .filter(|(step_us, _)| *step_us <= at_us)
        {
            furthest = furthest.max(step_us.saturating_add_signed(offset_us));
            offset_us += by_us;
        }
        at_us.saturating_add_signed(offset_us).max(furthest)
    }

    /// A stretch shorter than a sliding window, by every clock.
    fn is_stretch_over(&self, key: usize, width_us: u64) -> Option<String> {
        let admitted = self.admitted(key);
        let quota = Self::quota(&self.schedule.keys[key]);
        let furthest: Vec<(u64, u64)> = admitted
            .iter()
            .map(|one| (self.furthest(one.sent_us), self.furthest(one.answered_us)))
            .collect();
        for (first, (begins, _)) in admitted.iter().zip(&furthest) {
            let is_within = |one: &AdmittedRequest, ends: u64| {
                one.sent_us >= first.sent_us
                    && one.answered_us < first.sent_us + width_us
                    && ends < begins + width_us
            };
            let within = admitted
                .iter()
                .zip(&furthest)
                .filter(|(one, (_, ends))| is_within(one, *ends));
            let tokens: u64 = within.map(|(one, _)| one.cost).sum();
            let most = quota + self.conceded(key, first.sent_us, first.sent_us + width_us);
            if tokens > most {
                return Some(format!(
                    "k{key}: {tokens} of {most} in a stretch from {}",
                    first.sent_us
                ));
            }
        }
        None
    }

    /// Never wasteful, where there are no faults: a bucket that knows no delay admits little more.
    fn is_wasted(&self, key: usize) -> Option<String> {
        let schedule = self.schedule;
        let plan = &self.schedule.keys[key];
        let LimitNumbers::Bucket {
            tokens,
            period,
            burst,
            leased,
        } = plan.limit
        else {
            return None;
        };
        let users: Vec<_> = schedule
            .demands
            .iter()
            .filter(|demand| demand.keys.contains(&key))
            .collect();
        let is_alone = users
            .iter()
            .all(|demand| demand.keys.len() == 1 && demand.permits.is_none());
        if !is_alone || !schedule.faults.is_empty() || plan.changed.is_some() {
            return None;
        }
        // A request that comes a moment too early loses what flows in until the next one, if
        // nothing can be saved.
        if burst < 2 * plan.largest_cost {
            return None;
        }
        let whole = u128::from(period * MS);
        let price = if leased {
            (u128::from(tokens) * 50 * 1_000).min(whole * u128::from(burst) / 4)
        } else {
            0
        };
        let capacity = whole * u128::from(burst) - price;
        let mut left = capacity;
        let mut last_us = 0;
        let mut due = 0;
        for made in schedule
            .requests
            .iter()
            .filter(|one| schedule.demands[one.demand].keys.contains(&key))
        {
            let flow = u128::from(made.at * MS - last_us) * u128::from(tokens);
            (left, last_us) = ((left + flow).min(capacity), made.at * MS);
            let cost = u128::from(made.cost) * whole;
            if cost <= left {
                (left, due) = (left - cost, due + made.cost);
            }
        }
        let admitted: u64 = self.admitted(key).iter().map(|one| one.cost).sum();
        // Latencies move tokens over the end, and requests of several tokens are not divided.
        let slack = 2 * plan.largest_cost + tokens * 100 / period;
        let percent = if leased { LEASED_PERCENT } else { PERCENT };
        (admitted + slack < due * percent / 100)
            .then(|| format!("k{key}: {admitted} admitted, of {due}"))
    }

    /// Each token is charged once, in the store, whatever happened on the way.
    fn is_charged_wrongly(&self, key: usize) -> Option<String> {
        let settled = self.observed.settled.get(&key)?;
        if self
            .schedule
            .faults
            .iter()
            .any(|fault: &Fault| matches!(fault, Fault::Emptied { .. }))
        {
            return None;
        }
        let is_gone = |number: usize| {
            self.schedule
                .faults
                .iter()
                .any(|fault: &Fault| match fault {
                    Fault::Crash { node, .. } | Fault::Leave { node, .. } => *node == number,
                    _ => false,
                })
        };
        let tokens = |made: &dyn Fn(&&ObservedDecision) -> bool| -> u64 {
            self.of_key(key)
                .filter(|one| one.granted)
                .filter(made)
                .map(|one| one.request.cost)
                .sum()
        };
        let admitted = tokens(&|_| true);
        let died = tokens(&|made| is_gone(made.node) && made.decided_by == DecidedBy::Local);
        // A node that crashes gives back nothing of what its last calls took too much.
        let lost = self
            .of_key(key)
            .filter(|made: &&ObservedDecision| {
                self.schedule
                    .faults
                    .iter()
                    .any(|fault: &Fault| match fault {
                        Fault::Crash { node, at } => {
                            *node == made.node && made.answered_us + 1_000 * MS >= at * MS
                        }
                        _ => false,
                    })
            })
            .map(|one| one.request.cost)
            .sum::<u64>();
        let least = admitted - died;
        let most = admitted + settled.unheard + lost;
        let is_right = settled.counted >= least && settled.counted <= most;
        (!is_right).then(|| {
            format!(
                "k{key}: {settled:?}, where {admitted} were admitted, {died} by nodes that are gone"
            )
        })
    }

    /// After a rest, a whole burst is there.
    fn is_locked_out(&self, key: usize) -> Option<String> {
        let (granted, decided_by) = *self.observed.last.get(&key)?;
        let is_well = granted && matches!(decided_by, DecidedBy::Redis | DecidedBy::Lease);
        let is_broken = !is_well && !self.schedule.is_foreign(key);
        is_broken.then(|| format!("k{key}: granted: {granted}, by {decided_by:?}, after a rest"))
    }

    /// Never in the way.
    fn is_late(&self) -> Option<String> {
        let most_us = u64::try_from(TIMEOUT.as_micros()).unwrap() + MS;
        let late = self
            .observed
            .decisions
            .iter()
            .find(|made| made.answered_us - made.sent_us > most_us)?;
        Some(format!(
            "a decision took {} us: {late:?}",
            late.answered_us - late.sent_us
        ))
    }

    /// Never somebody else's: where no call is lost, the store decides on every key that holds no
    /// foreign value.
    fn is_decided_elsewhere(&self) -> Option<String> {
        // A store that is suddenly slow is late for those who waited for the call before, until
        // that is known.
        if self.schedule.has_losses()
            || self
                .schedule
                .faults
                .iter()
                .any(|fault: &Fault| matches!(fault, Fault::ClockStep { .. } | Fault::Slow { .. }))
        {
            return None;
        }
        let is_foreign = |made: &ObservedDecision| {
            self.schedule.demands[made.request.demand]
                .keys
                .iter()
                .any(|key| self.schedule.is_foreign(*key))
        };
        self.observed
            .decisions
            .iter()
            .find(|made: &&ObservedDecision| {
                made.decided_by == DecidedBy::Local && !is_foreign(made)
            })
            .map(|made| format!("not decided by the store: {made:?}"))
    }

    /// Never more permits than there are.
    fn has_too_many_in_flight(&self, demand: usize) -> Option<String> {
        let (most, _) = self.schedule.demands[demand].permits?;
        // Of a slow store, claims wait for the claim before them, and are decided locally.
        if self.schedule.has_losses()
            || self
                .schedule
                .faults
                .iter()
                .any(|fault: &Fault| matches!(fault, Fault::Emptied { .. } | Fault::Slow { .. }))
        {
            return None;
        }
        let held = self
            .observed
            .held
            .iter()
            .filter(|held| held.demand == demand);
        let mut changes: Vec<(u64, i64)> = held
            .flat_map(|held| [(held.from_us, 1), (held.to_us, -1)])
            .collect();
        changes.sort_unstable();
        let mut in_flight = 0;
        let over = changes.into_iter().find(|(_, change)| {
            in_flight += change;
            in_flight > most.cast_signed()
        });
        over.map(|(at_us, _)| format!("d{demand}: {in_flight} in flight at {at_us}, of {most}"))
    }
}
