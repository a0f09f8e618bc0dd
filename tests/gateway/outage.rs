//! Redis dies, hangs, comes back: nobody waits, nobody sees an error, and the limit holds node by node.

use std::time::{Duration, Instant};

use crate::fleet::{BURST, RATE, admitted, routes, seconds};
use crate::load::{Load, Sample, run_for};
use crate::process::{Gateway, eventually};
use crate::redis::RedisServer;
use crate::turns;

const STORE_TIMEOUT: Duration = Duration::from_millis(20);

struct Fleet {
    gateways: [Gateway; 2],
    load: Load,
}

impl Fleet {
    /// Two gateways under four times the demand that they may admit, each aware of the other.
    fn start(redis: &RedisServer) -> Self {
        let routes = routes(redis.port(), "20ms");
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

    fn decisions_by_redis(&self) -> f64 {
        let series = |verdict| {
            format!(
                "tollgate_ratelimit_decisions_total{{limit=\"everybody\",verdict=\"{verdict}\",decided_by=\"redis\"}}"
            )
        };
        let of = |gateway: &Gateway| gateway.metric(&series("allowed")) + gateway.metric(&series("denied"));
        self.gateways.iter().map(of).sum()
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
        let before = self.decisions_by_redis();
        eventually("redis decides again", || (self.decisions_by_redis() > before).then_some(()));
        println!("redis decided again after {:?}", returned.elapsed());
        assert!(returned.elapsed() < Duration::from_secs(2), "{:?}", returned.elapsed());
        self.until_store_is(true);
    }

    fn end(self) {
        let samples = self.load.stop();
        assert!(samples.iter().all(|sample| matches!(sample.status, 200 | 429)), "an error was seen");
    }
}

fn live_through(mut redis: RedisServer, break_it: impl Fn(&mut RedisServer), mend_it: impl Fn(&mut RedisServer)) {
    let fleet = Fleet::start(&redis);
    break_it(&mut redis);
    let opened = fleet.until_store_is(false);
    run_for(Duration::from_secs(5));
    fleet.assert_outage_is_bearable(opened, Instant::now());
    mend_it(&mut redis);
    fleet.assert_redis_decides_within_two_seconds();
    fleet.end();
}

#[test]
fn redis_killed_and_started_again() {
    let _turn = turns::alone();
    live_through(RedisServer::start(), RedisServer::kill9, RedisServer::restart);
}

#[test]
fn redis_stopped_and_continued() {
    let _turn = turns::alone();
    live_through(RedisServer::start(), |redis| redis.stop(), |redis| redis.cont());
}

#[test]
fn a_gateway_starts_without_redis_and_finds_it_later() {
    let _turn = turns::alone();
    let port = crate::redis::free_port();
    let gateway = Gateway::start(&routes(port, "20ms"));
    let load = Load::start(&[gateway.listeners[0]], 4, Duration::from_millis(10));
    eventually("the breaker opens", || (gateway.metric("tollgate_store_up") == 0.0).then_some(()));
    let _redis = RedisServer::start_at(port);
    eventually("redis decides", || (gateway.metric("tollgate_store_up") == 1.0).then_some(()));
    let samples = load.stop();
    assert!(samples.iter().all(|sample| matches!(sample.status, 200 | 429)));
}
