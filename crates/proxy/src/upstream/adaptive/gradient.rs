//! The arithmetic of an adaptive bound: how many requests an upstream takes at a time, by how fast
//! it answers them. Follows the gradient controller of Envoy's adaptive concurrency filter.
//!
//! Guarantees that the limit stays within its rule, and that it changes only by what was measured.

use std::time::Duration;

use crate::upstream::health::micros;
pub use crate::upstream::spec::bounds::AdaptiveRule;

/// From one change of the limit to the next, as in Envoy.
pub const UPDATE: Duration = Duration::from_millis(100);

/// The fewest answers that say anything.
const FEWEST: u64 = 10;

/// The part of its interval by which the shortest latency is measured later, so that gateways do
/// not do it all at once.
const JITTER: f64 = 0.15;

/// The part of its interval that measuring the shortest latency takes at most.
const LONGEST_MEASURING: u64 = 10;

/// Changes in a row that leave the limit at its least: so many say that the shortest latency is
/// another by now.
const STUCK: u32 = 5;

/// The most intervals that go by without a measurement, for nothing seems to queue.
const MOST_CALM: u32 = 32;

/// The smallest and the largest factor that a limit changes by at once, before its headroom.
const FACTORS: (f64, f64) = (0.5, 2.0);

/// The limit, and how it came about.
#[derive(Debug)]
pub struct Gradient {
    rule: AdaptiveRule,
    limit: f64,
    /// In microseconds. `None`: it was not measured yet.
    shortest: Option<u64>,
    phase: LimitPhase,
    stuck: u32,
    /// Intervals since the last measurement.
    calm: u32,
    /// The calm intervals after which it is measured all the same: a queue that was there at the
    /// last measurement looks like none.
    patience: u32,
}

#[derive(Debug)]
enum LimitPhase {
    /// The limit is the lowest, and the shortest latency is measured until then.
    Measuring { until: u64 },
    /// The limit follows the latency until the shortest is measured again.
    Following { update_at: u64, measure_at: u64 },
}

/// Answers that were counted.
#[derive(Clone, Copy, Debug)]
pub struct AnswerSample {
    pub count: u64,
    /// In microseconds.
    pub median: u64,
    /// The most requests in flight meanwhile.
    pub peak: usize,
}

/// Times are in microseconds of the monotonic clock.
impl Gradient {
    pub fn new(rule: AdaptiveRule, now: u64) -> Self {
        let limit = rule.min as f64;
        let phase = LimitPhase::Measuring { until: now };
        let mut gradient = Self {
            rule,
            limit,
            shortest: None,
            phase,
            stuck: 0,
            calm: 0,
            patience: 1,
        };
        gradient.measure(now);
        gradient
    }

    /// With another rule. What was measured holds: it is the upstream's.
    pub fn with_rule(&self, rule: AdaptiveRule, now: u64, random: f64) -> Self {
        let mut gradient = Self::new(rule, now);
        if self.shortest.is_some() {
            let limit = self.limit.clamp(rule.min as f64, rule.max as f64);
            gradient = Self {
                limit,
                shortest: self.shortest,
                patience: self.patience,
                ..gradient
            };
            if !self.is_measuring() {
                gradient.follow(now, random);
            }
        }
        gradient
    }

    /// How many requests may be in flight.
    pub fn limit(&self) -> usize {
        if self.is_measuring() {
            self.rule.min
        } else {
            self.limit as usize
        }
    }

    /// The latency of requests that wait for no other.
    pub fn shortest_latency(&self) -> Option<Duration> {
        self.shortest.map(Duration::from_micros)
    }

    pub fn is_measuring(&self) -> bool {
        matches!(self.phase, LimitPhase::Measuring { .. })
    }

    /// Whether it takes the answers that were counted by `now`.
    pub fn is_due(&self, now: u64, count: u64) -> bool {
        match self.phase {
            LimitPhase::Measuring { .. } if count >= self.rule.requests => true,
            // An upstream that has become slow takes longer for as many.
            LimitPhase::Measuring { until } => now >= until && count >= FEWEST,
            LimitPhase::Following { update_at, .. } => now >= update_at && count >= FEWEST,
        }
    }

    /// Takes the answers that were counted by `now`, if there are any. `random`: from 0 to 1.
    pub fn advance(&mut self, now: u64, sample: Option<AnswerSample>, random: f64) {
        match (&mut self.phase, sample) {
            (LimitPhase::Measuring { .. }, Some(sample)) => {
                self.take(sample.median.max(1));
                self.follow(now, random);
            }
            (
                LimitPhase::Following {
                    update_at,
                    measure_at,
                },
                Some(sample),
            ) => {
                *update_at = now.saturating_add(micros(UPDATE));
                let is_time = now >= *measure_at;
                self.calm += u32::from(is_time);
                self.update(sample);
                if self.is_stuck() {
                    // The limit was at its least all the time, as in a measurement.
                    self.take(sample.median.max(1));
                    self.follow(now, random);
                } else if is_time {
                    self.end_interval(now, sample, random);
                }
            }
            (_, None) => {}
        }
    }

    /// Sets the limit by a sample.
    fn update(&mut self, sample: AnswerSample) {
        let Some(shortest) = self.shortest else {
            return;
        };
        let expected = self.with_buffer(shortest);
        self.limit = self.next_limit(expected as f64 / sample.median.max(1) as f64, sample.peak);
        let is_lowest = self.limit <= self.rule.min as f64;
        self.stuck = if is_lowest && sample.median > expected {
            self.stuck + 1
        } else {
            0
        };
    }

    fn is_stuck(&self) -> bool {
        self.stuck >= STUCK
    }

    /// Measures the shortest latency anew, unless nothing seems to queue.
    fn end_interval(&mut self, now: u64, sample: AnswerSample, random: f64) {
        let Some(shortest) = self.shortest else {
            return;
        };
        let is_calm = sample.median <= self.with_buffer(shortest);
        if !is_calm || self.calm >= self.patience {
            return self.measure(now);
        }
        self.shortest = Some(shortest.min(sample.median.max(1)));
        self.follow(now, random);
    }

    /// Takes the latency of requests that waited for no other.
    fn take(&mut self, shortest: u64) {
        // A latency that is shorter by much tells that the last measurement was one of a queue, or
        // of cold caches.
        let was_wrong = self
            .shortest
            .is_none_or(|before| self.with_buffer(shortest) < before);
        self.patience = if was_wrong {
            1
        } else {
            (2 * self.patience).min(MOST_CALM)
        };
        self.shortest = Some(shortest);
        self.calm = 0;
        self.stuck = 0;
    }

    /// The latency that a limit does not fall for.
    fn with_buffer(&self, latency: u64) -> u64 {
        latency.saturating_mul(100 + self.rule.buffer.of(100) as u64) / 100
    }

    /// The limit by the ratio of the expected latency to the measured one. Its square root more
    /// lets a queue form that shows whether the upstream takes more.
    fn next_limit(&self, ratio: f64, peak: usize) -> f64 {
        let scaled = self.limit * ratio.clamp(FACTORS.0, FACTORS.1);
        let next = scaled + scaled.sqrt();
        // An upstream that gets little says nothing of how much it takes.
        let next = if 2.0 * (peak as f64) < self.limit {
            next.min(self.limit)
        } else {
            next
        };
        next.clamp(self.rule.min as f64, self.rule.max as f64)
    }

    fn measure(&mut self, now: u64) {
        self.stuck = 0;
        self.phase = LimitPhase::Measuring {
            until: now.saturating_add(micros(self.rule.interval) / LONGEST_MEASURING),
        };
    }

    fn follow(&mut self, now: u64, random: f64) {
        let apart = self
            .rule
            .interval
            .mul_f64(1.0 + JITTER * random.clamp(0.0, 1.0));
        let measure_at = now.saturating_add(micros(apart));
        self.phase = LimitPhase::Following {
            update_at: now.saturating_add(micros(UPDATE)),
            measure_at,
        };
    }
}

#[cfg(test)]
mod tests;
