//! Judges a limit of requests in flight.
//!
//! Guarantees to count a request only while it was in flight for certain: from the answer that
//! admitted it to the moment before its release. A limiter that keeps its limit is never accused.

use std::collections::HashMap;

use crate::judge::{ExceededWindow, TraceJudgement};

/// A request that was admitted, and certainly in flight from one time to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRequest {
    pub key: u32,
    /// Permits.
    pub cost: u64,
    pub from_us: u64,
    pub to_us: u64,
}

/// Finds the moment at which a key has the most permits over `most` in use.
pub fn judge_in_flight(held: &[HeldRequest], most: u64) -> TraceJudgement {
    // At the same time, releases come first: requests in flight are those that certainly overlap.
    let begins = held.iter().map(|one| (one.from_us, true, one));
    let ends = held.iter().map(|one| (one.to_us, false, one));
    let mut events: Vec<(u64, bool, &HeldRequest)> = begins
        .chain(ends)
        .filter(|(.., one)| one.from_us < one.to_us)
        .collect();
    events.sort_unstable_by_key(|(at_us, begins, one)| (*at_us, *begins, one.key));
    let admitted = held.iter().map(|one| one.cost).sum();
    let mut judgement = TraceJudgement {
        admitted,
        ..TraceJudgement::default()
    };
    let mut in_flight: HashMap<u32, u64> = HashMap::new();
    for (at_us, begins, &HeldRequest { key, cost, .. }) in events {
        let permits = in_flight.entry(key).or_default();
        *permits = if begins {
            *permits + cost
        } else {
            permits.saturating_sub(cost)
        };
        if permits.saturating_sub(most) > judgement.over {
            judgement.over = *permits - most;
            let moment = ExceededWindow {
                key,
                from_us: at_us,
                to_us: at_us,
                admitted: *permits,
                allowed: most,
            };
            judgement.worst = Some(moment);
        }
    }
    judgement
}

/// The part of the time from one to the other in which `most` permits of a key were in use.
pub fn use_of_permits(held: &[HeldRequest], most: u64, from_us: u64, to_us: u64) -> f64 {
    let used: u64 = held
        .iter()
        .map(|one| {
            one.to_us
                .min(to_us)
                .saturating_sub(one.from_us.max(from_us))
                * one.cost
        })
        .sum();
    used as f64 / (most as f64 * to_us.saturating_sub(from_us).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(key: u32, from_us: u64, to_us: u64) -> HeldRequest {
        HeldRequest {
            key,
            cost: 1,
            from_us,
            to_us,
        }
    }

    #[test]
    fn requests_that_certainly_overlap_are_counted_key_by_key() {
        let trace = [
            held(0, 0, 10),
            held(0, 5, 20),
            held(1, 5, 20),
            held(0, 10, 30),
        ];
        assert_eq!(
            judge_in_flight(&trace, 2).over,
            0,
            "one ends when another begins"
        );
        let judgement = judge_in_flight(&[trace[0], trace[1], trace[2], held(0, 9, 30)], 2);
        let worst = ExceededWindow {
            key: 0,
            from_us: 9,
            to_us: 9,
            admitted: 3,
            allowed: 2,
        };
        assert_eq!(
            (judgement.admitted, judgement.over, judgement.worst),
            (4, 1, Some(worst))
        );
    }

    #[test]
    fn an_empty_time_in_flight_counts_at_no_moment() {
        assert_eq!(
            judge_in_flight(&[held(0, 5, 5), held(0, 5, 5), held(0, 0, 10)], 1).over,
            0
        );
    }

    #[test]
    fn permits_in_use_are_counted_within_the_time_only() {
        let trace = [held(0, 0, 50), held(0, 50, 200), held(0, 90, 95)];
        assert!((use_of_permits(&trace, 2, 0, 100) - 0.525).abs() < 1e-9);
    }
}
