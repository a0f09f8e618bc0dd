//! Traces with known verdicts, and random ones compared with counting by definition.

use proptest::prelude::*;

use super::*;

fn limit(tokens: u64, burst: u64) -> TestedLimit {
    TestedLimit::per_second(tokens, burst)
}

fn at(sent_us: u64, answered_us: u64) -> AdmittedRequest {
    AdmittedRequest {
        key: 0,
        cost: 1,
        sent_us,
        answered_us,
    }
}

#[test]
fn a_burst_and_its_refill_are_kept_and_one_more_is_not() {
    // 10/s, burst 2: two at once, the third 100 ms later.
    let kept = [at(0, 0), at(0, 0), at(100_000, 100_000)];
    assert_eq!(
        judge(&kept, &limit(10, 2), &[]),
        TraceJudgement {
            admitted: 3,
            over: 0,
            worst: None
        }
    );
    let early = [at(0, 0), at(0, 0), at(99_999, 99_999)];
    let judgement = judge(&early, &limit(10, 2), &[]);
    assert_eq!(judgement.over, 1);
    assert_eq!(
        judgement.worst,
        Some(ExceededWindow {
            key: 0,
            from_us: 0,
            to_us: 99_999,
            admitted: 3,
            allowed: 2
        })
    );
}

#[test]
fn a_single_request_too_many_is_found_anywhere_in_a_full_trace() {
    // 1000/s, burst 5, taken to the full; each is answered at once.
    let full: Vec<AdmittedRequest> = (0..5)
        .map(|_| at(0, 0))
        .chain((1..500).map(|n| at(n * 1_000, n * 1_000)))
        .collect();
    assert_eq!(judge(&full, &limit(1_000, 5), &[]).over, 0);
    for place in [0, 3, 250, 503] {
        let mut trace = full.clone();
        trace.push(full[place]);
        assert_eq!(judge(&trace, &limit(1_000, 5), &[]).over, 1, "at {place}");
    }
}

#[test]
fn a_late_answer_is_no_accusation() {
    // The third may have happened as late as its answer.
    let slow = [at(0, 0), at(0, 0), at(50_000, 100_000)];
    assert_eq!(judge(&slow, &limit(10, 2), &[]).over, 0);
    assert_eq!(judge(&as_answered(&slow), &limit(10, 2), &[]).over, 0);
    // Answers that arrive together tell nothing of when they were given.
    let together = [
        at(0, 300_000),
        at(100_000, 300_000),
        at(200_000, 300_000),
        at(250_000, 300_000),
    ];
    assert_eq!(judge(&together, &limit(10, 2), &[]).over, 0);
    assert_eq!(judge(&as_answered(&together), &limit(10, 2), &[]).over, 2);
}

#[test]
fn keys_are_judged_each_for_itself() {
    let two = [at(0, 0), AdmittedRequest { key: 1, ..at(0, 0) }];
    assert_eq!(judge(&two, &limit(10, 1), &[]).over, 0);
    let three = [
        at(0, 0),
        AdmittedRequest {
            key: 7,
            cost: 3,
            ..at(5, 5)
        },
    ];
    assert_eq!(
        judge(&three, &limit(10, 1), &[])
            .worst
            .map(|window| window.key),
        Some(7)
    );
}

#[test]
fn a_concession_excuses_the_windows_that_overlap_it_and_no_others() {
    let trace = [
        at(0, 0),
        at(10, 10),
        at(500_000, 500_000),
        at(500_010, 500_010),
    ];
    let limit = limit(1, 1);
    let conceded = |from_us, to_us| {
        judge(
            &trace,
            &limit,
            &[Concession {
                from_us,
                to_us,
                tokens: 1,
                repaid_us: u64::MAX,
            }],
        )
        .over
    };
    assert_eq!(judge(&trace, &limit, &[]).over, 3);
    assert_eq!(conceded(0, 600_000), 2);
    assert_eq!(conceded(10, 500_000), 2);
    assert_eq!(conceded(501_000, 502_000), 3);
    let both = [(0, 10), (500_000, 500_010)].map(|(from_us, to_us)| Concession {
        from_us,
        to_us,
        tokens: 3,
        repaid_us: u64::MAX,
    });
    assert_eq!(judge(&trace, &limit, &both).over, 0);
}

#[test]
fn what_must_be_repaid_is_conceded_to_no_window_that_ends_later() {
    let trace = [
        at(0, 0),
        at(10, 10),
        at(500_000, 500_000),
        at(500_010, 500_010),
    ];
    let over = |repaid_us| {
        let conceded = Concession {
            from_us: 0,
            to_us: 100,
            tokens: 5,
            repaid_us,
        };
        judge(&trace, &limit(1, 1), &[conceded])
            .worst
            .map(|window| (window.from_us, window.allowed))
    };
    assert_eq!(
        over(u64::MAX),
        Some((500_000, 1)),
        "later windows overlap no concession"
    );
    assert_eq!(
        over(500_000),
        Some((0, 1)),
        "nothing flowed in, and nothing was repaid"
    );
}

/// By definition: every window from a sent request to an answer.
fn by_counting(
    admissions: &[AdmittedRequest],
    limit: &TestedLimit,
    concessions: &[Concession],
) -> u64 {
    let mut over = 0;
    for from in admissions {
        for to in admissions
            .iter()
            .filter(|to| to.answered_us >= from.sent_us)
        {
            let x = from.sent_us;
            let y = to.answered_us;
            let within = admissions
                .iter()
                .filter(|one| one.sent_us >= x && one.answered_us <= y);
            let admitted: u64 = within.map(|one| one.cost).sum();
            let overlapping = concessions
                .iter()
                .filter(|one| one.from_us <= y && one.to_us >= x);
            let conceded: u64 = overlapping
                .filter(|one| y < one.repaid_us)
                .map(|one| one.tokens)
                .sum();
            over = over.max(admitted.saturating_sub(limit.bound(y - x) + conceded));
        }
    }
    over
}

/// The requests that a token bucket admits of a random load, each sent before and answered after
/// it.
fn conforming(limit: &TestedLimit, steps: &[(u64, u64, u64, u64)]) -> Vec<AdmittedRequest> {
    let bucket = crate::judge::reference_bucket::ReferenceBucket::default();
    let mut now = 1_000_000;
    let mut trace = Vec::new();
    for (wait, cost, before, after) in steps {
        now += wait;
        if bucket.take(limit, *cost, now) {
            trace.push(AdmittedRequest {
                key: 0,
                cost: *cost,
                sent_us: now - before,
                answered_us: now + after,
            });
        }
    }
    trace
}

fn steps() -> impl Strategy<Value = Vec<(u64, u64, u64, u64)>> {
    prop::collection::vec(
        (0_u64..40_000, 1_u64..4, 0_u64..30_000, 0_u64..30_000),
        1..120,
    )
}

proptest! {
    #[test]
    fn a_limiter_that_keeps_its_limit_is_never_accused(steps in steps(), tokens in 1_u64..500, burst in 1_u64..20) {
        let limit = limit(tokens, burst);
        prop_assert_eq!(judge(&conforming(&limit, &steps), &limit, &[]).over, 0);
    }

    #[test]
    fn one_request_too_many_is_found_where_it_fits_no_window(
        steps in steps(), tokens in 1_u64..500, burst in 1_u64..20, place in 0_usize..120,
    ) {
        let limit = limit(tokens, burst);
        let mut trace = conforming(&limit, &steps);
        prop_assume!(!trace.is_empty());
        let beside = trace[place % trace.len()];
        trace.push(AdmittedRequest { cost: burst + 1, ..beside });
        let width = beside.answered_us - beside.sent_us;
        // The tokens that flow in between sending and answer may have paid for it.
        prop_assume!(limit.bound(width) < burst + 1 + beside.cost);
        prop_assert!(judge(&trace, &limit, &[]).over > 0);
    }

    #[test]
    fn the_worst_window_is_the_one_that_counting_finds(
        trace in prop::collection::vec((0_u64..300_000, 0_u64..60_000, 1_u64..4), 1..40),
        concessions in prop::collection::vec((0_u64..300_000, 0_u64..60_000, 1_u64..6, 0_u64..200_000), 0..3),
        tokens in 1_u64..100,
        burst in 1_u64..8,
    ) {
        let limit = limit(tokens, burst);
        let trace: Vec<AdmittedRequest> = trace
            .into_iter()
            .map(|(sent_us, took, cost)| AdmittedRequest { key: 0, cost, sent_us, answered_us: sent_us + took })
            .collect();
        let concessions: Vec<Concession> = concessions
            .into_iter()
            .map(|(from_us, took, tokens, later)| {
                let to_us = from_us + took;
                Concession { from_us, to_us, tokens, repaid_us: to_us + later }
            })
            .collect();
        let judgement = judge(&trace, &limit, &concessions);
        prop_assert_eq!(judgement.over, by_counting(&trace, &limit, &concessions));
        if let Some(worst) = judgement.worst {
            prop_assert_eq!(worst.admitted - worst.allowed, judgement.over);
        }
    }
}
