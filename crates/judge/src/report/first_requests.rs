//! First requests of fresh keys, after a lone crash: nobody has used their buckets, so nobody may
//! deny them once the others know that the node is gone.
//!
//! Guarantees that no limiter is accused that has admitted another request for the key meanwhile,
//! or may have.

use crate::report::Requirement;
use crate::report::observations::{Observation, Observations};

/// The time after a crash in which the others may deny: until they know of it, 2 s, and a margin of
/// one more.
pub const KNOWN_US: u64 = 3_000_000;

/// The first requests of a stretch of time.
#[derive(Default)]
struct FirstRequests {
    asked: u32,
    denied: u32,
}

/// The demands of a run in which a node had crashed by `crashed_us`: none, where clients did not
/// ask for fresh keys.
pub fn requirements(observed: &Observations, crashed_us: Option<u64>) -> Vec<Requirement> {
    let mut requests = observed.of_fresh.clone();
    if requests.is_empty() {
        return Vec::new();
    }
    requests.sort_unstable_by_key(|request| (request.key, request.sent_us));
    let crashed_us = crashed_us.unwrap_or(u64::MAX);
    let known_us = crashed_us.saturating_add(KNOWN_US);
    let mut early = FirstRequests::default();
    let mut late = FirstRequests::default();
    for of_key in requests.chunk_by(|a, b| a.key == b.key) {
        match of_key {
            [first, others @ ..] if first.sent_us >= known_us => late.count(first, others),
            [first, others @ ..] if first.sent_us >= crashed_us => early.count(first, others),
            _ => {}
        }
    }
    let seconds = KNOWN_US / 1_000_000;
    let FirstRequests { asked, denied } = early;
    let name = format!(
        "first requests of fresh keys within {seconds} s after the crash: {denied} of {asked} denied; later"
    );
    let some = Requirement {
        name,
        found: late.asked.into(),
        least: 1.0,
        most: f64::MAX,
    };
    let none = Requirement {
        name: "denied of these".to_owned(),
        found: late.denied.into(),
        least: 0.0,
        most: 0.0,
    };
    vec![some, none]
}

impl FirstRequests {
    /// Counts the request for a key that was sent first, unless nobody knows its answer.
    fn count(&mut self, first: &Observation, others: &[Observation]) {
        if first.admitted.is_none() && !first.is_denied() {
            return;
        }
        self.asked += 1;
        // A request that was under way at the same time may have had the tokens.
        let overtaken = others
            .iter()
            .any(|other| other.sent_us <= first.now_us && !other.is_denied());
        if first.is_denied() && !overtaken {
            self.denied += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::observations::AnswerKind;

    const CRASH_US: u64 = 1_000_000;
    const LATE_US: u64 = CRASH_US + KNOWN_US;

    /// A request that took 10 µs.
    fn request(key: u32, sent_us: u64, status: u16) -> Observation {
        let admits = AnswerKind::admits(status) == Some(true);
        Observation {
            key,
            sent_us,
            now_us: sent_us + 10,
            answer: AnswerKind::Status(status),
            admitted: admits.then_some(1),
            expected: 1,
        }
    }

    /// The requests late after the crash that are counted and denied, and whether each demand is
    /// met.
    fn judged(of_fresh: &[Observation]) -> (Vec<f64>, Vec<bool>) {
        let observed = Observations {
            of_fresh: of_fresh.to_vec(),
            ..Observations::default()
        };
        let requirements = requirements(&observed, Some(CRASH_US));
        let found = requirements.iter().map(|one| one.found).collect();
        (
            found,
            requirements.iter().map(Requirement::is_met).collect(),
        )
    }

    #[test]
    fn a_first_request_that_is_denied_late_after_the_crash_is_a_broken_promise() {
        let denied = request(2, LATE_US, 429);
        let admitted = request(1, LATE_US, 200);
        let repeated = request(1, LATE_US + 20, 429);
        let kept = judged(&[repeated, admitted]);
        assert_eq!(kept, (vec![1.0, 0.0], vec![true, true]));
        let broken = judged(&[repeated, denied, admitted]);
        assert_eq!(broken, (vec![2.0, 1.0], vec![true, false]));
    }

    #[test]
    fn until_the_others_know_of_the_crash_denials_are_told_and_no_broken_promise() {
        let observed = Observations {
            of_fresh: vec![
                request(1, CRASH_US - 1, 429),
                request(2, CRASH_US, 429),
                request(3, LATE_US - 1, 200),
                request(4, LATE_US, 200),
            ],
            ..Observations::default()
        };
        let requirements = requirements(&observed, Some(CRASH_US));
        assert!(requirements.iter().all(Requirement::is_met));
        let name = &requirements[0].name;
        assert!(name.contains("1 of 2 denied"), "{name}");
    }

    #[test]
    fn a_request_that_others_may_have_overtaken_accuses_nobody() {
        for (other_us, status, denied) in [
            (LATE_US + 10, 200, 0.0),
            (LATE_US + 10, 502, 0.0),
            (LATE_US + 10, 429, 1.0),
            (LATE_US + 11, 200, 1.0),
        ] {
            let requests = [request(1, LATE_US, 429), request(1, other_us, status)];
            let (found, _) = judged(&requests);
            assert_eq!(found, [1.0, denied], "{other_us} {status}");
        }
    }

    #[test]
    fn a_run_in_which_nobody_asked_late_enough_has_no_verdict_to_give() {
        for requests in [[request(1, LATE_US - 1, 200)], [request(1, LATE_US, 502)]] {
            assert_eq!(judged(&requests), (vec![0.0, 0.0], vec![false, true]));
        }
        let steady = Observations::default();
        assert!(requirements(&steady, Some(CRASH_US)).is_empty());
    }
}
