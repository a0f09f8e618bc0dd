//! How an outage of Redis is lived through: nobody waits, nobody sees an error, and the limit holds node by node.

use std::time::{Duration, Instant};

use crate::fleet::{BURST, RATE, admitted, routes, seconds};
use crate::load::{Load, Sample, run_for};
use crate::process::{Gateway, eventually};
use crate::turns;

const STORE_TIMEOUT: Duration = Duration::from_millis(20);

/// What a busy machine may add to one answer. Waiting for a Redis that is away has no such end.
const BUSY: Duration = Duration::from_millis(500);

/// Over which an outage is watched.
const OUTAGE: Duration = Duration::from_secs(3);

/// Two gateways under load.
struct Fleet {
    gateways: [Gateway; 2],
    load: Load,
}

impl Fleet {
    /// Under four times the demand that they may admit, each aware of the other.
    fn start(redis: &str) -> Self {
        let routes = routes(redis, "20ms");
        let gateways = [Gateway::start(&routes), Gateway::start(&routes)];
        for gateway in &gateways {
            eventually("both nodes are known", || (gateway.metric("tollgate_fleet_nodes") == 2.0).then_some(()));
        }
        let targets: Vec<_> = gateways.iter().map(|gateway| gateway.listeners[0]).collect();
        let load = Load::start(&targets, 4, Duration::from_millis(40));
        run_for(Duration::from_secs(1));
        Self { gateways, load }
    }

    fn until_store_is(&self, up: bool) -> Instant {
        for gateway in &self.gateways {
            let wanted = if up { 1.0 } else { 0.0 };
            eventually("the breaker turns", || (gateway.metric("tollgate_store_up") == wanted).then_some(()));
        }
        Instant::now()
    }

    fn decisions_by(&self, whom: &str) -> f64 {
        let series = |verdict| {
            format!(
                "tollgate_ratelimit_decisions_total{{limit=\"everybody\",verdict=\"{verdict}\",decided_by=\"{whom}\"}}"
            )
        };
        let of = |gateway: &Gateway| gateway.metric(&series("allowed")) + gateway.metric(&series("denied"));
        self.gateways.iter().map(of).sum()
    }

    /// The first few requests wait for Redis, each for its time limit.
    fn assert_noticed_in_time(&self, broken: Instant, opened: Instant) {
        let samples = self.load.samples();
        let waited = samples.iter().filter(|sample| sample.at + sample.took > broken && sample.at < opened);
        let slowest = waited.map(|sample| sample.took).max().unwrap_or_default();
        println!("slowest answer before the breakers opened, {:?} after the fault: {slowest:?}", opened - broken);
        assert!(slowest < STORE_TIMEOUT + BUSY, "{slowest:?}");
    }

    /// Whether a call failed for this reason, in the metrics of each gateway.
    fn assert_told_as(&self, outcomes: &[&str]) {
        for gateway in &self.gateways {
            let count =
                |outcome: &&str| gateway.metric(&format!("tollgate_store_calls_total{{outcome=\"{outcome}\"}}"));
            assert!(outcomes.iter().map(count).sum::<f64>() > 0.0, "no call failed with one of {outcomes:?}");
        }
    }

    /// The outage from the moment both breakers are open: how it was lived through.
    fn assert_outage_is_bearable(&self, opened: Instant, until: Instant) {
        let samples = self.load.samples();
        let during: Vec<Sample> =
            samples.into_iter().filter(|sample| sample.at > opened && sample.at + sample.took < until).collect();
        let slowest = during.iter().map(|sample| sample.took).max().unwrap();
        println!("slowest answer after the breaker opened: {slowest:?} of {}", during.len());
        // A busy machine may hold up one client or another; the gateway itself waits for nothing here.
        let late = during.iter().filter(|sample| sample.took > STORE_TIMEOUT + Duration::from_millis(10)).count();
        assert!(late * 200 <= during.len(), "{late} of {} were late", during.len());
        for target in 0..2 {
            let here: Vec<Sample> = during.iter().copied().filter(|sample| sample.target == target).collect();
            let share = RATE / 2.0 * seconds(&here);
            let passed = admitted(&here) as f64;
            println!("node {target} admitted {passed} of its share of {share:.1}");
            assert!(passed <= BURST / 2.0 + share && passed >= 0.9 * share - 1.0, "{passed} of {share}");
        }
    }

    fn assert_redis_decides_within_two_seconds(&self) {
        let returned = Instant::now();
        let before = self.decisions_by("redis");
        eventually("redis decides again", || (self.decisions_by("redis") > before).then_some(()));
        println!("redis decided again after {:?}", returned.elapsed());
        assert!(returned.elapsed() < Duration::from_secs(2), "{:?}", returned.elapsed());
        self.until_store_is(true);
    }

    /// All answers.
    fn end(self) -> Vec<Sample> {
        let samples = self.load.stop();
        assert!(samples.iter().all(|sample| matches!(sample.status, 200 | 429)), "an error was seen");
        samples
    }
}

/// Breaks `redis` under a fleet that finds it at `url`, and mends it again. Calls must fail with one of `outcomes`.
pub fn live_through<T>(
    url: &str,
    mut redis: T,
    outcomes: &[&str],
    break_it: impl Fn(&mut T),
    mend_it: impl Fn(&mut T),
) {
    let _turn = turns::alone();
    let fleet = Fleet::start(url);
    let broken = Instant::now();
    break_it(&mut redis);
    let opened = fleet.until_store_is(false);
    run_for(OUTAGE);
    fleet.assert_noticed_in_time(broken, opened);
    fleet.assert_outage_is_bearable(opened, Instant::now());
    fleet.assert_told_as(outcomes);
    mend_it(&mut redis);
    fleet.assert_redis_decides_within_two_seconds();
    let samples = fleet.end();
    // What Redis refilled while it heard nothing is conceded: one burst for an outage, as docs/exactness.md says.
    let (admitted, terms) = (admitted(&samples) as f64, BURST + RATE * seconds(&samples) + BURST);
    println!("{admitted} admitted in all, of {terms:.1} by the terms of an outage");
    assert!(admitted <= terms, "{admitted} of {terms}");
}
