//! The data of charts, for the library that draws them, and the same in words and numbers for those
//! who see no chart.

use std::collections::BTreeMap;

use askama::Template;
use serde::Serialize;

use crate::live::LiveData;
use crate::live::history::{LENGTH, NOW};
use crate::live::track::{DecisionSample, LimitTrack, TrafficSample, TrafficTrack};
use crate::numbers;

/// Steps of a minute.
const MINUTE: usize = LENGTH / 10;

/// The charts of a page, by the name of the element that they are drawn in.
pub type Charts = BTreeMap<&'static str, Chart>;

/// The points of a chart.
#[derive(Debug, Default, Serialize)]
pub struct Chart {
    /// In seconds since 1970.
    pub times: Vec<f64>,
    /// For each line, a value at each of these times. None: there is nothing to show.
    pub lines: Vec<Vec<Option<f64>>>,
}

/// The mean of the last ten seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrafficNow {
    pub requests: f64,
    pub denied: f64,
    pub errors: f64,
    pub median: f32,
    pub p99: f32,
}

/// The mean of the last ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DecisionsNow {
    pub allowed: f64,
    pub denied: f64,
    pub shadow_denied: f64,
}

/// The charts of requests in words.
#[derive(Clone, Debug)]
pub struct TrafficSummary {
    pub requests: String,
    pub shares: String,
    pub latency: String,
}

/// The charts of requests as numbers, a row for each minute.
#[derive(Template)]
#[template(path = "parts/traffic_minutes.html")]
pub struct TrafficMinutes {
    rows: Vec<TrafficMinute>,
}

struct TrafficMinute {
    when: String,
    requests: String,
    denied: String,
    errors: String,
    median: String,
    p99: String,
}

/// The chart of a limit's decisions as numbers, a row for each minute.
#[derive(Template)]
#[template(path = "parts/decision_minutes.html")]
pub struct DecisionMinutes {
    rows: Vec<DecisionMinute>,
}

struct DecisionMinute {
    when: String,
    allowed: String,
    denied: String,
    shadow_denied: String,
}

/// A sample of one step.
struct Point<S> {
    /// The end of the step, in seconds since 1970.
    at: f64,
    /// The length of the step.
    seconds: f64,
    sample: S,
}

impl LiveData {
    pub fn traffic_now(&self, track: &TrafficTrack) -> TrafficNow {
        let seconds = self.recent_seconds();
        let samples: Vec<_> = track.history.latest(NOW).collect();
        let last = track.history.last().unwrap_or(TrafficSample {
            median: f32::NAN,
            p99: f32::NAN,
            ..Default::default()
        });
        TrafficNow {
            requests: mean(&samples, seconds, |sample| sample.requests),
            denied: mean(&samples, seconds, |sample| sample.denied),
            errors: mean(&samples, seconds, |sample| sample.errors),
            median: last.median,
            p99: last.p99,
        }
    }

    pub fn decisions_now(&self, track: &LimitTrack) -> DecisionsNow {
        let seconds = self.recent_seconds();
        let samples: Vec<_> = track.history.latest(NOW).collect();
        DecisionsNow {
            allowed: mean(&samples, seconds, |sample| sample.allowed),
            denied: mean(&samples, seconds, |sample| sample.denied),
            shadow_denied: mean(&samples, seconds, |sample| sample.shadow_denied),
        }
    }

    /// The length of the steps that count as now.
    fn recent_seconds(&self) -> f64 {
        let mut seconds = 0.0;
        for step in self.steps.latest(NOW) {
            seconds += f64::from(step.seconds);
        }
        seconds
    }

    /// The samples of a history, each with its step. A history that is shorter than the steps began
    /// with zeros.
    fn points<S: Copy>(
        &self,
        mut samples: impl ExactSizeIterator<Item = S>,
        zero: S,
    ) -> Vec<Point<S>> {
        let before = self.steps.len().saturating_sub(samples.len());
        let mut points = Vec::with_capacity(self.steps.len());
        for (index, step) in self.steps.iter().enumerate() {
            let sample = if index < before {
                zero
            } else {
                samples.next().unwrap_or(zero)
            };
            points.push(Point {
                at: step.at_ms as f64 / 1e3,
                seconds: step.seconds.into(),
                sample,
            });
        }
        points
    }

    fn traffic_points(&self, track: &TrafficTrack) -> Vec<Point<TrafficSample>> {
        let zero = TrafficSample {
            median: f32::NAN,
            p99: f32::NAN,
            ..TrafficSample::default()
        };
        self.points(track.history.iter(), zero)
    }

    /// The charts of requests.
    pub fn traffic_charts(&self, track: &TrafficTrack) -> Charts {
        let points = self.traffic_points(track);
        let rates = vec![
            rates(&points, |sample| sample.requests),
            rates(&points, |sample| sample.denied),
        ];
        let shares = vec![
            shares(&points, |sample| sample.denied),
            shares(&points, |sample| sample.errors),
        ];
        let latencies = vec![
            millis(&points, |sample| sample.median),
            millis(&points, |sample| sample.p99),
        ];
        BTreeMap::from([
            ("requests", Chart::new(&points, rates)),
            ("shares", Chart::new(&points, shares)),
            ("latency", Chart::new(&points, latencies)),
        ])
    }

    /// The charts of requests in words.
    pub fn traffic_summary(&self, track: &TrafficTrack) -> TrafficSummary {
        let now = self.traffic_now(track);
        let points = self.traffic_points(track);
        let mut highest: f64 = 0.0;
        let mut slowest = f32::NAN;
        let mut all = 0.0;
        let mut denied = 0.0;
        let mut errors = 0.0;
        for Point {
            seconds, sample, ..
        } in &points
        {
            highest = highest.max(f64::from(sample.requests) / seconds);
            slowest = slowest.max(sample.p99);
            all += f64::from(sample.requests);
            denied += f64::from(sample.denied);
            errors += f64::from(sample.errors);
        }
        if all <= 0.0 {
            let none = "No requests in the last ten minutes.";
            return TrafficSummary {
                requests: none.to_owned(),
                shares: none.to_owned(),
                latency: none.to_owned(),
            };
        }
        let is_idle = now.requests <= 0.0;
        let shares = format!(
            "{} denied and {} server errors over the last ten minutes",
            numbers::share(denied, all),
            numbers::share(errors, all)
        );
        let slowest = numbers::latency(slowest);
        TrafficSummary {
            requests: format!(
                "{} now, of them {} denied. Highest of the last ten minutes: {}.",
                numbers::rate(now.requests),
                numbers::rate(now.denied),
                numbers::rate(highest)
            ),
            shares: if is_idle {
                format!("No requests now. {shares}.")
            } else {
                format!(
                    "{} denied and {} server errors now; {shares}.",
                    numbers::share(now.denied, now.requests),
                    numbers::share(now.errors, now.requests)
                )
            },
            latency: if is_idle {
                format!("No requests now. Highest of the last ten minutes: {slowest}.")
            } else {
                format!(
                    "Half of the requests take up to {} now, 99 of 100 up to {}. Highest of the last ten minutes: {slowest}.",
                    numbers::latency(now.median),
                    numbers::latency(now.p99)
                )
            },
        }
    }

    /// The charts of requests as numbers.
    pub fn traffic_minutes(&self, track: &TrafficTrack) -> TrafficMinutes {
        let rows = by_minute(&self.traffic_points(track), |when, seconds, samples| {
            let requests = sum(samples, |sample| sample.requests) as f64;
            let denied = sum(samples, |sample| sample.denied) as f64;
            let errors = sum(samples, |sample| sample.errors) as f64;
            let mut median = f32::NAN;
            let mut p99 = f32::NAN;
            for sample in samples {
                median = median.max(sample.median);
                p99 = p99.max(sample.p99);
            }
            TrafficMinute {
                when,
                requests: numbers::rate(requests / seconds),
                denied: numbers::share(denied, requests),
                errors: numbers::share(errors, requests),
                median: numbers::latency(median),
                p99: numbers::latency(p99),
            }
        });
        TrafficMinutes { rows }
    }

    /// The chart of a limit's decisions.
    pub fn decision_charts(&self, track: &LimitTrack) -> Charts {
        let points = self.points(track.history.iter(), DecisionSample::default());
        let lines = vec![
            rates(&points, |sample| sample.allowed),
            rates(&points, |sample| sample.denied),
            rates(&points, |sample| sample.shadow_denied),
        ];
        BTreeMap::from([("decisions", Chart::new(&points, lines))])
    }

    /// The chart of a limit's decisions in words.
    pub fn decision_summary(&self, track: &LimitTrack) -> String {
        let now = self.decisions_now(track);
        let allowed = numbers::rate(now.allowed);
        let denied = numbers::rate(now.denied);
        let mut denied_in_all = 0;
        for sample in track.history.iter() {
            denied_in_all += u64::from(sample.denied);
        }
        let shadow = if now.shadow_denied > 0.0 {
            format!(
                " {} would be denied if the limit were enforced.",
                numbers::rate(now.shadow_denied)
            )
        } else {
            String::new()
        };
        format!(
            "{allowed} allowed and {denied} denied now.{shadow} {} denied in the last ten minutes.",
            numbers::count(denied_in_all)
        )
    }

    /// The chart of a limit's decisions as numbers.
    pub fn decision_minutes(&self, track: &LimitTrack) -> DecisionMinutes {
        let points = self.points(track.history.iter(), DecisionSample::default());
        let rows = by_minute(&points, |when, _, samples| DecisionMinute {
            when,
            allowed: numbers::count(sum(samples, |sample| sample.allowed)),
            denied: numbers::count(sum(samples, |sample| sample.denied)),
            shadow_denied: numbers::count(sum(samples, |sample| sample.shadow_denied)),
        });
        DecisionMinutes { rows }
    }
}

fn mean<S>(samples: &[S], seconds: f64, of: fn(&S) -> u32) -> f64 {
    if seconds > 0.0 {
        sum(samples, of) as f64 / seconds
    } else {
        0.0
    }
}

fn sum<S>(samples: &[S], of: fn(&S) -> u32) -> u64 {
    samples.iter().map(|sample| u64::from(of(sample))).sum()
}

impl Chart {
    fn new<S>(points: &[Point<S>], lines: Vec<Vec<Option<f64>>>) -> Self {
        Self {
            times: points.iter().map(|point| point.at).collect(),
            lines,
        }
    }
}

/// A line of counts each second.
fn rates<S>(points: &[Point<S>], of: fn(&S) -> u32) -> Vec<Option<f64>> {
    let mut line = Vec::with_capacity(points.len());
    for point in points {
        let count = f64::from(of(&point.sample));
        line.push(Some(rounded(count / point.seconds)));
    }
    line
}

/// A line of shares of all requests, in percent.
fn shares(points: &[Point<TrafficSample>], of: fn(&TrafficSample) -> u32) -> Vec<Option<f64>> {
    let mut line = Vec::with_capacity(points.len());
    for Point { sample, .. } in points {
        line.push(if sample.requests > 0 {
            let share = f64::from(of(sample)) / f64::from(sample.requests);
            Some(rounded(100.0 * share))
        } else {
            None
        });
    }
    line
}

/// A line of latencies in milliseconds.
fn millis(points: &[Point<TrafficSample>], of: fn(&TrafficSample) -> f32) -> Vec<Option<f64>> {
    let mut line = Vec::with_capacity(points.len());
    for Point { sample, .. } in points {
        let millis = f64::from(of(sample)) * 1e3;
        line.push(if millis.is_finite() {
            Some(rounded(millis))
        } else {
            None
        });
    }
    line
}

/// A value to three decimals: nobody sees more on a chart.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// A row for each minute, the last minute first.
fn by_minute<S: Copy, R>(points: &[Point<S>], row: impl Fn(String, f64, &[S]) -> R) -> Vec<R> {
    let mut rows = Vec::new();
    for (ago, points) in points.rchunks(MINUTE).enumerate() {
        let when = if ago == 0 {
            "last minute".to_owned()
        } else {
            format!("{ago} to {} min ago", ago + 1)
        };
        let seconds = points.iter().map(|point| point.seconds).sum();
        let samples: Vec<S> = points.iter().map(|point| point.sample).collect();
        rows.push(row(when, seconds, &samples));
    }
    rows
}
