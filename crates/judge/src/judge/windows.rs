//! Judges the quota of fixed and sliding windows.
//!
//! Guarantees, like the judge of buckets, to charge a window only with requests that were admitted
//! in it for certain. A fixed window is one of the store's: where it begins by the clock of the run
//! is known up to the time that the store's answer took.

use std::collections::HashMap;

use crate::judge::server_clock::ServerClock;
use crate::judge::{AdmittedRequest, Concession, ExceededWindow, TraceJudgement};

/// Judges each window of the store's clock, of `quota` tokens and `period_us`.
pub fn judge_fixed(
    admissions: &[AdmittedRequest],
    quota: u64,
    period_us: u64,
    clock: ServerClock,
    concessions: &[Concession],
) -> TraceJudgement {
    let mut windows: HashMap<(u32, i128), u64> = HashMap::new();
    for one in admissions {
        let window = window_at(one.sent_us, clock.least_us, period_us);
        // A request across two windows may have been admitted in either.
        if window == window_at(one.answered_us, clock.most_us, period_us) {
            *windows.entry((one.key, window)).or_default() += one.cost;
        }
    }
    let mut judgement = begun(admissions);
    for ((key, window), admitted) in windows {
        let from_us = begin_us(window, clock.most_us, period_us);
        let to_us = begin_us(window + 1, clock.least_us, period_us);
        let window = ExceededWindow {
            key,
            from_us,
            to_us,
            admitted,
            allowed: quota,
        };
        accuse(&mut judgement, concessions, window);
    }
    judgement
}

/// Judges each stretch that is shorter than `width_us`. Those that begin with the question of a
/// request suffice.
pub fn judge_sliding(
    admissions: &[AdmittedRequest],
    quota: u64,
    width_us: u64,
    concessions: &[Concession],
) -> TraceJudgement {
    let mut sorted = admissions.to_vec();
    sorted.sort_unstable_by_key(|one| (one.key, one.sent_us));
    let mut judgement = begun(admissions);
    for for_one_key in sorted.chunk_by(|a, b| a.key == b.key) {
        let mut by_answer: Vec<usize> = (0..for_one_key.len()).collect();
        by_answer.sort_unstable_by_key(|index| for_one_key[*index].answered_us);
        let mut counted = vec![false; for_one_key.len()];
        let mut admitted = 0_u64;
        let mut gone = 0;
        let mut next = 0;
        for (index, first) in for_one_key.iter().enumerate() {
            let from_us = first.sent_us;
            let to_us = first.sent_us.saturating_add(width_us - 1);
            while gone < index && for_one_key[gone].sent_us < from_us {
                admitted -= if counted[gone] {
                    for_one_key[gone].cost
                } else {
                    0
                };
                gone += 1;
            }
            while let Some(answered) = by_answer
                .get(next)
                .filter(|place| for_one_key[**place].answered_us <= to_us)
            {
                counted[*answered] = *answered >= gone;
                admitted += if *answered >= gone {
                    for_one_key[*answered].cost
                } else {
                    0
                };
                next += 1;
            }
            let window = ExceededWindow {
                key: first.key,
                from_us,
                to_us,
                admitted,
                allowed: quota,
            };
            accuse(&mut judgement, concessions, window);
        }
    }
    judgement
}

/// The number of the window that `us` is in on a clock that is ahead by so much.
pub fn window_at(us: u64, ahead_us: i64, period_us: u64) -> i128 {
    (i128::from(us) + i128::from(ahead_us)).div_euclid(i128::from(period_us.max(1)))
}

/// The beginning of a window on a clock that is ahead by so much.
fn begin_us(window: i128, ahead_us: i64, period_us: u64) -> u64 {
    let begin_us = window * i128::from(period_us) - i128::from(ahead_us);
    u64::try_from(begin_us).unwrap_or_default()
}

fn begun(admissions: &[AdmittedRequest]) -> TraceJudgement {
    TraceJudgement {
        admitted: admissions.iter().map(|one| one.cost).sum(),
        ..TraceJudgement::default()
    }
}

/// Keeps the window if it exceeds what it is allowed, and its concessions, by more than the worst
/// so far.
fn accuse(judgement: &mut TraceJudgement, concessions: &[Concession], mut window: ExceededWindow) {
    if window.admitted <= window.allowed.saturating_add(judgement.over) {
        return;
    }
    let overlapping = concessions
        .iter()
        .filter(|one| one.from_us <= window.to_us && one.to_us >= window.from_us);
    window.allowed = overlapping.fold(window.allowed, |allowed, one| {
        allowed.saturating_add(one.tokens)
    });
    let over = window.admitted.saturating_sub(window.allowed);
    if over > judgement.over {
        *judgement = TraceJudgement {
            over,
            worst: Some(window),
            ..*judgement
        };
    }
}

#[cfg(test)]
mod tests;
