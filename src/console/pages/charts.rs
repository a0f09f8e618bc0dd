//! The data of charts, for the library that draws them, and the same in words and numbers for those
//! who see no chart.

use std::collections::BTreeMap;

use askama::Template;
use serde::Serialize;

use crate::console::live::LiveData;
use crate::console::live::history::{LENGTH, NOW};
use crate::console::live::track::{DecisionSample, LimitTrack, TrafficSample, TrafficTrack};
use crate::console::numbers;

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

/// The points of one time each: when it ends, how long it is, and its sample.
type Points<S> = Vec<(f64, f64, S)>;

impl LiveData {
    pub fn traffic_now(&self, track: &TrafficTrack) -> TrafficNow {
        let (seconds, samples) = (
            self.recent_seconds(),
            track.history.latest(NOW).collect::<Vec<_>>(),
        );
        let mean = |of: fn(&TrafficSample) -> u32| mean(&samples, seconds, of);
        let last = track.history.last().unwrap_or(TrafficSample {
            median: f32::NAN,
            p99: f32::NAN,
            ..Default::default()
        });
        TrafficNow {
            requests: mean(|sample| sample.requests),
            denied: mean(|sample| sample.denied),
            errors: mean(|sample| sample.errors),
            median: last.median,
            p99: last.p99,
        }
    }

    pub fn decisions_now(&self, track: &LimitTrack) -> DecisionsNow {
        let (seconds, samples) = (
            self.recent_seconds(),
            track.history.latest(NOW).collect::<Vec<_>>(),
        );
        let mean = |of: fn(&DecisionSample) -> u32| mean(&samples, seconds, of);
        DecisionsNow {
            allowed: mean(|sample| sample.allowed),
            denied: mean(|sample| sample.denied),
            shadow_denied: mean(|sample| sample.shadow_denied),
        }
    }

    /// How long the steps were that count as now.
    fn recent_seconds(&self) -> f64 {
        self.steps
            .latest(NOW)
            .map(|step| f64::from(step.seconds))
            .sum()
    }

    /// The samples of a history, each with its step. A history that is shorter than the steps began
    /// with zeros.
    fn points<S: Copy>(&self, samples: impl ExactSizeIterator<Item = S>, zero: S) -> Points<S> {
        let before = self.steps.len().saturating_sub(samples.len());
        let samples = std::iter::repeat_n(zero, before).chain(samples);
        self.steps
            .iter()
            .zip(samples)
            .map(|(step, sample)| (step.at_ms as f64 / 1e3, step.seconds.into(), sample))
            .collect()
    }

    fn traffic_points(&self, track: &TrafficTrack) -> Points<TrafficSample> {
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
        let rate = |of: fn(&TrafficSample) -> u32| {
            line(&points, |seconds, sample| {
                Some(f64::from(of(sample)) / seconds)
            })
        };
        let part = |of: fn(&TrafficSample) -> u32| {
            line(&points, |_, sample| {
                (sample.requests > 0)
                    .then(|| 100.0 * f64::from(of(sample)) / f64::from(sample.requests))
            })
        };
        let millis = |of: fn(&TrafficSample) -> f32| {
            line(&points, |_, sample| {
                Some(f64::from(of(sample)) * 1e3).filter(|millis| millis.is_finite())
            })
        };
        let times = || points.iter().map(|(at, ..)| *at).collect();
        let chart = |lines| Chart {
            times: times(),
            lines,
        };
        BTreeMap::from([
            (
                "requests",
                chart(vec![
                    rate(|sample| sample.requests),
                    rate(|sample| sample.denied),
                ]),
            ),
            (
                "shares",
                chart(vec![
                    part(|sample| sample.denied),
                    part(|sample| sample.errors),
                ]),
            ),
            (
                "latency",
                chart(vec![
                    millis(|sample| sample.median),
                    millis(|sample| sample.p99),
                ]),
            ),
        ])
    }

    /// The charts of requests in words.
    pub fn traffic_summary(&self, track: &TrafficTrack) -> TrafficSummary {
        let (now, points) = (self.traffic_now(track), self.traffic_points(track));
        let highest = points
            .iter()
            .map(|(_, seconds, sample)| f64::from(sample.requests) / seconds)
            .fold(0.0, f64::max);
        let slowest = points
            .iter()
            .map(|(.., sample)| sample.p99)
            .fold(f32::NAN, f32::max);
        let sum = |of: fn(&TrafficSample) -> u32| {
            points
                .iter()
                .map(|(.., sample)| f64::from(of(sample)))
                .sum::<f64>()
        };
        let all = sum(|sample| sample.requests);
        if all <= 0.0 {
            let none = || "No requests in the last ten minutes.".to_owned();
            return TrafficSummary {
                requests: none(),
                shares: none(),
                latency: none(),
            };
        }
        let is_idle = now.requests <= 0.0;
        let shares = format!(
            "{} denied and {} server errors over the last ten minutes",
            numbers::share(sum(|sample| sample.denied), all),
            numbers::share(sum(|sample| sample.errors), all)
        );
        let slowest = numbers::latency(slowest);
        TrafficSummary {
            requests: format!(
                "{} now, of them {} denied. Highest of the last ten minutes: {}.",
                numbers::rate(now.requests),
                numbers::rate(now.denied),
                numbers::rate(highest)
            ),
            shares: match is_idle {
                true => format!("No requests now. {shares}."),
                false => format!(
                    "{} denied and {} server errors now; {shares}.",
                    numbers::share(now.denied, now.requests),
                    numbers::share(now.errors, now.requests)
                ),
            },
            latency: match is_idle {
                true => format!("No requests now. Highest of the last ten minutes: {slowest}."),
                false => format!(
                    "Half of the requests take up to {} now, 99 of 100 up to {}. Highest of the last ten minutes: {slowest}.",
                    numbers::latency(now.median),
                    numbers::latency(now.p99)
                ),
            },
        }
    }

    /// The charts of requests as numbers.
    pub fn traffic_minutes(&self, track: &TrafficTrack) -> TrafficMinutes {
        let rows = by_minute(&self.traffic_points(track), |when, seconds, samples| {
            let sum = |of: fn(&TrafficSample) -> u32| {
                samples
                    .iter()
                    .map(|sample| f64::from(of(sample)))
                    .sum::<f64>()
            };
            let highest =
                |of: fn(&TrafficSample) -> f32| samples.iter().map(of).fold(f32::NAN, f32::max);
            let requests = sum(|sample| sample.requests);
            TrafficMinute {
                when,
                requests: numbers::rate(requests / seconds),
                denied: numbers::share(sum(|sample| sample.denied), requests),
                errors: numbers::share(sum(|sample| sample.errors), requests),
                median: numbers::latency(highest(|sample| sample.median)),
                p99: numbers::latency(highest(|sample| sample.p99)),
            }
        });
        TrafficMinutes { rows }
    }

    /// The chart of a limit's decisions.
    pub fn decision_charts(&self, track: &LimitTrack) -> Charts {
        let points = self.points(track.history.iter(), DecisionSample::default());
        let rate = |of: fn(&DecisionSample) -> u32| {
            line(&points, |seconds, sample| {
                Some(f64::from(of(sample)) / seconds)
            })
        };
        let lines = vec![
            rate(|sample| sample.allowed),
            rate(|sample| sample.denied),
            rate(|sample| sample.shadow_denied),
        ];
        BTreeMap::from([(
            "decisions",
            Chart {
                times: points.iter().map(|(at, ..)| *at).collect(),
                lines,
            },
        )])
    }

    /// The chart of a limit's decisions in words.
    pub fn decision_summary(&self, track: &LimitTrack) -> String {
        let now = self.decisions_now(track);
        let (allowed, denied) = (numbers::rate(now.allowed), numbers::rate(now.denied));
        let sum: u64 = track
            .history
            .iter()
            .map(|sample| u64::from(sample.denied))
            .sum();
        let shadow = match now.shadow_denied {
            none if none <= 0.0 => String::new(),
            some => format!(
                " {} would be denied if the limit were enforced.",
                numbers::rate(some)
            ),
        };
        format!(
            "{allowed} allowed and {denied} denied now.{shadow} {} denied in the last ten minutes.",
            numbers::count(sum)
        )
    }

    /// The chart of a limit's decisions as numbers.
    pub fn decision_minutes(&self, track: &LimitTrack) -> DecisionMinutes {
        let points = self.points(track.history.iter(), DecisionSample::default());
        let rows = by_minute(&points, |when, _, samples| {
            let sum = |of: fn(&DecisionSample) -> u32| {
                numbers::count(samples.iter().map(|sample| u64::from(of(sample))).sum())
            };
            DecisionMinute {
                when,
                allowed: sum(|sample| sample.allowed),
                denied: sum(|sample| sample.denied),
                shadow_denied: sum(|sample| sample.shadow_denied),
            }
        });
        DecisionMinutes { rows }
    }
}

fn mean<S>(samples: &[S], seconds: f64, of: fn(&S) -> u32) -> f64 {
    if seconds > 0.0 {
        samples
            .iter()
            .map(|sample| f64::from(of(sample)))
            .sum::<f64>()
            / seconds
    } else {
        0.0
    }
}

/// Rounded: nobody sees more on a chart.
fn line<S>(points: &Points<S>, value: impl Fn(f64, &S) -> Option<f64>) -> Vec<Option<f64>> {
    points
        .iter()
        .map(|(_, seconds, sample)| {
            value(*seconds, sample).map(|value| (value * 1e3).round() / 1e3)
        })
        .collect()
}

/// A row for each minute, the last one first.
fn by_minute<S: Copy, R>(points: &Points<S>, row: impl Fn(String, f64, &[S]) -> R) -> Vec<R> {
    let minutes = points.rchunks(MINUTE).enumerate();
    let row = |(ago, points): (usize, &[(f64, f64, S)])| {
        let when = if ago == 0 {
            "last minute".to_owned()
        } else {
            format!("{ago} to {} min ago", ago + 1)
        };
        let samples: Vec<S> = points.iter().map(|(.., sample)| *sample).collect();
        row(
            when,
            points.iter().map(|(_, seconds, _)| seconds).sum(),
            &samples,
        )
    };
    minutes.map(row).collect()
}
