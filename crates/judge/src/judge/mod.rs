//! Judges whether a limit was kept, from outside: by which requests were admitted and when.
//!
//! A request was admitted at some time between its sending and its answer. So a window is charged
//! only with requests that were sent *and* answered within it: those were admitted in it for
//! certain. Guarantees that a limiter which keeps its limit is never accused, and that an
//! accusation names a window to count in. What it cannot see is bounded by the rate times the
//! latencies at the window's two edges. Integers throughout.
//!
//! Here is the judge of token buckets; `windows` judges fixed and sliding windows, and `in_flight`
//! limits of requests in flight. `bound` chooses.

#[cfg(test)]
mod tests;

pub mod bound;
pub mod in_flight;
pub mod reference_bucket;
pub mod reference_window;
pub mod server_clock;
mod window_tree;
mod windows;

use serde::Serialize;
use window_tree::WindowTree;

use crate::limit::TestedLimit;

/// A request that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmittedRequest {
    pub key: u32,
    /// Tokens.
    pub cost: u64,
    /// The earliest time at which it was admitted, in microseconds of one clock.
    pub sent_us: u64,
    /// The latest time at which it was admitted. At least `sent_us`.
    pub answered_us: u64,
}

/// Extra tokens that each key may have in every window that overlaps a time, and ends before they
/// must be repaid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concession {
    pub from_us: u64,
    pub to_us: u64,
    pub tokens: u64,
    /// [`u64::MAX`]: they stay conceded.
    pub repaid_us: u64,
}

/// The judgement of all admitted requests of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceJudgement {
    /// Tokens admitted in all.
    pub admitted: u64,
    /// Tokens over the bound in the worst window; 0: the promise was kept.
    pub over: u64,
    /// The window that proves it.
    pub worst: Option<ExceededWindow>,
}

/// A window in which a key had more than the bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExceededWindow {
    pub key: u32,
    pub from_us: u64,
    pub to_us: u64,
    /// Tokens admitted within it for certain.
    pub admitted: u64,
    /// Whole tokens that the limit and its concessions allow there.
    pub allowed: u64,
}

/// Judges every window of every key: in O(n log n).
pub fn judge(
    admissions: &[AdmittedRequest],
    limit: &TestedLimit,
    concessions: &[Concession],
) -> TraceJudgement {
    let mut sorted = admissions.to_vec();
    sorted.sort_unstable_by_key(|admission| (admission.key, std::cmp::Reverse(admission.sent_us)));
    let mut judgement = TraceJudgement {
        admitted: admissions.iter().map(|one| one.cost).sum(),
        ..TraceJudgement::default()
    };
    let mut worst = 0;
    for for_one_key in sorted.chunk_by(|a, b| a.key == b.key) {
        let Some(found) = worst_window(for_one_key, limit, concessions) else {
            continue;
        };
        if found.excess > worst {
            worst = found.excess;
            judgement.over = tokens(found.excess.unsigned_abs().div_ceil(limit.period()));
            judgement.worst = Some(found.window(for_one_key, limit, concessions));
        }
    }
    judgement
}

/// The requests as if each had been admitted when its answer arrived. A client that counts so may
/// find more than the bound although the limit was kept, since answers that took longer meet those
/// that did not.
pub fn as_answered(admissions: &[AdmittedRequest]) -> Vec<AdmittedRequest> {
    admissions
        .iter()
        .map(|one| AdmittedRequest {
            sent_us: one.answered_us,
            ..*one
        })
        .collect()
}

/// The window with the largest excess.
struct WorstWindow {
    from_us: u64,
    to_us: u64,
    /// Over the bound, in tokens times the rate's period.
    excess: i128,
}

/// An amount that counts in the windows that begin no later than `from_us` and end no earlier than
/// `to_us`: that of an admission, or the negative one of a concession, whose times are swapped.
/// When it must be repaid, it ends.
struct Weight {
    from_us: u64,
    to_us: u64,
    amount: i128,
    is_admission: bool,
}

/// Moves the beginning of the window back over the sent requests, latest first, and keeps for every
/// answer the excess of the window that ends there.
fn worst_window(
    admissions: &[AdmittedRequest],
    limit: &TestedLimit,
    concessions: &[Concession],
) -> Option<WorstWindow> {
    let mut ends: Vec<u64> = admissions.iter().map(|one| one.answered_us).collect();
    ends.sort_unstable();
    ends.dedup();
    let origin = *ends.first()?;
    let period = signed(limit.period());
    let rate = signed(limit.tokens());
    let mut windows = WindowTree::new(
        ends.iter()
            .map(|end| -rate * i128::from(end - origin))
            .collect(),
    );
    let mut worst: Option<WorstWindow> = None;
    for weight in weights(admissions, concessions, period) {
        let end = ends.partition_point(|end| *end < weight.to_us);
        windows.add(end..ends.len(), weight.amount);
        if !weight.is_admission {
            continue;
        }
        windows.open(end);
        let (end, value) = windows.largest();
        let begin = i128::from(weight.from_us) - i128::from(origin);
        let excess = value + rate * begin - signed(u128::from(limit.burst.get())) * period;
        if worst.as_ref().is_none_or(|found| excess > found.excess) {
            worst = Some(WorstWindow {
                from_us: weight.from_us,
                to_us: ends[end],
                excess,
            });
        }
    }
    worst
}

/// Latest beginning first; concessions before the admissions that they excuse.
fn weights(
    admissions: &[AdmittedRequest],
    concessions: &[Concession],
    period: i128,
) -> Vec<Weight> {
    // A window overlaps it when it begins before the end and ends after the beginning.
    let conceded = concessions.iter().flat_map(|one| {
        let amount = i128::from(one.tokens) * period;
        let concession = Weight {
            from_us: one.to_us,
            to_us: one.from_us,
            amount: -amount,
            is_admission: false,
        };
        let repayment = Weight {
            from_us: one.to_us,
            to_us: one.repaid_us.max(one.from_us),
            amount,
            is_admission: false,
        };
        [concession, repayment]
    });
    let mut all: Vec<Weight> = admissions
        .iter()
        .map(|one| Weight {
            from_us: one.sent_us,
            to_us: one.answered_us,
            amount: i128::from(one.cost) * period,
            is_admission: true,
        })
        .chain(conceded)
        .collect();
    all.sort_by_key(|weight| (std::cmp::Reverse(weight.from_us), weight.is_admission));
    all
}

impl WorstWindow {
    fn window(
        &self,
        admissions: &[AdmittedRequest],
        limit: &TestedLimit,
        concessions: &[Concession],
    ) -> ExceededWindow {
        let within = admissions
            .iter()
            .filter(|one| one.sent_us >= self.from_us && one.answered_us <= self.to_us);
        let overlapping = concessions
            .iter()
            .filter(|one| one.from_us <= self.to_us && one.to_us >= self.from_us);
        let conceded: u64 = overlapping
            .filter(|one| self.to_us < one.repaid_us)
            .map(|one| one.tokens)
            .sum();
        ExceededWindow {
            key: admissions.first().map_or(0, |one| one.key),
            from_us: self.from_us,
            to_us: self.to_us,
            admitted: within.map(|one| one.cost).sum(),
            allowed: limit
                .bound(self.to_us - self.from_us)
                .saturating_add(conceded),
        }
    }
}

fn signed(number: u128) -> i128 {
    i128::try_from(number).unwrap_or(i128::MAX)
}

fn tokens(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
