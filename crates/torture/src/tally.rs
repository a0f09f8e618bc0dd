//! What clients saw.

use std::collections::BTreeMap;

use tollgate_limiter::decide::decision::DecidedBy;

use crate::judge::Admission;

/// Of one thread's clients, or of all of them.
#[derive(Debug, Default)]
pub struct Tally {
    pub admissions: Vec<Admission>,
    pub asked: u64,
    /// Tokens that an undelayed bucket would have let through, asked the same.
    pub due: u64,
    pub latencies: Latencies,
    /// Who decided, or which status a gateway answered with: how often.
    pub answers: BTreeMap<Answer, u64>,
}

/// One question and its answer, just in.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub key: u32,
    pub asked_us: u64,
    pub now_us: u64,
    pub answer: Answer,
    /// Tokens it was let through for.
    pub admitted: Option<u64>,
    /// Tokens that an undelayed bucket let through for it.
    pub due: u64,
}

/// How a question ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    Redis,
    Lease,
    DenialCache,
    Local,
    Status(u16),
    /// The connection broke, or nothing came: nobody was told to have been let through.
    Broken,
}

/// Durations in microseconds, counted in classes at most 1/32 wide.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    classes: Vec<u64>,
    count: u64,
    max_us: u64,
}

const STEPS: u64 = 32;

impl Tally {
    pub fn record(&mut self, seen: Seen) {
        let Seen { key, asked_us, now_us, answer, admitted, due } = seen;
        self.asked += 1;
        self.due += due;
        *self.answers.entry(answer).or_default() += 1;
        self.latencies.record(now_us.saturating_sub(asked_us));
        if let Some(cost) = admitted {
            // Clocks are cut to whole microseconds: the answer came before the next one.
            self.admissions.push(Admission { key, cost, asked_us, answered_us: now_us + 1 });
        }
    }

    pub fn absorb(&mut self, other: Self) {
        self.admissions.extend(other.admissions);
        self.asked += other.asked;
        self.due += other.due;
        self.latencies.absorb(&other.latencies);
        for (answer, count) in other.answers {
            *self.answers.entry(answer).or_default() += count;
        }
    }
}

impl From<DecidedBy> for Answer {
    fn from(by: DecidedBy) -> Self {
        match by {
            DecidedBy::Redis => Self::Redis,
            DecidedBy::Lease => Self::Lease,
            DecidedBy::DenialCache => Self::DenialCache,
            DecidedBy::Local => Self::Local,
        }
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Redis => f.write_str(DecidedBy::Redis.as_str()),
            Self::Lease => f.write_str(DecidedBy::Lease.as_str()),
            Self::DenialCache => f.write_str(DecidedBy::DenialCache.as_str()),
            Self::Local => f.write_str(DecidedBy::Local.as_str()),
            Self::Status(status) => write!(f, "{status}"),
            Self::Broken => f.write_str("broken"),
        }
    }
}

impl Latencies {
    pub fn record(&mut self, us: u64) {
        let class = class(us);
        if self.classes.len() <= class {
            self.classes.resize(class + 1, 0);
        }
        self.classes[class] += 1;
        self.count += 1;
        self.max_us = self.max_us.max(us);
    }

    pub fn absorb(&mut self, other: &Self) {
        if self.classes.len() < other.classes.len() {
            self.classes.resize(other.classes.len(), 0);
        }
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            *mine += theirs;
        }
        self.count += other.count;
        self.max_us = self.max_us.max(other.max_us);
    }

    /// Microseconds that `percent` of all do not exceed, up to the width of a class.
    pub fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.classes.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map_or(0, |class| upper(class).min(self.max_us))
    }

    pub fn max(&self) -> u64 {
        self.max_us
    }
}

/// The first 32 microseconds have a class each; from there every doubling has 32.
fn class(us: u64) -> usize {
    let doublings = us.checked_ilog2().unwrap_or(0).saturating_sub(STEPS.ilog2());
    usize::try_from(u64::from(doublings) * STEPS + (us >> doublings)).unwrap_or(usize::MAX)
}

fn upper(class: usize) -> u64 {
    let class = class as u64;
    let doublings = (class / STEPS).saturating_sub(1);
    ((class - doublings * STEPS + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_up_to_a_class() {
        let mut latencies = Latencies::default();
        (1..=100_000).for_each(|us| latencies.record(us));
        for (percent, exact) in [(1, 1_000), (50, 50_000), (99, 99_000), (100, 100_000)] {
            let said = latencies.percentile(percent);
            assert!(said >= exact && said <= exact + exact / 32 + 1, "{percent}: {said}");
        }
        assert_eq!(Latencies::default().percentile(99), 0);
    }

    #[test]
    fn every_duration_is_within_its_class() {
        for us in (0..5_000).chain([1 << 20, (1 << 20) - 1, 1 << 40]) {
            let class = class(us);
            assert!(us <= upper(class) && (class == 0 || us > upper(class - 1)), "{us} in {class}");
        }
    }
}
