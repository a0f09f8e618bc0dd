//! The terms of a run: the tokens beyond burst + rate · t that its faults concede to a key, as
//! docs/exactness.md has them under "What an outage concedes". All figures of the terms are here.

use tollgate_judge::judge::Concession;

use super::schedule::{Fault, LimitNumbers, MS, Schedule};

/// The part of a limit that is used when more is demanded.
pub const PERCENT: u64 = 97;

/// Like [`PERCENT`], of leased tokens: on several nodes, some of a small limit expire unspent.
pub const LEASED_PERCENT: u64 = 85;

/// Milliseconds until the others hold back the share of a node that fell silent.
const NOTICE: u64 = 2_000;

/// Milliseconds until what single failed calls left is charged. The calls that charge it get lost
/// as well, and take three time limits then. Meanwhile both the store and the nodes decide, and
/// neither knows what the other admits.
const REPAYMENT: u64 = 1_000;

/// Milliseconds after its end in which an outage is noticed, and what it left is charged.
const RECOVERY: u64 = 1_000;

/// A part of the fleet that could not charge what it admitted.
struct Loss {
    from: u64,
    to: u64,
    nodes: usize,
    /// Milliseconds for which the others use the share of these as well.
    unnoticed: u64,
    /// No call of theirs gets through.
    is_outage: bool,
}

impl Schedule {
    /// Nodes that may be there at the same time, at least.
    fn fewest_nodes(&self) -> usize {
        let absent = self.nodes.iter().filter(|node| node.joins > 0).count()
            + self
                .faults
                .iter()
                .filter(|fault: &&Fault| matches!(fault, Fault::Leave { .. } | Fault::Crash { .. }))
                .count();
        self.nodes.len().saturating_sub(absent).max(1)
    }

    fn losses(&self) -> impl Iterator<Item = Loss> {
        let all = self.nodes.len();
        self.faults.iter().filter_map(move |fault| {
            let (from, to) = fault.span();
            let (nodes, unnoticed) = match fault {
                Fault::Outage { nodes, .. } => (nodes.len(), (to - from + RECOVERY).min(NOTICE)),
                Fault::Losses { nodes, .. } => (nodes.len(), REPAYMENT),
                Fault::Stall { .. } => (all, REPAYMENT),
                Fault::Slow { .. } => (all, REPAYMENT),
                _ => return None,
            };
            let is_outage = matches!(fault, Fault::Outage { .. });
            Some(Loss {
                from,
                to,
                nodes,
                unnoticed,
                is_outage,
            })
        })
    }

    /// Whether calls may fail.
    pub fn has_losses(&self) -> bool {
        self.losses().any(|loss| loss.nodes > 0)
    }

    /// The concessions of the faults to a key.
    pub fn conceded(&self, key: usize) -> Vec<Concession> {
        let plan = &self.keys[key];
        let largest =
            |of: fn(LimitNumbers) -> u64| plan.versions().map(of).max().unwrap_or_default();
        let burst = largest(|limit| limit.rate().2);
        let period = plan.limit.rate().1;
        let flow = |during: u64| (largest(|limit| limit.rate().0) * during).div_ceil(period);
        let fewest = self.fewest_nodes() as u64;
        let all = self.nodes.len() as u64;
        let smallest = plan
            .versions()
            .map(|limit| limit.rate().2)
            .min()
            .unwrap_or_default();
        let is_divided = smallest >= plan.largest_cost * self.nodes.len() as u64;
        let mut conceded = Vec::new();
        let mut concede = |from: u64, to: u64, tokens: u64| {
            conceded.push(Concession {
                from_us: from * MS,
                to_us: (to + RECOVERY) * MS,
                tokens,
                repaid_us: u64::MAX,
            });
        };
        for Loss {
            from,
            to,
            nodes,
            unnoticed,
            is_outage,
        } in self.losses().filter(|loss| loss.nodes > 0)
        {
            let nodes = nodes as u64;
            if nodes >= fewest || !is_divided {
                concede(
                    from,
                    to,
                    burst
                        + flow(if is_outage && nodes >= all {
                            0
                        } else {
                            unnoticed
                        }),
                )
            } else {
                concede(
                    from,
                    to,
                    ((burst + flow(unnoticed)) * nodes).div_ceil(fewest),
                )
            }
        }
        for fault in &self.faults {
            match *fault {
                Fault::Emptied { at } => concede(at, at, burst),
                Fault::Foreign { key: foreign, at } if foreign == key => concede(at, at, burst),
                Fault::ClockStep { at, by } if by > 0 => concede(at, at, flow(by.unsigned_abs())),
                _ => {}
            }
        }
        if plan.changed.is_some() && matches!(plan.limit, LimitNumbers::Bucket { leased: true, .. })
        {
            // A part of what is leased at the time.
            concede(0, self.end(), burst.div_ceil(4));
        }
        conceded
    }
}
