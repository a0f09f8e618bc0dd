//! How an outage of Redis is lived through: nobody waits, nobody sees an error, and the limit holds
//! node by node.

use std::time::{Duration, Instant};

use crate::fleet::{BURST, RATE, admitted, assert_spent_between_denials, routes, seconds};
use crate::load::{Load, Sample, run_for};
use crate::process::{Gateway, eventually};
use tollgate_testing::turns;

/// Longer than a healthy Redis takes on a busy machine: that must not look like an outage.
const STORE_TIMEOUT: Duration = Duration::from_millis(200);

/// Time from the moment that both breakers are open until Redis is mended. A request that waits for
/// Redis itself, and not for its time limit, waits for as long.
const OUTAGE: Duration = Duration::from_secs(3);

/// The gateways that limit are the first targets of the load. The others are the same at `/free`:
/// what these are held up by is the machine, which tells it from a wait for Redis.
const LIMITED: usize = 2;

/// Two gateways under load.
struct Fleet {
    gateways: [Gateway; 2],
    load: Load,
}

impl Fleet {
    /// Under four times the demand that they may admit, each aware of the other.
    fn start(redis: &str) -> Self {
        let routes = routes(redis, "200ms");
        let gateways = [Gateway::start(&routes), Gateway::start(&routes)];
        for gateway in &gateways {
            eventually("both nodes are known", || {
                (gateway.metric("tollgate_fleet_nodes") == 2.0).then_some(())
            });
        }
        let at = |path| {
            gateways
                .iter()
                .map(move |gateway| (gateway.listeners[0], path))
        };
        let targets: Vec<_> = at("/").chain(at("/free")).collect();
        let load = Load::of_paths(&targets, 4, Duration::from_millis(40));
        run_for(Duration::from_secs(1));
        Self { gateways, load }
    }

    fn until_store_is(&self, up: bool) -> Instant {
        for gateway in &self.gateways {
            let wanted = if up { 1.0 } else { 0.0 };
            eventually("the breaker turns", || {
                (gateway.metric("tollgate_store_up") == wanted).then_some(())
            });
        }
        Instant::now()
    }

    fn decisions_by(&self, whom: &str) -> f64 {
        let series = |verdict| {
            format!(
                "tollgate_ratelimit_decisions_total{{limit=\"everybody\",verdict=\"{verdict}\",decided_by=\"{whom}\"}}"
            )
        };
        let of = |gateway: &Gateway| {
            gateway.metric(&series("allowed")) + gateway.metric(&series("denied"))
        };
        self.gateways.iter().map(of).sum()
    }

    /// The answers with a limit and those without one, of requests that were under way between
    /// these moments.
    fn answers(&self, from: Instant, until: Instant) -> [Vec<Sample>; 2] {
        let samples = self.load.samples().into_iter();
        let (limited, free) = samples
            .filter(|sample| sample.at + sample.took > from && sample.at < until)
            .partition(|sample| sample.target < LIMITED);
        [limited, free]
    }

    /// Whether a call failed for this reason, in the metrics of each gateway.
    fn assert_told_as(&self, outcomes: &[&str]) {
        for gateway in &self.gateways {
            let count = |outcome: &&str| {
                gateway.metric(&format!(
                    "tollgate_store_calls_total{{outcome=\"{outcome}\"}}"
                ))
            };
            assert!(
                outcomes.iter().map(count).sum::<f64>() > 0.0,
                "no call failed with one of {outcomes:?}"
            );
        }
    }

    /// The outage from the moment both breakers are open: how it was lived through.
    fn assert_outage_is_bearable(&self, opened: Instant, until: Instant) {
        let [during, free] = self.answers(opened, until).map(|mut samples| {
            samples.retain(|sample| sample.at > opened && sample.at + sample.took < until);
            samples
        });
        println!(
            "slowest answer after the breaker opened: {:?} of {}",
            slowest(&during),
            during.len()
        );
        // A busy machine holds up one client or another, whether limited or not; the gateway itself
        // waits for nothing here.
        let late = |samples: &[Sample]| {
            samples
                .iter()
                .filter(|sample| sample.took >= STORE_TIMEOUT)
                .count()
        };
        let (count, of_free) = (late(&during), late(&free));
        assert!(
            count <= during.len() / 100 + 2 * (of_free + 1),
            "{count} of {} were late, {of_free} free ones",
            during.len()
        );
        for target in 0..LIMITED {
            let here: Vec<Sample> = during
                .iter()
                .copied()
                .filter(|sample| sample.target == target)
                .collect();
            let share = RATE / 2.0 * seconds(&here);
            let passed = admitted(&here) as f64;
            println!("node {target} admitted {passed} of its share of {share:.1}");
            assert!(passed <= BURST / 2.0 + share, "{passed} of {share}");
            assert_spent_between_denials(&here, RATE / 2.0, 0.9);
        }
    }

    fn assert_redis_decides_again(&self) {
        let before = self.decisions_by("redis");
        eventually("redis decides again", || {
            (self.decisions_by("redis") > before).then_some(())
        });
        self.until_store_is(true);
    }

    /// All answers to limited requests.
    fn end(self) -> Vec<Sample> {
        let mut samples = self.load.stop();
        assert!(
            samples
                .iter()
                .all(|sample| matches!(sample.status, 200 | 429)),
            "an error was seen"
        );
        samples.retain(|sample| sample.target < LIMITED);
        let slowest = slowest(&samples);
        println!("slowest answer with a limit: {slowest:?}");
        assert!(slowest < OUTAGE, "a request waited for Redis: {slowest:?}");
        samples
    }
}

fn slowest(samples: &[Sample]) -> Duration {
    samples
        .iter()
        .map(|sample| sample.took)
        .max()
        .unwrap_or_default()
}

/// Breaks `redis` under a fleet that finds it at `url`, and mends it again. Calls must fail with
/// one of `outcomes`.
pub fn live_through<T>(
    url: &str,
    mut redis: T,
    outcomes: &[&str],
    break_it: impl Fn(&mut T),
    mend_it: impl Fn(&mut T),
) {
    let _turn = turns::among_few();
    let fleet = Fleet::start(url);
    break_it(&mut redis);
    let opened = fleet.until_store_is(false);
    run_for(OUTAGE);
    fleet.assert_outage_is_bearable(opened, Instant::now());
    fleet.assert_told_as(outcomes);
    mend_it(&mut redis);
    fleet.assert_redis_decides_again();
    let samples = fleet.end();
    // A burst for each outage is conceded, which Redis refilled while it heard nothing:
    // docs/exactness.md.
    let (admitted, terms) = (
        admitted(&samples) as f64,
        BURST + RATE * seconds(&samples) + BURST,
    );
    println!("{admitted} admitted in all, of {terms:.1} by the terms of an outage");
    assert!(admitted <= terms, "{admitted} of {terms}");
}
