use std::collections::HashMap;

use super::*;
use crate::rollout::counters::RouteReading;
use tollgate_config::CandidateBounds;
use tollgate_limiter::clock;

const SECOND: Duration = Duration::from_secs(1);

fn terms(bounds: CandidateBounds) -> CandidateTerms {
    CandidateTerms {
        bounds,
        over: 5 * SECOND,
        least: 50,
        promote_after: None,
    }
}

/// A window that has seen so many requests of each second, and what it said of each: from the first
/// that ends it.
fn end(terms: CandidateTerms, seconds: &[CandidateTotals]) -> Option<(usize, CandidateVerdict)> {
    let began = clock::now();
    let mut totals = CandidateTotals {
        decisions: 1_000,
        denied: 1_000,
        requests: 1_000,
        errors: 1_000,
        ..totals(0, 0)
    };
    let mut window = CandidateWindow::new(terms, began, of_one_route(totals));
    let mut verdicts = (1..).zip(seconds).map(|(second, more)| {
        totals.decisions += more.decisions;
        totals.denied += more.denied;
        totals.requests += more.requests;
        totals.errors += more.errors;
        totals
            .latency
            .iter_mut()
            .zip(more.latency)
            .for_each(|(count, more)| *count += more);
        (
            second,
            window.advance(
                began + u32::try_from(second).unwrap_or(0) * SECOND,
                of_one_route(totals),
            ),
        )
    });
    verdicts.find(|(_, verdict)| *verdict != CandidateVerdict::GoesOn)
}

fn totals(decisions: u64, denied: u64) -> CandidateTotals {
    CandidateTotals {
        decisions,
        denied,
        requests: decisions,
        ..CandidateTotals::default()
    }
}

/// A reading of a candidate that counts one route.
fn of_one_route(totals: CandidateTotals) -> CandidateReading {
    let CandidateTotals {
        decisions,
        denied,
        requests,
        errors,
        latency,
    } = totals;
    let routes = HashMap::from([(
        "orders".into(),
        RouteReading {
            requests,
            errors,
            latency,
        },
    )]);
    CandidateReading {
        decisions,
        denied,
        routes,
    }
}

/// A reading of a candidate that counts these routes: their names, requests and errors.
fn of_routes(routes: &[(&str, u64, u64)]) -> CandidateReading {
    let reading = |(name, requests, errors): &(&str, u64, u64)| {
        (
            (*name).into(),
            RouteReading {
                requests: *requests,
                errors: *errors,
                ..RouteReading::default()
            },
        )
    };
    CandidateReading {
        routes: routes.iter().map(reading).collect(),
        ..CandidateReading::default()
    }
}

/// The verdicts of a window with a bound of 5 % errors on each second's reading after the first.
fn judged(readings: &[&[(&str, u64, u64)]]) -> Vec<String> {
    let (began, errors) = (
        clock::now(),
        CandidateBounds {
            errors: Some(500),
            ..CandidateBounds::default()
        },
    );
    let mut window = CandidateWindow::new(terms(errors), began, of_routes(readings[0]));
    let seconds = (1_u32..).zip(&readings[1..]);
    seconds
        .map(|(second, routes)| {
            shown(Some((
                0,
                window.advance(began + second * SECOND, of_routes(routes)),
            )))
            .1
        })
        .collect()
}

fn shown(end: Option<(usize, CandidateVerdict)>) -> (usize, String) {
    match end {
        Some((second, CandidateVerdict::Abort(broken))) => (second, broken.to_string()),
        Some((second, CandidateVerdict::Promote(passed))) => (second, passed.to_string()),
        _ => (0, String::new()),
    }
}

#[test]
fn a_share_over_its_bound_ends_a_candidate_once_there_are_enough_requests() {
    let denials = CandidateBounds {
        denials: Some(500),
        ..CandidateBounds::default()
    };
    let found = end(
        terms(denials),
        &[totals(20, 6), totals(20, 6), totals(20, 6)],
    );
    assert_eq!(
        shown(found),
        (
            3,
            "denials were 30.0% of 60 requests in 3.0 s, over 5%".to_owned()
        )
    );
    assert_eq!(
        end(terms(denials), &[totals(1_000, 50); 20]),
        None,
        "the bound itself is allowed"
    );
    let found = end(terms(denials), &[totals(9, 9); 20]);
    assert_eq!(
        shown(found),
        (
            6,
            "denials were 100.0% of 54 requests in 6.0 s, over 5%".to_owned()
        ),
        "few a second"
    );
    assert_eq!(
        end(terms(denials), &[totals(2, 2); 20]),
        None,
        "there are never enough"
    );
    let errors = CandidateBounds {
        errors: Some(50),
        ..CandidateBounds::default()
    };
    let failing = CandidateTotals {
        errors: 1,
        ..totals(100, 100)
    };
    let found = end(terms(errors), &[totals(100, 100), failing]);
    assert_eq!(found, None, "half a percent is allowed");
    let found = end(terms(errors), &[failing]);
    assert_eq!(
        shown(found),
        (
            1,
            "answers 5xx were 1.0% of 100 requests in 1.0 s, over 0.5%".to_owned()
        )
    );
}

#[test]
fn what_is_older_than_the_window_does_not_count() {
    let denials = CandidateBounds {
        denials: Some(5_000),
        ..CandidateBounds::default()
    };
    let mut seconds = vec![totals(100, 0); 60];
    seconds.extend([totals(100, 100); 4]);
    let found = end(terms(denials), &seconds);
    assert_eq!(
        shown(found),
        (
            63,
            "denials were 60.0% of 500 requests in 5.0 s, over 50%".to_owned()
        )
    );
}

#[test]
fn the_latency_of_most_requests_is_bounded() {
    let most = Some(Duration::from_millis(100));
    let latency = CandidateBounds {
        latency: most,
        ..CandidateBounds::default()
    };
    let of = |fast: u64, slow: u64| {
        let mut totals = totals(fast + slow, 0);
        (totals.latency[0], totals.latency[BUCKETS - 1]) = (fast, slow);
        totals
    };
    assert_eq!(end(terms(latency), &[of(995, 5)]), None);
    let found = end(terms(latency), &[of(980, 20)]);
    assert_eq!(
        shown(found),
        (
            1,
            "the latency of 99 % of 1000 requests in 1.0 s was 60000 ms, over 100ms".to_owned()
        )
    );
}

#[test]
fn a_candidate_that_was_asked_and_stayed_within_its_bounds_passes() {
    let denials = CandidateBounds {
        denials: Some(500),
        ..CandidateBounds::default()
    };
    let terms = CandidateTerms {
        promote_after: Some(6 * SECOND),
        ..terms(denials)
    };
    let found = end(terms, &[totals(10, 0); 10]);
    let words = "within its bounds for 6 s: denials were 0.0% of 60 requests, answers 5xx 0.0%";
    assert_eq!(shown(found), (6, words.to_owned()));
    assert_eq!(
        end(terms, &[totals(1, 0); 40]),
        None,
        "too few requests speak for it"
    );
    let found = end(
        CandidateTerms {
            promote_after: Some(30 * SECOND),
            ..terms
        },
        &[totals(3, 3); 60],
    );
    assert_eq!(
        shown(found),
        (
            17,
            "denials were 100.0% of 51 requests in 17.0 s, over 5%".to_owned()
        )
    );
}

#[test]
fn a_window_keeps_few_samples_while_nothing_is_counted() {
    let began = clock::now();
    let mut window = CandidateWindow::new(
        terms(CandidateBounds::default()),
        began,
        of_one_route(totals(0, 0)),
    );
    for second in 1..10_000_u32 {
        window.advance(
            began + second * SECOND,
            of_one_route(totals(u64::from(second / 1_000), 0)),
        );
    }
    for samples in [&window.decisions, &window.requests] {
        assert!(samples.kept.len() <= 20, "{}", samples.kept.len());
    }
}

#[test]
fn a_window_that_never_has_enough_keeps_samples_at_even_distances() {
    let began = clock::now();
    let bounds = CandidateBounds {
        errors: Some(5_000),
        ..CandidateBounds::default()
    };
    let mut window = CandidateWindow::new(
        CandidateTerms {
            least: 10_000,
            ..terms(bounds)
        },
        began,
        of_one_route(totals(0, 0)),
    );
    let mut requests = CandidateTotals::default();
    for second in 1..=86_400_u32 {
        // The limit decides on one request of ten seconds, and the route has one of two.
        requests.decisions = u64::from(second / 10);
        requests.requests = u64::from(second / 2);
        assert_eq!(
            window.advance(began + second * SECOND, of_one_route(requests)),
            CandidateVerdict::GoesOn
        );
        assert!(
            window.decisions.kept.len() <= MOST_SAMPLES
                && window.requests.kept.len() <= MOST_SAMPLES
        );
    }
    let (since, before) = window.requests.kept[0];
    let counted = requests.since(&before).requests;
    assert!(
        (10_000..10_200).contains(&counted),
        "{counted} requests are judged"
    );
    assert!(window.decisions.kept[0].0 < since, "too few decisions yet");
    // Three of four of the last requests fail, and of the day's, one of four.
    requests.requests += 20_000;
    requests.errors += 15_000;
    let verdict = window.advance(began + 86_410 * SECOND, of_one_route(requests));
    assert!(matches!(verdict, CandidateVerdict::Abort(_)), "{verdict:?}");
}

#[test]
fn errors_are_judged_by_requests_where_the_limit_decides_on_few() {
    let errors = CandidateBounds {
        errors: Some(500),
        ..CandidateBounds::default()
    };
    let mut seconds = vec![
        CandidateTotals {
            decisions: 0,
            ..totals(100, 0)
        };
        600
    ];
    seconds.extend(
        [CandidateTotals {
            decisions: 0,
            errors: 10,
            ..totals(100, 0)
        }; 10],
    );
    let found = end(terms(errors), &seconds);
    assert_eq!(
        shown(found),
        (
            603,
            "answers 5xx were 6.0% of 500 requests in 5.0 s, over 5%".to_owned()
        )
    );
}

#[test]
fn a_route_that_leaves_takes_nothing_away_from_what_is_judged() {
    let found = judged(&[
        &[("orders", 10_000, 0), ("carts", 0, 0)],
        &[("orders", 10_040, 0), ("carts", 0, 0)],
        &[("carts", 40, 40)],
    ]);
    assert_eq!(
        found,
        [
            "",
            "answers 5xx were 50.0% of 80 requests in 2.0 s, over 5%"
        ]
    );
    let found = judged(&[
        &[("orders", 10_000, 9_000), ("carts", 0, 0)],
        &[("carts", 0, 0)],
        &[("carts", 100, 100)],
    ]);
    assert_eq!(
        found,
        [
            "",
            "answers 5xx were 100.0% of 100 requests in 2.0 s, over 5%"
        ]
    );
}

#[test]
fn old_errors_of_a_route_that_joins_do_not_count() {
    let found = judged(&[
        &[("orders", 0, 0)],
        &[("orders", 100, 0), ("carts", 1_000, 1_000)],
        &[("orders", 200, 0), ("carts", 1_100, 1_000)],
        &[("orders", 200, 0)],
        &[("orders", 200, 0), ("carts", 9_000, 9_000)],
        &[("orders", 200, 0), ("carts", 9_100, 9_100)],
    ]);
    assert_eq!(
        found,
        [
            "",
            "",
            "",
            "",
            "answers 5xx were 25.0% of 400 requests in 5.0 s, over 5%"
        ]
    );
}

#[test]
fn a_candidate_does_not_pass_before_its_errors_and_latency_could_be_judged() {
    let bounds = CandidateBounds {
        denials: Some(500),
        ..CandidateBounds::default()
    };
    let terms = |bounds| CandidateTerms {
        promote_after: Some(6 * SECOND),
        ..terms(bounds)
    };
    let unanswered = CandidateTotals {
        requests: 0,
        ..totals(100, 0)
    };
    assert_eq!(
        shown(end(terms(bounds), &[unanswered; 20])).0,
        6,
        "denials are all that is bounded"
    );
    let errors = CandidateBounds {
        errors: Some(500),
        ..bounds
    };
    let latency = CandidateBounds {
        latency: Some(SECOND),
        ..bounds
    };
    let mut answered = totals(100, 0);
    answered.latency[0] = 100;
    for bounds in [errors, latency] {
        let mut seconds = vec![unanswered; 20];
        assert_eq!(end(terms(bounds), &seconds), None);
        seconds.push(answered);
        let words =
            "within its bounds for 21 s: denials were 0.0% of 2100 requests, answers 5xx 0.0%";
        assert_eq!(shown(end(terms(bounds), &seconds)), (21, words.to_owned()));
    }
}
