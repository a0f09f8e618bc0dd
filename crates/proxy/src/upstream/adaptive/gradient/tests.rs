use proptest::prelude::*;

use super::*;
use crate::upstream::spec::health::Percentage;

const SECOND: u64 = 1_000_000;

fn rule() -> AdaptiveRule {
    AdaptiveRule {
        min: 3,
        max: 1000,
        buffer: Percentage::new(25),
        interval: Duration::from_secs(60),
        requests: 50,
    }
}

/// An upstream that works on so many requests at a time, and on each for so many microseconds.
/// Others wait.
#[derive(Clone, Copy)]
struct QueueModel {
    servers: u64,
    service: u64,
}

/// A controller before such an upstream, with so many requests that want in.
struct Simulation {
    gradient: Gradient,
    upstream: QueueModel,
    wanted: usize,
    now: u64,
}

impl Simulation {
    fn new(servers: u64, service: u64, wanted: usize) -> Self {
        let upstream = QueueModel { servers, service };
        Self {
            gradient: Gradient::new(rule(), 0),
            upstream,
            wanted,
            now: 0,
        }
    }

    /// Goes on for so many seconds, in steps of 100 ms. Returns the limits.
    fn run(&mut self, seconds: u64) -> Vec<usize> {
        let end = self.now + seconds * SECOND;
        let mut limits = Vec::new();
        let mut counted = 0.0;
        while self.now < end {
            self.now += SECOND / 10;
            let in_flight = self.gradient.limit().min(self.wanted) as u64;
            let QueueModel { servers, service } = self.upstream;
            let median = service * in_flight.max(servers) / servers;
            counted += (SECOND / 10 * in_flight) as f64 / median as f64;
            if self.gradient.is_due(self.now, counted as u64) {
                let sample = AnswerSample {
                    count: counted as u64,
                    median,
                    peak: in_flight as usize,
                };
                self.gradient.advance(
                    self.now,
                    Some(sample).filter(|sample| sample.count > 0),
                    0.5,
                );
                counted = 0.0;
            }
            limits.push(self.gradient.limit());
        }
        limits
    }

    fn limit_after(&mut self, seconds: u64) -> usize {
        *self.run(seconds).last().unwrap()
    }
}

/// The limits that lie near what an upstream with so many servers takes.
fn near(servers: usize) -> std::ops::RangeInclusive<usize> {
    let most = servers as f64 * 1.25;
    servers..=(most + most.sqrt()) as usize + 1
}

#[test]
fn the_limit_finds_what_an_upstream_takes() {
    for servers in [4, 10, 100] {
        let mut simulation = Simulation::new(servers, 10_000, 5_000);
        let limit = simulation.limit_after(20);
        assert!(
            near(servers as usize).contains(&limit),
            "{limit} for {servers}"
        );
    }
}

#[test]
fn an_upstream_that_gets_faster_or_grows_gets_more() {
    let mut simulation = Simulation::new(10, 10_000, 5_000);
    let before = simulation.limit_after(20);
    simulation.upstream.servers = 40;
    let grown = simulation.limit_after(10);
    assert!(
        near(40).contains(&grown) && grown > 2 * before,
        "{grown} after {before}"
    );
    simulation.upstream.service = 2_000;
    let fast = simulation.limit_after(5);
    assert!(
        fast > 2 * grown,
        "{fast} after {grown}: it answers in less than the shortest time known"
    );
}

#[test]
fn an_upstream_that_gets_slower_is_measured_anew() {
    let mut simulation = Simulation::new(10, 10_000, 5_000);
    simulation.run(20);
    simulation.upstream.service = 100_000;
    let limits = simulation.run(30);
    assert!(limits.contains(&3), "it falls to the lowest");
    assert!(near(10).contains(limits.last().unwrap()), "{limits:?}");
    assert_eq!(
        simulation.gradient.shortest_latency(),
        Some(Duration::from_millis(100))
    );
}

#[test]
fn the_limit_of_an_idle_upstream_stays() {
    let mut simulation = Simulation::new(10, 10_000, 5_000);
    let before = simulation.limit_after(20);
    simulation.wanted = 0;
    let limits = simulation.run(200);
    let measuring = limits.iter().filter(|limit| **limit != before).count();
    assert_eq!((*limits.last().unwrap(), measuring), (before, 0));
}

#[test]
fn an_upstream_that_gets_little_gets_no_higher_limit_for_it() {
    let mut simulation = Simulation::new(10, 10_000, 2);
    let limits = simulation.run(200);
    assert!(*limits.iter().max().unwrap() <= 6, "{limits:?}");
    simulation.wanted = 5_000;
    assert!(near(10).contains(&simulation.limit_after(10)));
}

#[test]
fn requests_are_rarely_held_back_for_a_measurement_while_nothing_queues() {
    let mut simulation = Simulation::new(10, 10_000, 8);
    simulation.run(10);
    let held_back = |limits: Vec<usize>| limits.iter().filter(|limit| **limit == 3).count();
    // After one interval, two, four and so on: 9 times in 4 hours, for two steps each.
    let calm = held_back(simulation.run(4 * 3_600));
    assert!((5..=30).contains(&calm), "{calm}");
    // With a queue, they are: for some time of each interval.
    simulation.wanted = 5_000;
    let queueing = held_back(simulation.run(300));
    assert!((4..=30).contains(&queueing), "{queueing}");
}

#[test]
fn a_first_measurement_of_cold_caches_is_corrected() {
    let mut simulation = Simulation::new(4, 500_000, 50);
    simulation.run(20);
    assert_eq!(
        simulation.gradient.shortest_latency(),
        Some(Duration::from_millis(500))
    );
    // The upstream is as slow as before with a queue of 46, and stays so.
    simulation.upstream.service = 40_000;
    let limit = simulation.limit_after(90);
    assert_eq!(
        simulation.gradient.shortest_latency(),
        Some(Duration::from_millis(40))
    );
    assert!(near(4).contains(&limit), "{limit}");
}

#[test]
fn an_upstream_of_few_answers_is_measured_by_these() {
    for service in [500_000, 2_500_000, 20_000_000] {
        let mut simulation = Simulation::new(1_000, 20_000, 40);
        simulation.run(20);
        simulation.upstream.service = service;
        // Five changes at the lowest limit, each by ten answers of three at a time, and some before
        // it is there.
        let limits = simulation.run(40 * service / SECOND + 20);
        assert_eq!(
            simulation.gradient.shortest_latency(),
            Some(Duration::from_micros(service))
        );
        assert!(*limits.last().unwrap() > 10, "{service}: {limits:?}");
    }
}

#[test]
fn a_measurement_lasts_until_ten_answers_have_come() {
    let mut gradient = Gradient::new(rule(), 0);
    assert!(!gradient.is_due(HOUR, 9) && gradient.is_due(0, 50));
    gradient.advance(
        SECOND,
        Some(AnswerSample {
            count: 50,
            median: 10_000,
            peak: 3,
        }),
        0.0,
    );
    assert!(!gradient.is_measuring());
    gradient.advance(
        61 * SECOND,
        Some(AnswerSample {
            count: 50,
            median: 90_000,
            peak: 3,
        }),
        0.0,
    );
    assert!(gradient.is_measuring() && !gradient.is_due(66 * SECOND, 49));
    assert!(gradient.is_due(67 * SECOND, 10), "a tenth of the interval");
    assert!(!gradient.is_due(HOUR, 9));
    gradient.advance(
        HOUR,
        Some(AnswerSample {
            count: 10,
            median: 80_000,
            peak: 3,
        }),
        0.0,
    );
    assert!(!gradient.is_measuring());
    assert_eq!(gradient.shortest_latency(), Some(Duration::from_millis(80)));
}

const HOUR: u64 = 3_600 * SECOND;

proptest! {
    #[test]
    fn the_limit_stays_within_its_rule(
        samples in prop::collection::vec((0_u64..200, 0_u64..100_000_000, 0_usize..5_000, 0_u64..70_000_000), 1..300),
        min in 1_usize..50,
        more in 0_usize..2_000,
    ) {
        let mut gradient = Gradient::new(AdaptiveRule { min, max: min + more, ..rule() }, 0);
        let mut now = 0;
        for (count, median, peak, later) in samples {
            now += later;
            if gradient.is_due(now, count) {
                gradient.advance(now, (count > 0).then_some(AnswerSample { count, median, peak }), 0.3);
            }
            prop_assert!((min..=min + more).contains(&gradient.limit()));
        }
    }

    #[test]
    fn the_slower_the_answers_the_lower_the_limit(
        limit in 3_usize..1_000,
        one in 1_000_u64..1_000_000,
        other in 1_000_u64..1_000_000,
    ) {
        let next = |median| {
            let mut gradient = Gradient::new(rule(), 0);
            gradient.advance(0, Some(AnswerSample { count: 50, median: 20_000, peak: 3 }), 0.0);
            gradient.limit = limit as f64;
            gradient.advance(SECOND, Some(AnswerSample { count: 50, median, peak: limit }), 0.0);
            gradient.limit
        };
        prop_assert!(one > other || next(one) >= next(other));
    }
}
