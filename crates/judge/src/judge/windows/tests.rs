//! Traces with known verdicts, and random ones compared with counting by definition.

use proptest::prelude::*;

use super::*;

const EXACT: ServerClock = ServerClock {
    least_us: 0,
    most_us: 0,
};

fn at(sent_us: u64, answered_us: u64) -> AdmittedRequest {
    AdmittedRequest {
        key: 0,
        cost: 1,
        sent_us,
        answered_us,
    }
}

#[test]
fn a_quota_in_each_of_two_windows_is_kept_and_one_more_in_either_is_not() {
    let both = [at(98, 99), at(99, 99), at(100, 100), at(101, 101)];
    assert_eq!(judge_fixed(&both, 2, 100, EXACT, &[]).over, 0);
    let three = [at(97, 98), at(98, 99), at(99, 99)];
    let judgement = judge_fixed(&three, 2, 100, EXACT, &[]);
    let worst = ExceededWindow {
        key: 0,
        from_us: 0,
        to_us: 100,
        admitted: 3,
        allowed: 2,
    };
    assert_eq!((judgement.over, judgement.worst), (1, Some(worst)));
}

#[test]
fn windows_begin_by_the_clock_of_the_store() {
    let trace = [at(30, 30), at(40, 40), at(70, 70)];
    assert_eq!(judge_fixed(&trace, 2, 100, EXACT, &[]).over, 1);
    let ahead = ServerClock {
        least_us: 50,
        most_us: 50,
    };
    assert_eq!(
        judge_fixed(&trace, 2, 100, ahead, &[]).over,
        0,
        "the third is in the next window"
    );
    let vague = ServerClock {
        least_us: 20,
        most_us: 40,
    };
    assert_eq!(
        judge_fixed(&trace, 2, 100, vague, &[]).over,
        0,
        "the third may be in the next window"
    );
}

#[test]
fn a_stretch_as_long_as_the_window_may_have_more_and_a_shorter_one_may_not() {
    assert_eq!(
        judge_sliding(&[at(0, 0), at(1, 1), at(100, 100)], 2, 100, &[]).over,
        0
    );
    let judgement = judge_sliding(&[at(0, 0), at(1, 1), at(99, 99)], 2, 100, &[]);
    assert_eq!(
        (judgement.over, judgement.worst.map(|worst| worst.from_us)),
        (1, Some(0))
    );
}

#[test]
fn a_concession_excuses_the_windows_that_overlap_it() {
    let trace = [at(10, 10), at(11, 11), at(210, 210), at(211, 211)];
    let conceded = |from_us, to_us| {
        let concessions = [Concession {
            from_us,
            to_us,
            tokens: 1,
            repaid_us: u64::MAX,
        }];
        let fixed = judge_fixed(&trace, 1, 100, EXACT, &concessions);
        (fixed.over, judge_sliding(&trace, 1, 100, &concessions).over)
    };
    assert_eq!(conceded(0, 300), (0, 0));
    assert_eq!(conceded(0, 50), (1, 1));
}

/// By definition: every stretch from a question on.
fn by_counting(admissions: &[AdmittedRequest], quota: u64, width_us: u64) -> u64 {
    admissions
        .iter()
        .map(|from| {
            let within = admissions.iter().filter(|one| {
                one.sent_us >= from.sent_us && one.answered_us < from.sent_us + width_us
            });
            within
                .map(|one| one.cost)
                .sum::<u64>()
                .saturating_sub(quota)
        })
        .max()
        .unwrap_or_default()
}

proptest! {
    #[test]
    fn the_worst_stretch_is_the_one_that_counting_finds(
        trace in prop::collection::vec((0_u64..300, 0_u64..120, 1_u64..4), 1..40),
        quota in 1_u64..8,
        width_us in 1_u64..150,
    ) {
        let trace: Vec<AdmittedRequest> = trace
            .into_iter()
            .map(|(sent_us, took, cost)| AdmittedRequest { key: 0, cost, sent_us, answered_us: sent_us + took })
            .collect();
        prop_assert_eq!(judge_sliding(&trace, quota, width_us, &[]).over, by_counting(&trace, quota, width_us));
    }
}
