use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, Request, StatusCode};

use super::*;
use crate::decide::check::Checks;
use crate::decide::plans::cache::PlanCache;
use crate::limit::algorithm::{Algorithm, CompiledAlgorithm, Rate, WindowLength, WindowRate};
use crate::limit::cost::{Cost, CostField, ResponseCost};
use crate::limit::definition::Limit;
use crate::limit::fixed_response::FixedResponse;
use crate::limit::key::{Key, KeyPart, KeySpec, OnMissing};
use crate::limit::on_limit::Queueing;
use crate::limit::plan::{Plan, PlanHash, PlanSource, Plans};
use crate::limit::rollout::Rollout;
use crate::limit::status_set::StatusSet;
use crate::request::response::permit::Unanswered;
use crate::store::BucketCharge;
use crate::store::memory::MemoryStore;

fn nonzero(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

/// `burst` an hour, counted together.
fn limit(name: &str, burst: u64) -> Limit {
    let key = KeySpec {
        parts: vec![KeyPart::Constant("all".into())],
        on_missing: OnMissing::Share,
    };
    Limit::new(
        name,
        key,
        Rate {
            tokens: nonzero(burst),
            period_us: nonzero(3_600_000_000),
        },
        nonzero(burst),
    )
}

fn answer(status: u16) -> Arc<FixedResponse> {
    Arc::new(FixedResponse {
        status: StatusCode::from_u16(status).unwrap(),
        headers: vec![],
        body: "".into(),
    })
}

/// Limits and where they count.
struct Guard {
    rules: RuleSet,
    limiter: Limiter,
}

impl Guard {
    fn new(limits: impl IntoIterator<Item = Limit>) -> Self {
        let uses = limits.into_iter().map(|limit| LimitUse {
            cost: None,
            limit: Arc::new(limit),
        });
        let uses: Vec<_> = uses.collect();
        let rules = RuleSet::new(
            uses.iter(),
            &LargestCosts::over(uses.iter()),
            &LimitStates::default(),
            false,
        )
        .unwrap();
        Self {
            rules,
            limiter: Limiter::local(Arc::new(MemoryStore::new(10_000))),
        }
    }

    fn ask(&self) -> PendingRequest {
        self.ask_as("")
    }

    /// Asks for a client on this plan.
    fn ask_as(&self, plan: &'static str) -> PendingRequest {
        let request = Request::get("/").header("x-plan", plan).body(()).unwrap();
        let mut pending = PendingRequest::default();
        self.rules.ask(&Facts::from_request(&request), &mut pending);
        pending
    }

    /// Judges a request to the end, as long as it need not wait. Says how often the limiter was
    /// asked.
    fn pass(&self) -> (Judgement, usize) {
        let mut pending = self.ask();
        for times in 1.. {
            let mut decision = self.limiter.decide(&pending.checks).done().unwrap();
            if self.rules.next(&mut pending, &decision) != Next::AskAgain {
                return (self.rules.judge(&mut pending, &mut decision), times);
            }
        }
        unreachable!()
    }

    fn ratelimit(judged: &Judgement) -> String {
        let mut headers = HeaderMap::new();
        judged.fields.clone().apply(&mut headers);
        headers
            .get(headers::RATELIMIT)
            .map_or("", |value| value.to_str().unwrap())
            .to_owned()
    }
}

#[test]
fn a_limit_that_degrades_drops_out_and_the_others_still_hold() {
    let degrade = OnLimit::Degrade(Degrade::Respond(answer(200)));
    let guard = Guard::new([
        limit("all", 3),
        Limit {
            on_limit: degrade,
            ..limit("each", 1)
        },
    ]);
    assert_eq!((guard.pass().0.degraded, guard.pass().1), (None, 2));
    let (judged, _) = guard.pass();
    assert_eq!(
        (judged.denied.is_none(), judged.degraded.is_some()),
        (true, true)
    );
    assert!(
        Guard::ratelimit(&judged).starts_with("\"all\";r=0;"),
        "charged as well: {:?}",
        judged.fields
    );
    assert!(
        Guard::ratelimit(&judged).contains("\"each\";r=0;t=3600"),
        "and both are told: {:?}",
        judged.fields
    );
    let (judged, _) = guard.pass();
    let Some(Denial::QuotaExceeded { violated, .. }) = judged.denied else {
        panic!("{judged:?}")
    };
    assert_eq!(
        (violated.all().to_vec(), judged.degraded),
        (vec!["all".into(), "each".into()], None)
    );
}

#[test]
fn a_limit_that_rejects_goes_before_those_that_do_not() {
    let queue = Queueing {
        max_wait: Duration::from_secs(1),
        max_waiting: std::num::NonZeroUsize::MIN,
    };
    let answered = OnLimit::Answer(answer(503));
    let limits = [
        Limit {
            on_limit: OnLimit::Queue(queue),
            ..limit("q", 1)
        },
        Limit {
            on_limit: OnLimit::Degrade(Degrade::Upstream("u".into())),
            ..limit("d", 1)
        },
        Limit {
            on_limit: answered,
            ..limit("r", 1)
        },
    ];
    let guard = Guard::new(limits.clone());
    assert!(guard.pass().0.denied.is_none());
    let (judged, times) = guard.pass();
    assert!(
        matches!(&judged.denied, Some(Denial::QuotaExceeded { violated, .. }) if violated.all().len() == 3)
    );
    assert_eq!(times, 1);

    let guard = Guard::new(limits[..2].to_vec());
    guard.pass();
    let mut pending = guard.ask();
    let mut next = || {
        let decision = guard.limiter.decide(&pending.checks).done().unwrap();
        guard.rules.next(&mut pending, &decision)
    };
    assert_eq!((next(), next()), (Next::AskAgain, Next::Wait(0)));
    let (_, waiting_for) = guard.rules.queue(&pending, 0).unwrap();
    assert_eq!(
        (waiting_for.key, waiting_for.bounds),
        (&Key::from("q:all"), queue)
    );
    assert_eq!(waiting_for.charge_us, 3_600_000_000);
}

#[test]
fn the_answer_is_that_of_the_first_limit_that_denies() {
    let guard = Guard::new([
        Limit {
            on_limit: OnLimit::Answer(answer(503)),
            ..limit("own", 1)
        },
        limit("plain", 1),
    ]);
    guard.pass();
    let denied = guard.pass().0.denied.unwrap();
    assert_eq!(
        denied,
        Denial::FixedAnswer {
            limit: "own".into(),
            answer: answer(503),
            retry_after_secs: 3_600
        }
    );
}

#[test]
fn a_shadow_neither_denies_nor_blocks_nor_shows_but_is_charged() {
    let guard = Guard::new([
        Limit {
            rollout: Rollout::NONE,
            ..limit("shadow", 1)
        },
        limit("real", 3),
    ]);
    for left in [2, 1, 0] {
        let (judged, _) = guard.pass();
        assert!(
            Guard::ratelimit(&judged).starts_with(&format!("\"real\";r={left};")),
            "{:?}",
            judged.fields
        );
        assert!(judged.denied.is_none());
        assert!(judged.reserved.hold(&guard.limiter).is_empty());
    }
    let shadow = Guard {
        rules: Guard::new([limit("shadow", 1)]).rules,
        limiter: guard.limiter,
    };
    assert!(shadow.pass().0.denied.is_some(), "its bucket is spent");
}

#[test]
fn a_plan_changes_the_rate_the_cost_and_the_fields_but_not_the_bucket() {
    let plan = |tokens, cost| {
        let rate = Rate {
            tokens: nonzero(tokens),
            period_us: nonzero(3_600_000_000),
        };
        let algorithm = Algorithm::TokenBucket {
            rate,
            burst: nonzero(tokens),
        };
        Plan::new(algorithm, NonZeroU64::new(cost).map(Cost::Fixed)).unwrap()
    };
    let table = [("gold", plan(100, 0)), ("dear", plan(100, 10))];
    let table = table
        .map(|(name, plan)| (name.as_bytes().into(), plan))
        .into();
    let by = KeyPart::Header(HeaderName::from_static("x-plan"));
    let limit = Limit {
        plans: Some(Plans {
            by,
            source: PlanSource::Table(table),
        }),
        ..limit("l", 10)
    };
    let guard = Guard::new([limit]);
    let pass = |plan| {
        let mut pending = guard.ask_as(plan);
        let largest = pending.checks.tokens.charges()[0].largest_cost;
        let mut decision = guard.limiter.decide(&pending.checks).done().unwrap();
        let mut headers = HeaderMap::new();
        guard
            .rules
            .judge(&mut pending, &mut decision)
            .fields
            .apply(&mut headers);
        let told = [headers::RATELIMIT_POLICY, headers::RATELIMIT]
            .map(|name| headers[name].to_str().unwrap().to_owned());
        (largest, told.join(" "))
    };
    assert_eq!(
        pass("none"),
        (1, "\"l\";q=10;w=3600 \"l\";r=9;t=360".into())
    );
    assert_eq!(
        pass("gold"),
        (1, "\"l\";q=100;w=3600 \"l\";r=98;t=72".into())
    );
    assert_eq!(
        pass("dear"),
        (10, "\"l\";q=10;w=3600 \"l\";r=8;t=432".into())
    );
    assert_eq!(
        pass("none").1,
        "\"l\";q=10;w=3600 \"l\";r=0;t=108",
        "twelve are used, and flow off as fast as the other plan's"
    );
}

/// A limit with plans in the store, and what is known of them.
fn planned(change: impl FnOnce(&mut Limit)) -> (Guard, Arc<PlanCache>) {
    let by = KeyPart::Header(HeaderName::from_static("x-plan"));
    let hash = PlanHash {
        name: "plans".into(),
        cache: Duration::from_secs(5),
    };
    let mut limit = Limit {
        plans: Some(Plans {
            by,
            source: PlanSource::Hash(hash),
        }),
        ..limit("l", 10)
    };
    change(&mut limit);
    let states = LimitStates::default();
    let uses = [LimitUse {
        cost: None,
        limit: Arc::new(limit),
    }];
    let rules = RuleSet::new(
        uses.iter(),
        &LargestCosts::over(uses.iter()),
        &states,
        false,
    )
    .unwrap();
    let limiter = Limiter::local(Arc::new(MemoryStore::new(100)));
    (
        Guard { rules, limiter },
        states
            .plans
            .cache(&"plans".into(), uses[0].limit.algorithm.kind()),
    )
}

fn learn(cache: &PlanCache, field: &str, text: &str) {
    let told = (Key::from(field), Some(text.as_bytes().to_vec()));
    cache.learn(std::iter::once(told), crate::clock::monotonic_micros());
}

/// Burst, cost, the largest of any request, and the cost that clients are told in.
fn held_to(pending: &PendingRequest) -> (u64, u64, u64, u64) {
    let charge = &pending.checks.tokens.charges()[0];
    let owner = &pending.owners[0];
    (
        charge.quota.burst(),
        charge.cost,
        charge.largest_cost,
        owner.scale.typical_cost.get(),
    )
}

#[test]
fn a_plan_that_was_read_is_gone_by_at_once_and_one_that_was_not_is_lookups() {
    let (guard, cache) = planned(|_| ());
    learn(&cache, "gold", "50/h burst=40 cost=4");
    let mut known = guard.ask_as("gold");
    assert_eq!(
        (
            known.take_lookups().len(),
            held_to(&known),
            known.owners[0].planned
        ),
        (0, (40, 4, 4, 4), true)
    );

    let mut pending = guard.ask_as("late");
    let lookups = pending.take_lookups();
    assert_eq!(
        (lookups.len(), held_to(&pending)),
        (1, (10, 1, 1, 1)),
        "the limit's own meanwhile"
    );
    let reading = guard.limiter.read_plans(
        lookups.iter().map(PlanLookup::query),
        guard.limiter.deadline(),
    );
    assert!(reading.is_none(), "there is nobody to ask here");
    learn(&cache, "late", "50/h burst=40 cost=4");
    guard.rules.adopt_plans(&mut pending, &lookups);
    assert_eq!(
        (held_to(&pending), pending.owners[0].planned),
        ((40, 4, 4, 4), true)
    );
    let mut decision = guard.limiter.decide(&pending.checks).done().unwrap();
    let judged = guard.rules.judge(&mut pending, &mut decision);
    assert_eq!(Guard::ratelimit(&judged), "\"l\";r=9;t=288");
}

#[test]
fn a_late_plan_is_the_same_as_one_known_before() {
    let by_header = Cost::Header {
        name: HeaderName::from_static("x-plan"),
        default: nonzero(2),
        max: nonzero(9),
    };
    let by_body = Cost::Body {
        unit: nonzero(1),
        max: Cost::UNBOUNDED,
    };
    let costs = [
        Cost::Fixed(nonzero(7)),
        by_header,
        by_body,
        settled("l", 4).cost,
    ];
    for (cost, text) in costs
        .iter()
        .flat_map(|cost| ["50/h", "50/h burst=3", "50/h burst=5 cost=5"].map(|text| (cost, text)))
    {
        let (guard, cache) = planned(|limit| limit.cost = cost.clone());
        let mut late = guard.ask_as("8");
        let lookups = late.take_lookups();
        learn(&cache, "8", text);
        guard.rules.adopt_plans(&mut late, &lookups);
        let known = guard.ask_as("8");
        assert_eq!(
            (held_to(&late), &late.checks),
            (held_to(&known), &known.checks),
            "{cost:?} {text}"
        );
        let settles = [&late, &known].map(|pending| pending.owners[0].later.is_some());
        let due = cost.later().is_some() && !text.contains("cost");
        assert_eq!(
            settles,
            [due, due],
            "{cost:?} {text}: a plan's own cost is all there is to it"
        );
        let charge = &late.checks.tokens.charges()[0];
        assert!(
            charge.cost <= charge.quota.burst(),
            "{cost:?} {text}: it can pass"
        );
        assert!(charge.cost <= charge.largest_cost, "{cost:?} {text}");
    }
}

#[test]
fn no_request_waits_for_the_plan_of_a_limit_that_only_counts() {
    let (guard, _) = planned(|limit| limit.rollout = Rollout::NONE);
    let lookups = guard.ask_as("gold").take_lookups();
    assert_eq!((lookups.len(), lookups[0].query().is_awaited()), (1, false));
}

/// Tokens left, by limit.
fn left(guard: &Guard) -> Vec<u64> {
    let pending = guard.ask();
    let look = |charge: &BucketCharge| {
        let checks = Checks::from(BucketCharge {
            cost: 1_000,
            ..charge.clone()
        });
        guard.limiter.decide(&checks).done().unwrap()
    };
    pending
        .checks
        .tokens
        .charges()
        .iter()
        .map(|charge| look(charge).levels[0].remaining)
        .collect()
}

fn settled(name: &str, reserve: u64) -> Limit {
    let field = CostField::Header(HeaderName::from_static("x-used"));
    let by = ResponseCost {
        field,
        reserve: nonzero(reserve),
        max: nonzero(50),
        absent: None,
    };
    Limit {
        cost: Cost::Response(Arc::new(by)),
        ..limit(name, 100)
    }
}

#[test]
fn each_limit_settles_what_it_reserved_and_a_denied_request_has_nothing_to_settle() {
    let guard = Guard::new([settled("a", 10), limit("b", 2), settled("c", 30)]);
    let told = |stated_cost: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert("x-used", HeaderValue::from_static(stated_cost));
        headers
    };
    let mut holding = guard.pass().0.reserved.hold(&guard.limiter);
    assert_eq!((holding.is_empty(), left(&guard)), (false, vec![90, 1, 70]));
    holding.answered(StatusCode::OK, &told("20"));
    assert_eq!((holding.is_empty(), left(&guard)), (true, vec![80, 1, 80]));
    guard
        .pass()
        .0
        .reserved
        .hold(&guard.limiter)
        .failed(StatusCode::BAD_GATEWAY, Unanswered::NotForwarded);
    assert_eq!(left(&guard), [80, 0, 80], "a fixed cost is no reservation");
    let (denied, _) = guard.pass();
    assert!(denied.denied.is_some() && denied.reserved.hold(&guard.limiter).is_empty());
    assert_eq!(left(&guard), [80, 0, 80]);
}

#[test]
fn what_becomes_of_a_reservation_without_a_response() {
    let guard = Guard::new([settled("a", 10)]);
    let hold = || guard.pass().0.reserved.hold(&guard.limiter);
    for (failure, remaining) in [
        (Unanswered::NotForwarded, 100),
        (Unanswered::Refused, 90),
        (Unanswered::Forwarded, 80),
    ] {
        hold().failed(StatusCode::BAD_GATEWAY, failure);
        assert_eq!(left(&guard), [remaining], "{failure:?}");
    }
    drop(hold());
    assert_eq!(
        left(&guard),
        [70],
        "whoever leaves leaves what was reserved"
    );
}

/// Counts only responses with 401 and 5xx.
fn counted(limit: Limit) -> Limit {
    Limit {
        count: StatusSet::new([401.into(), (500..=599).into()]).ok(),
        ..limit
    }
}

#[test]
fn a_response_that_does_not_count_gives_its_cost_back() {
    let guard = Guard::new([
        counted(limit("a", 100)),
        counted(settled("b", 10)),
        limit("c", 100),
    ]);
    let answered = |status: StatusCode, used: &'static str| {
        let mut holding = guard.pass().0.reserved.hold(&guard.limiter);
        let fields = HeaderMap::from_iter([(
            HeaderName::from_static("x-used"),
            HeaderValue::from_static(used),
        )]);
        holding.answered(status, &fields);
        assert!(holding.is_empty(), "its body tells nothing more");
        left(&guard)
    };
    assert_eq!(
        answered(StatusCode::OK, "20"),
        [100, 100, 99],
        "whatever it says of its cost"
    );
    assert_eq!(answered(StatusCode::UNAUTHORIZED, "20"), [99, 80, 98]);
    assert_eq!(answered(StatusCode::FORBIDDEN, "20"), [99, 80, 97]);
    let hold = || guard.pass().0.reserved.hold(&guard.limiter);
    hold().failed(StatusCode::PAYLOAD_TOO_LARGE, Unanswered::Refused);
    assert_eq!(left(&guard), [99, 80, 96]);
    hold().failed(StatusCode::BAD_GATEWAY, Unanswered::NotForwarded);
    assert_eq!(
        left(&guard),
        [98, 80, 95],
        "a cost that only a response could have told is none"
    );
    hold().failed(StatusCode::GATEWAY_TIMEOUT, Unanswered::Forwarded);
    assert_eq!(left(&guard), [97, 70, 94]);
    hold().failed(StatusCode::PAYLOAD_TOO_LARGE, Unanswered::Forwarded);
    assert_eq!(
        left(&guard),
        [96, 60, 93],
        "an upstream had it, whatever the gateway answers"
    );
    drop(hold());
    assert_eq!(
        left(&guard),
        [95, 50, 92],
        "nobody knows what it would have been answered"
    );
}

#[test]
fn a_shadow_counts_by_status_as_if_it_were_enforced() {
    let guard = Guard::new([Limit {
        rollout: Rollout::NONE,
        ..counted(limit("a", 100))
    }]);
    for status in [StatusCode::OK, StatusCode::UNAUTHORIZED] {
        guard
            .pass()
            .0
            .reserved
            .hold(&guard.limiter)
            .answered(status, &HeaderMap::new());
    }
    let enforced = Guard {
        rules: Guard::new([limit("a", 100)]).rules,
        limiter: guard.limiter,
    };
    assert_eq!(left(&enforced), [99]);
}

#[test]
fn a_shadow_settles_as_if_it_were_enforced() {
    let guard = Guard::new([Limit {
        rollout: Rollout::NONE,
        ..settled("a", 10)
    }]);
    let mut holding = guard.pass().0.reserved.hold(&guard.limiter);
    holding.answered(
        StatusCode::OK,
        &HeaderMap::from_iter([(
            HeaderName::from_static("x-used"),
            HeaderValue::from_static("25"),
        )]),
    );
    let enforced = Guard {
        rules: Guard::new([settled("a", 10)]).rules,
        limiter: guard.limiter,
    };
    assert_eq!(left(&enforced), [75]);
}

#[test]
fn a_request_that_finds_the_line_too_long_is_denied_by_that_limit_alone() {
    let guard = Guard::new([limit("a", 5), limit("b", 5)]);
    let mut pending = guard.ask();
    let mut decision = guard.rules.turn_away(&mut pending, 1, 2_500_000);
    let judged = guard.rules.judge(&mut pending, &mut decision);
    assert_eq!(Guard::ratelimit(&judged), "\"b\";r=0;t=3");
    let violated = ["b".into()].into();
    assert_eq!(
        judged.denied,
        Some(Denial::QuotaExceeded {
            violated,
            retry_after_secs: 3
        })
    );
}

#[test]
fn a_closed_plan_denies_its_clients_and_charges_nothing() {
    let hourly = Algorithm::TokenBucket {
        rate: Rate {
            tokens: NonZeroU64::MIN,
            period_us: nonzero(3_600_000_000),
        },
        burst: NonZeroU64::MIN,
    };
    let closed = Plan::closed(hourly).unwrap();
    let limit = Limit {
        plans: Some(Plans {
            by: KeyPart::Header(HeaderName::from_static("x-plan")),
            source: PlanSource::Table([(b"closed"[..].into(), closed)].into()),
        }),
        ..limit("l", 10)
    };
    let guard = Guard::new([limit]);
    let pass = |plan| {
        let mut pending = guard.ask_as(plan);
        let mut decision = guard.limiter.decide(&pending.checks).done().unwrap();
        guard.rules.judge(&mut pending, &mut decision)
    };
    for _ in 0..3 {
        let judged = pass("closed");
        let denied = judged.denied.as_ref().unwrap();
        assert_eq!(denied.retry_after_secs(), Some(3_600));
        assert_eq!(Guard::ratelimit(&judged), "\"l\";r=0;t=3600");
    }
    for left in (0..10).rev() {
        let judged = pass("none");
        assert!(
            judged.denied.is_none() && Guard::ratelimit(&judged).contains(&format!(";r={left};"))
        );
    }
}

/// The `RateLimit-Policy` of a limit alone.
fn policy_of(algorithm: Algorithm) -> String {
    let guard = Guard::new([Limit {
        algorithm,
        ..limit("l", 1)
    }]);
    let mut headers = HeaderMap::new();
    guard.pass().0.fields.apply(&mut headers);
    let policy = &headers[headers::RATELIMIT_POLICY];
    policy.to_str().unwrap().to_owned()
}

#[test]
fn a_policy_tells_the_whole_rate_whatever_the_burst() {
    for (tokens, period_us, burst, expected) in [
        (1_000, 1_000_000, 50, "\"l\";q=1000;w=1"),
        (10, 1_000_000, 25, "\"l\";q=30;w=3"),
        (10, 1_000_000, 20, "\"l\";q=20;w=2"),
        (7, 1_000_000, 10, "\"l\";q=14;w=2"),
        (1_000, 3_600_000_000, 50, "\"l\";q=50;w=180"),
        (3, 90_000_000, 1, "\"l\";q=1;w=30"),
    ] {
        let rate = Rate {
            tokens: nonzero(tokens),
            period_us: nonzero(period_us),
        };
        let algorithm = Algorithm::TokenBucket {
            rate,
            burst: nonzero(burst),
        };
        assert_eq!(policy_of(algorithm), expected);
    }
}

#[cfg(feature = "calendar")]
#[test]
fn a_policy_by_months_tells_how_long_this_one_is() {
    let rate = WindowRate {
        tokens: nonzero(9),
        per: WindowLength::Month,
    };
    let monthly = Algorithm::FixedWindow { rate, zone: None };
    let CompiledAlgorithm::Tokens(quota) = monthly.compile().unwrap() else {
        panic!()
    };
    let days = |unix_secs: u64| quota.window_us(unix_secs * 1_000_000) / 86_400_000_000;
    // In February 2024, April 2024 and May 2024.
    assert_eq!(
        [1_707_000_000, 1_712_500_000, 1_715_000_000].map(days),
        [29, 30, 31]
    );
    let expected = || quota.window_us(crate::clock::unix_micros()) / 1_000_000;
    let before = expected();
    let told = policy_of(monthly);
    let after = expected();
    assert!(
        [before, after]
            .map(|secs| format!("\"l\";q=9;w={secs}"))
            .contains(&told),
        "{told}"
    );
}

#[test]
fn a_request_that_is_refused_for_what_it_lacks_counts_for_the_other_limits() {
    let refusing = || Limit {
        key: KeySpec {
            parts: vec![KeyPart::Header(HeaderName::from_static("x-tenant"))],
            on_missing: OnMissing::Refuse,
        },
        ..limit("per-tenant", 5)
    };
    for limits in [[refusing(), limit("all", 2)], [limit("all", 2), refusing()]] {
        let guard = Guard::new(limits);
        for expected in ["key-missing", "key-missing", "quota-exceeded"] {
            let denied = guard.pass().0.denied;
            assert_eq!(denied.map(|denial| denial.name()), Some(expected));
        }
    }
}

#[test]
fn a_hidden_limit_counts_and_denies_and_no_answer_tells_of_it() {
    let shown_in = |judged: &Judgement| {
        let mut headers = HeaderMap::new();
        judged.fields.clone().apply(&mut headers);
        let text = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        (headers.len(), text.collect::<Vec<_>>().join("\n"))
    };
    let hidden = |limit| Limit {
        hidden: true,
        ..limit
    };
    let guard = Guard::new([limit("a", 5), hidden(limit("secret", 1)), limit("b", 4)]);
    let passed = guard.pass().0;
    assert_eq!(
        shown_in(&passed).1,
        "ratelimit-policy: \"a\";q=5;w=3600, \"b\";q=4;w=3600\nratelimit: \"a\";r=4;t=720, \"b\";r=3;t=900"
    );
    let denied = guard.pass().0;
    assert_eq!(
        shown_in(&denied),
        shown_in(&passed),
        "those that are shown took nothing"
    );
    let Some(Denial::QuotaExceeded {
        violated,
        retry_after_secs,
    }) = denied.denied
    else {
        panic!("{denied:?}")
    };
    assert_eq!(
        (violated.shown(), violated.all(), retry_after_secs),
        (&[][..], &["secret".into()][..], 3_600)
    );
    assert_eq!(
        guard
            .rules
            .explain(&Facts::from_request(&http::Request::new(())))
            .policy
            .unwrap(),
        "\"a\";q=5;w=3600, \"b\";q=4;w=3600"
    );

    let alone = Guard::new([hidden(limit("secret", 1))]);
    assert_eq!(
        (shown_in(&alone.pass().0).0, shown_in(&alone.pass().0).0),
        (0, 0)
    );
    let degrade = OnLimit::Degrade(Degrade::Respond(answer(200)));
    let lesser = Guard::new([hidden(Limit {
        on_limit: degrade,
        ..limit("secret", 1)
    })]);
    lesser.pass();
    let degraded = lesser.pass().0;
    assert_eq!(
        (degraded.degraded.is_some(), shown_in(&degraded).0),
        (true, 0)
    );
}

#[test]
fn the_older_fields_tell_of_the_tightest_limit_that_is_shown() {
    let uses = [
        Limit {
            hidden: true,
            ..limit("secret", 2)
        },
        limit("a", 5),
    ];
    let uses = uses.map(|limit| LimitUse {
        limit: Arc::new(limit),
        cost: None,
    });
    let rules = RuleSet::new(
        uses.iter(),
        &LargestCosts::over(uses.iter()),
        &LimitStates::default(),
        true,
    )
    .unwrap();
    let guard = Guard {
        rules,
        limiter: Limiter::local(Arc::new(MemoryStore::new(100))),
    };
    let mut headers = HeaderMap::new();
    guard.pass().0.fields.apply(&mut headers);
    let shown =
        ["x-ratelimit-limit", "x-ratelimit-remaining"].map(|name| headers[name].to_str().unwrap());
    assert_eq!(shown, ["5", "4"]);
}
