use proptest::prelude::*;

use super::*;
use crate::algorithm::concurrency::Scope;
use crate::algorithm::token_bucket::TokenBucketError;
use crate::algorithm::window::WindowError;
use crate::limit::algorithm::Rate;

const BUCKET: AlgorithmKind = AlgorithmKind::TokenBucket;
const SLIDING: AlgorithmKind = AlgorithmKind::SlidingWindow;

fn nonzero(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

fn fixed(zone: Option<&str>) -> AlgorithmKind {
    AlgorithmKind::FixedWindow {
        zone: zone.map(Into::into),
    }
}

fn steady(tokens: u64, seconds: u64) -> Rate {
    Rate {
        tokens: nonzero(tokens),
        period_us: nonzero(seconds * 1_000_000),
    }
}

fn with_cost(algorithm: Algorithm, cost: Option<u64>) -> Result<Plan, PlanError> {
    Ok(Plan::new(algorithm, cost.map(|cost| Cost::Fixed(nonzero(cost)))).unwrap())
}

fn plan(tokens: u64, seconds: u64, burst: u64, cost: Option<u64>) -> Result<Plan, PlanError> {
    with_cost(
        Algorithm::TokenBucket {
            rate: steady(tokens, seconds),
            burst: nonzero(burst),
        },
        cost,
    )
}

#[test]
fn requests_in_flight_have_plans_of_their_own() {
    let kind = AlgorithmKind::Concurrency { scope: Scope::Node };
    let most = Algorithm::Concurrency {
        most: nonzero(50),
        scope: Scope::Node,
    };
    assert_eq!(
        Plan::read(b"max_in_flight=50 cost=2", &kind),
        with_cost(most, Some(2))
    );
    assert_eq!(
        Plan::read(b"100/s", &kind),
        Err(PlanError::Unsupported(Unsupported::Rate("concurrency")))
    );
    assert_eq!(
        Plan::read(b"max_in_flight=50", &BUCKET),
        Err(PlanError::Unsupported(Unsupported::Permits("token_bucket")))
    );
    assert_eq!(
        Plan::read(b"max_in_flight=50 burst=2", &kind),
        Err(PlanError::Word)
    );
    let closed = Plan::read(b"max_in_flight=0", &kind).unwrap();
    assert!(closed.is_closed() && !Plan::read(b"max_in_flight=1", &kind).unwrap().is_closed());
    assert_eq!(
        Plan::read(b"max_in_flight=50 cost=51", &kind),
        Err(PlanError::Cost)
    );
}

#[test]
fn a_plan_is_written_as_in_the_file() {
    for (text, read) in [
        ("100/s", plan(100, 1, 100, None)),
        ("3/90s", plan(3, 90, 3, None)),
        ("100/s burst=200", plan(100, 1, 200, None)),
        ("1000/h cost=2 burst=50", plan(1_000, 3_600, 50, Some(2))),
        (" 5/d  burst=007 \n", plan(5, 86_400, 7, None)),
        ("10/s cost=10", plan(10, 1, 10, Some(10))),
    ] {
        assert_eq!(Plan::read(text.as_bytes(), &BUCKET), read, "{text:?}");
    }
}

#[cfg(feature = "calendar")]
#[test]
fn a_plan_counts_as_its_limit_does() {
    let sliding = with_cost(
        Algorithm::SlidingWindow {
            rate: steady(5, 90),
        },
        Some(5),
    );
    assert_eq!(Plan::read(b"5/90s cost=5", &SLIDING), sliding);
    for zone in [None, Some("Europe/Berlin")] {
        let hourly = Algorithm::FixedWindow {
            rate: WindowRate {
                tokens: nonzero(100),
                per: WindowLength::Micros(nonzero(3_600_000_000)),
            },
            zone: zone.map(Into::into),
        };
        assert_eq!(Plan::read(b"100/h", &fixed(zone)), with_cost(hourly, None));
        let monthly = Algorithm::FixedWindow {
            rate: WindowRate {
                tokens: nonzero(1_000),
                per: WindowLength::Month,
            },
            zone: zone.map(Into::into),
        };
        assert_eq!(
            Plan::read(b"1000/month cost=2", &fixed(zone)),
            with_cost(monthly, Some(2))
        );
    }
}

#[test]
fn what_another_algorithm_counts_by_is_no_plan() {
    let berlin = fixed(Some("Europe/Berlin"));
    let too_large = QuotaError::Window(WindowError::QuotaTooLarge);
    for (text, kind, why) in [
        (
            "100/s burst=100",
            &SLIDING,
            PlanError::Unsupported(Unsupported::Burst("sliding_window")),
        ),
        (
            "100/s burst=200",
            &fixed(None),
            PlanError::Unsupported(Unsupported::Burst("fixed_window")),
        ),
        (
            "1000/month",
            &SLIDING,
            PlanError::Unsupported(Unsupported::Month("sliding_window")),
        ),
        (
            "1000/month burst=5",
            &BUCKET,
            PlanError::Unsupported(Unsupported::Month("token_bucket")),
        ),
        ("1000/2month", &fixed(None), PlanError::Rate),
        ("100/s cost=101", &SLIDING, PlanError::Cost),
        ("100/month cost=101", &fixed(None), PlanError::Cost),
        ("5/90s", &berlin, PlanError::Quota(QuotaError::NoUnit)),
        ("1000000001/s", &SLIDING, PlanError::Quota(too_large)),
        (
            "1/367d",
            &fixed(None),
            PlanError::Quota(QuotaError::Window(WindowError::TooLong)),
        ),
    ] {
        assert_eq!(
            Plan::read(text.as_bytes(), kind),
            Err(why),
            "{text:?} {kind:?}"
        );
    }
}

#[test]
fn a_rate_of_nothing_is_a_closed_plan_and_no_mistake() {
    for text in [
        "0/h",
        "00/90s",
        "0/s burst=200",
        "0/d burst=400",
        "0/h cost=7",
    ] {
        let plan = Plan::read(text.as_bytes(), &BUCKET).unwrap();
        assert!(
            plan.is_closed() && plan.algorithm().burst().get() == 1,
            "{text}"
        );
    }
    assert!(Plan::read(b"0/5m", &SLIDING).unwrap().is_closed());
    assert_eq!(Plan::read(b"0/w", &BUCKET), Err(PlanError::Rate));
}

#[test]
fn what_is_nearly_a_plan_is_none() {
    for (text, why) in [
        ("", PlanError::Rate),
        ("gold", PlanError::Rate),
        ("0", PlanError::Rate),
        ("-1/s", PlanError::Rate),
        ("1.5/s", PlanError::Rate),
        ("100", PlanError::Rate),
        ("100 /s", PlanError::Rate),
        ("100/w", PlanError::Rate),
        ("burst=200 100/s", PlanError::Rate),
        ("18446744073709551616/s", PlanError::Rate),
        ("100/s 200", PlanError::Word),
        ("100/s, burst=200", PlanError::Rate),
        ("100/s burst =200", PlanError::Word),
        ("100/s Burst=200", PlanError::Word),
        ("100/s brust=200", PlanError::Word),
        ("100/s burst=200 burst=200", PlanError::Word),
        ("100/s burst=", PlanError::Burst),
        ("100/s burst=0", PlanError::Burst),
        ("100/s burst=1k", PlanError::Burst),
        ("100/s burst=1000000001", PlanError::Burst),
        ("100/s cost=0", PlanError::Cost),
        ("100/s cost=101", PlanError::Cost),
        ("100/s burst=5 cost=6", PlanError::Cost),
        ("100/s cost==1", PlanError::Cost),
        (
            "20000000/s",
            PlanError::Quota(TokenBucketError::TooFast.into()),
        ),
        (
            "1/d burst=400",
            PlanError::Quota(TokenBucketError::TooSlow.into()),
        ),
        ("100/s \u{a0}", PlanError::NotText),
    ] {
        assert_eq!(Plan::read(text.as_bytes(), &BUCKET), Err(why), "{text:?}");
    }
    assert_eq!(Plan::read(b"\xff", &BUCKET), Err(PlanError::NotText));
    let longest = format!("1/s{}", " ".repeat(LONGEST_TEXT - 3));
    assert!(Plan::read(longest.as_bytes(), &BUCKET).is_ok());
    let too_long = longest + " ";
    assert_eq!(
        Plan::read(too_long.as_bytes(), &BUCKET),
        Err(PlanError::NotText)
    );
}

proptest! {
    #[test]
    fn any_text_is_a_plan_or_none_and_a_plan_lets_a_request_pass(text in "[0-9]{1,9}/[0-9]{0,2}(s|m|h|d|month)( (burst|cost)=[0-9]{1,9}){0,2}|[0-9/smhd a-z=burstco]{0,40}", bytes: Vec<u8>) {
        for kind in [BUCKET, SLIDING, fixed(None), fixed(Some("Europe/Berlin"))] {
            let _ = Plan::read(&bytes, &kind);
            if let Ok(plan) = Plan::read(text.as_bytes(), &kind) {
                let cost = plan.cost().map_or(1, |cost| cost.largest().get());
                prop_assert!(plan.compiled().holds(cost) && plan.algorithm().kind() == kind);
            }
        }
    }
}
