use super::*;
use crate::limit::algorithm::CompiledAlgorithm;

fn error(limit: LimitBuilder) -> String {
    limit.build().unwrap_err().to_string()
}

#[test]
fn a_limit_is_what_was_said() {
    let built = Limit::per_second("per-client", 10)
        .burst(20)
        .key([client_ip(), host()])
        .cost(2)
        .build()
        .unwrap();
    let Algorithm::TokenBucket { rate, burst } = built.limit.algorithm.clone() else {
        panic!("{built:?}")
    };
    assert_eq!(
        (rate.tokens.get(), rate.period_us.get(), burst.get()),
        (10, 1_000_000, 20)
    );
    assert_eq!(
        (built.limit.key.parts.len(), &*built.limit.name),
        (2, "per-client")
    );
    let window = Limit::per_hour("w", 5)
        .fixed_window()
        .key(everyone())
        .build()
        .unwrap();
    assert!(matches!(
        window.limit.algorithm,
        Algorithm::FixedWindow { .. }
    ));
    let permits = Limit::in_flight("p", 5).key(everyone()).build().unwrap();
    assert!(matches!(
        permits.limit.algorithm.compile(),
        Ok(CompiledAlgorithm::Permits(_))
    ));
}

#[test]
fn an_error_names_the_limit_and_what_to_do() {
    for name in [
        "",
        "a:b",
        "!in-flight",
        "a\"b",
        "a\nb",
        "{a}",
        &"a".repeat(65),
    ] {
        assert!(
            error(Limit::per_second(name, 1).key(everyone())).contains("is no name of a limit"),
            "{name}"
        );
    }
    assert!(
        error(Limit::per_second("l", 1))
            .starts_with("the limit \"l\" has no key: say whom it counts")
    );
    let zero = |limit: LimitBuilder| error(limit.key(everyone()));
    assert_eq!(
        zero(Limit::per_second("l", 0)),
        "the limit \"l\": the number of tokens is 0, and must be at least 1"
    );
    assert_eq!(
        zero(Limit::per_second("l", 1).burst(0)),
        "the limit \"l\": the burst is 0, and must be at least 1"
    );
    assert_eq!(
        zero(Limit::per_second("l", 1).cost(0)),
        "the limit \"l\": the cost is 0, and must be at least 1"
    );
    assert!(zero(Limit::every("l", 1, Duration::ZERO)).contains("the period in microseconds is 0"));
    assert!(zero(Limit::per_second("l", 5).cost(6)).contains("costs 6 never passes a limit of 5"));
    assert!(
        zero(Limit::per_second("l", 5).burst(6).sliding_window())
            .contains("a burst belongs to a token bucket")
    );
    assert_eq!(
        zero(Limit::per_second("l", 1).count_statuses([401, 600])),
        "the limit \"l\": status codes of responses are 200 to 599"
    );
    assert!(
        zero(Limit::in_flight("l", 5).count_statuses([401]))
            .contains("count whatever their status")
    );
    assert!(
        zero(Limit::per_second("l", 5).leased().count_statuses([401]))
            .contains("leave out one of the two")
    );
    assert!(zero(Limit::per_second("l", 1_000_000_000)).starts_with("the limit \"l\": "));
    let hash = zero(Limit::per_second("l", 1).plans(host(), PlanHash::new("a:b")));
    assert!(
        hash.starts_with("the limit \"l\": \"a:b\" is no name of a hash of plans"),
        "{hash}"
    );
}
