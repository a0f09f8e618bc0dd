//! Two gateways with one limit and one Redis: the promise, measured from outside.

use std::time::Duration;

use crate::load::{Load, Sample};
use crate::process::Gateway;
use tollgate_testing::redis::RedisServer;
use tollgate_testing::turns;

pub const RATE: f64 = 50.0;
pub const BURST: f64 = 100.0;

/// For tests without a fault: a machine that is busy with other things must not look like one.
pub const PATIENT: &str = "10s";

/// A gateway that limits everybody together to [`RATE`] and [`BURST`], but at `/free`.
pub fn routes(redis: &str, timeout: &str) -> String {
    format!(
        "workers: 2
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
store: {{redis: '{redis}', timeout: {timeout}}}
limits: {{everybody: {{key: {{constant: all}}, rate: {RATE}/s, burst: {BURST}}}}}
routes:
  - {{name: all, match: {{path: '/*'}}, respond: {{status: 200, body: ok}}, limits: [everybody]}}
  - {{name: free, match: {{path: /free}}, respond: {{status: 200, body: ok}}}}
"
    )
}

/// From the first question to the last answer.
pub fn seconds(samples: &[Sample]) -> f64 {
    let first = samples.iter().map(|sample| sample.at).min().unwrap();
    let last = samples
        .iter()
        .map(|sample| sample.at + sample.took)
        .max()
        .unwrap();
    (last - first).as_secs_f64()
}

pub fn admitted(samples: &[Sample]) -> usize {
    samples.iter().filter(|sample| sample.status == 200).count()
}

/// In no window, wherever it starts and ends, may more pass than burst + rate x t.
pub fn assert_never_over(samples: &[Sample]) {
    let mut passed: Vec<&Sample> = samples
        .iter()
        .filter(|sample| sample.status == 200)
        .collect();
    passed.sort_by_key(|sample| sample.at + sample.took);
    for (i, first) in passed.iter().enumerate() {
        let mut start = first.at;
        for (j, last) in passed.iter().enumerate().skip(i) {
            // Each was decided somewhere between question and answer: the window that surely holds
            // all of them.
            start = start.min(last.at);
            let t = (last.at + last.took - start).as_secs_f64();
            let count = (j - i + 1) as f64;
            assert!(
                count <= BURST + RATE * t + 1e-6,
                "{count} passed within {t:.6} s, from the {i}th on"
            );
        }
    }
}

/// Fails when tokens were wasted. A bucket that denies is empty: between the first denial and the
/// last one, as much was admitted as came in at `rate`, save what `share` leaves out. A busy
/// machine only brings these moments closer together.
pub fn assert_spent_between_denials(samples: &[Sample], rate: f64, share: f64) {
    let denied = || samples.iter().filter(|sample| sample.status == 429);
    let (Some(first), Some(last)) = (
        denied().min_by_key(|sample| sample.at),
        denied().max_by_key(|sample| sample.at),
    ) else {
        return;
    };
    let first_end = first.at + first.took;
    let seconds = last.at.saturating_duration_since(first_end).as_secs_f64();
    let between = samples.iter().filter(|sample| {
        sample.status == 200
            && sample.at + sample.took > first.at
            && sample.at < last.at + last.took
    });
    // A token may be on its way at each end.
    let (spent, least) = (between.count() as f64, share * rate * seconds - 2.0);
    assert!(
        spent >= least,
        "{spent} of {least} were admitted in {seconds} s between two denials"
    );
}

/// How many were admitted before the first denial.
fn admitted_at_first(samples: &[Sample]) -> usize {
    let denied = samples.iter().filter(|sample| sample.status == 429);
    let first = denied.map(|sample| sample.at + sample.took).min();
    samples
        .iter()
        .filter(|sample| sample.status == 200 && first.is_none_or(|first| sample.at < first))
        .count()
}

/// Twenty times the demand that the limit admits, for five seconds, through both.
fn overload(gateways: &[Gateway; 2]) -> Vec<Sample> {
    let targets: Vec<_> = gateways
        .iter()
        .map(|gateway| gateway.listeners[0])
        .collect();
    let load = Load::start(&targets, 10, Duration::from_millis(20));
    crate::load::run_for(Duration::from_secs(5));
    load.stop()
}

fn assert_exact(samples: &[Sample]) {
    let bound = BURST + RATE * seconds(samples);
    let admitted = admitted(samples) as f64;
    println!(
        "admitted {admitted} of {} in {:.2} s, {:.2} % of the bound",
        samples.len(),
        seconds(samples),
        100.0 * admitted / bound
    );
    assert!(admitted_at_first(samples) as f64 >= 0.97 * BURST);
    assert_spent_between_denials(samples, RATE, 0.97);
    assert!(
        samples
            .iter()
            .all(|sample| matches!(sample.status, 200 | 429))
            && samples.iter().any(|sample| sample.status == 429)
    );
    assert_never_over(samples);
}

/// By the gateway's own clock.
fn started_at(gateway: &Gateway) -> jiff::Timestamp {
    let log = gateway.log();
    let entry: serde_json::Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    entry["timestamp"].as_str().unwrap().parse().unwrap()
}

#[test]
fn two_gateways_admit_what_one_limit_allows() {
    let _turn = turns::among_few();
    let redis = RedisServer::start();
    let routes = routes(&redis.url(), PATIENT);
    assert_exact(&overload(&[
        Gateway::start(&routes),
        Gateway::start(&routes),
    ]));
}

#[test]
fn a_clock_that_is_an_hour_off_changes_nothing() {
    let _turn = turns::among_few();
    let redis = RedisServer::start();
    let routes = routes(&redis.url(), PATIENT);
    let gateways = [
        Gateway::start(&routes),
        Gateway::start_with_clock("+1h", &routes),
    ];
    let [right, ahead] = gateways.each_ref().map(started_at);
    let ahead_by = ahead.duration_since(right).as_secs();
    assert!(
        (3_500..3_700).contains(&ahead_by),
        "the clock is not an hour off, but {ahead_by} s"
    );
    assert_exact(&overload(&gateways));
}
