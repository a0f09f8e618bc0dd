//! Interruptions of the way to Redis: which nodes they meet, when, and what each concedes.
//!
//! Guarantees that what is conceded is what docs/exactness.md promises, and that only windows which
//! overlap an interruption have it.

use std::time::Duration;

use crate::drive::node::Backing;
use crate::faults::proxy::Fault;
use crate::judge::Concession;
use crate::plan::RunPlan;
use crate::scenario::Scenario;

/// The longest until a node knows that Redis is back: a round of probes, a connection, and its
/// answer.
const RECOVERY_US: u64 = 1_000_000;
/// The time between two probes of a node whose Redis is away. The first node that notices its
/// return is ahead of the last by that much and a call's time limit.
const PROBE_US: u64 = 100_000;

/// The time in which the other nodes notice that one has fallen silent.
const NOTICE_US: u64 = 2_000_000;

/// A partition's concession is repaid within a minute.
const LONGEST_REPAYMENT_US: u64 = 60_000_000;

/// Interruptions that come again and again.
#[derive(Clone, Debug)]
pub struct Interruption {
    /// In turns.
    faults: Vec<Fault>,
    first_us: u64,
    every_us: u64,
    for_us: u64,
    /// The number of nodes that meet it, the first ones.
    nodes: u32,
    conceded: Conceded,
    /// From an interruption's end on until what it concedes is repaid.
    repaid_us: u64,
}

/// Extra tokens that a key may have in a window.
#[derive(Clone, Copy, Debug)]
enum Conceded {
    /// By each interruption that the window overlaps.
    Each(u64),
    /// By all interruptions together.
    InAll(u64),
}

/// Interruptions under way.
pub struct Interrupting {
    interruption: Interruption,
    begun_us: u64,
    next_us: u64,
    since_us: Option<u64>,
    count: usize,
    concessions: Vec<Concession>,
}

impl Interruption {
    /// The interruptions of `scenario`, if it has any.
    pub fn new(scenario: Scenario, plan: &RunPlan, backing: &Backing) -> Option<Self> {
        let all = plan.nodes.get();
        let burst = plan.burst();
        let timeout = if let Backing::Redis(spec) = backing {
            spec.timeout
        } else {
            Duration::ZERO
        };
        let timeout_us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        // Redis refills while the nodes admit their shares, and learns of those only later. Nodes
        // notice one after the other that it answers again.
        let refilled = plan.limit.bound(PROBE_US + timeout_us);
        match scenario {
            Scenario::Flap => Some(Self {
                faults: vec![Fault::Cut, Fault::Silence],
                first_us: 1_000_000,
                every_us: 2_000_000,
                for_us: 700_000,
                nodes: all,
                conceded: Conceded::Each(refilled),
                repaid_us: u64::MAX,
            }),
            // Until they are noticed, the nodes cut off admit their share beside the others.
            Scenario::Partition => {
                let cut = all / 2;
                let share = plan
                    .limit
                    .bound(NOTICE_US)
                    .saturating_mul(cut.into())
                    .div_ceil(all.into());
                Some(Self {
                    faults: vec![Fault::Cut, Fault::Silence],
                    first_us: 1_000_000,
                    every_us: 15_000_000,
                    for_us: 7_000_000,
                    nodes: cut,
                    conceded: Conceded::Each(share),
                    repaid_us: RECOVERY_US + repayment_us(plan, share),
                })
            }
            // Not by a proxy: the nodes' way to the other masters stays as it is.
            Scenario::ClusterNodeDown => Some(Self {
                faults: vec![Fault::Silence],
                first_us: 1_500_000,
                every_us: 12_000_000,
                for_us: 2_000_000,
                nodes: 0,
                conceded: Conceded::Each(refilled),
                repaid_us: u64::MAX,
            }),
            Scenario::Stalls => Some(Self {
                faults: vec![Fault::Silence],
                first_us: 400_000,
                every_us: 400_000,
                for_us: timeout_us + timeout_us / 2,
                nodes: all,
                conceded: Conceded::InAll(burst),
                repaid_us: u64::MAX,
            }),
            Scenario::LateStore => Some(Self {
                faults: vec![Fault::Distance(timeout.mul_f64(1.3))],
                first_us: 1_000_000,
                every_us: u64::MAX / 4,
                for_us: u64::MAX / 4,
                nodes: all,
                conceded: Conceded::InAll(burst),
                repaid_us: u64::MAX,
            }),
            _ => None,
        }
    }
}

impl Interrupting {
    pub fn new(interruption: Interruption) -> Self {
        Self {
            interruption,
            begun_us: 0,
            next_us: u64::MAX,
            since_us: None,
            count: 0,
            concessions: Vec::new(),
        }
    }

    /// The run begins.
    pub fn begin(&mut self, now_us: u64) {
        (self.begun_us, self.next_us) = (now_us, now_us + self.interruption.first_us);
    }

    /// The fault to set by `now_us`, where it changes.
    pub fn step(&mut self, now_us: u64) -> Option<Fault> {
        let Interruption {
            for_us, every_us, ..
        } = self.interruption;
        if let Some(since_us) = self.since_us {
            return (now_us >= since_us + for_us).then(|| {
                self.concede(since_us, now_us);
                Fault::None
            });
        }
        if now_us < self.next_us {
            return None;
        }
        self.next_us += every_us;
        self.since_us = Some(now_us);
        self.count += 1;
        let faults = &self.interruption.faults;
        faults.get((self.count - 1) % faults.len().max(1)).copied()
    }

    /// How long a fault lasts, and how many there were so far.
    pub fn lasts(&self) -> (Duration, usize) {
        (Duration::from_micros(self.interruption.for_us), self.count)
    }

    /// The number of nodes that meet the faults, the first ones.
    pub fn nodes(&self) -> u32 {
        self.interruption.nodes
    }

    /// Everything that the interruptions concede, at the end of the run.
    pub fn end(mut self, now_us: u64) -> Vec<Concession> {
        if let Some(since_us) = self.since_us {
            self.concede(since_us, now_us);
        }
        if let Conceded::InAll(tokens) = self.interruption.conceded {
            let from_us = self.begun_us;
            let to_us = now_us + RECOVERY_US;
            self.concessions = vec![Concession {
                from_us,
                to_us,
                tokens,
                repaid_us: u64::MAX,
            }];
        }
        self.concessions
    }

    fn concede(&mut self, since_us: u64, now_us: u64) {
        self.since_us = None;
        if let Conceded::Each(tokens) = self.interruption.conceded {
            let repaid_us = now_us.saturating_add(self.interruption.repaid_us);
            self.concessions.push(Concession {
                from_us: since_us,
                to_us: now_us + RECOVERY_US,
                tokens,
                repaid_us,
            });
        }
    }
}

/// Twice the time in which `tokens` flow in: no other request is admitted meanwhile.
fn repayment_us(plan: &RunPlan, tokens: u64) -> u64 {
    let flow_us = u128::from(tokens) * plan.limit.period() / plan.limit.tokens().max(1);
    u64::try_from(2 * flow_us).map_or(LONGEST_REPAYMENT_US, |us| us.min(LONGEST_REPAYMENT_US))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interrupting(conceded: Conceded) -> Interrupting {
        let mut interrupting = Interrupting::new(Interruption {
            faults: vec![Fault::Cut, Fault::Silence],
            first_us: 10,
            every_us: 100,
            for_us: 30,
            nodes: 2,
            conceded,
            repaid_us: 5_000_000,
        });
        interrupting.begin(1_000);
        interrupting
    }

    #[test]
    fn faults_come_in_turns_and_end_in_time() {
        let mut interrupting = interrupting(Conceded::Each(7));
        let steps = [1_009, 1_010, 1_020, 1_039, 1_040, 1_109, 1_110, 1_140]
            .map(|at| interrupting.step(at));
        let cut = Some(Fault::Cut);
        let silence = Some(Fault::Silence);
        let none = Some(Fault::None);
        assert_eq!(steps, [None, cut, None, None, none, None, silence, none]);
        let conceded = interrupting.end(1_150);
        let first = Concession {
            from_us: 1_010,
            to_us: 1_040 + RECOVERY_US,
            tokens: 7,
            repaid_us: 5_001_040,
        };
        assert_eq!((conceded.len(), conceded.first()), (2, Some(&first)));
    }

    #[test]
    fn tokens_conceded_in_all_are_conceded_once() {
        let mut interrupting = interrupting(Conceded::InAll(5));
        interrupting.step(1_010);
        interrupting.step(1_040);
        interrupting.step(1_110);
        let all = Concession {
            from_us: 1_000,
            to_us: 1_120 + RECOVERY_US,
            tokens: 5,
            repaid_us: u64::MAX,
        };
        assert_eq!(interrupting.end(1_120), [all]);
    }
}
