//! Latencies of requests, counted in classes so that any number of them takes little room.

/// Durations in microseconds, counted in classes at most 1/32 wide.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    classes: Vec<u64>,
    count: u64,
    max_us: u64,
}

const STEPS: u64 = 32;

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
    let doublings = us
        .checked_ilog2()
        .unwrap_or(0)
        .saturating_sub(STEPS.ilog2());
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
            let shown = latencies.percentile(percent);
            assert!(
                shown >= exact && shown <= exact + exact / 32 + 1,
                "{percent}: {shown}"
            );
        }
        assert_eq!(Latencies::default().percentile(99), 0);
    }

    #[test]
    fn every_duration_is_within_its_class() {
        for us in (0..5_000).chain([1 << 20, (1 << 20) - 1, 1 << 40]) {
            let class = class(us);
            assert!(
                us <= upper(class) && (class == 0 || us > upper(class - 1)),
                "{us} in {class}"
            );
        }
    }
}
