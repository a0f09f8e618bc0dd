//! When changes are worth a line in the log: a few at once, and those of a name that flaps once in
//! a while.
//!
//! Guarantees at most [`MOST_LINES`] lines in [`PERIOD`], and that what is true in the end has one.

use std::time::Duration;

use crate::upstream::health::micros;

/// Lines of a name in a period.
const MOST_LINES: u32 = 4;

const PERIOD: Duration = Duration::from_secs(60);

/// The changes of one thing.
#[derive(Debug, Default)]
pub struct ChangeLog {
    /// In microseconds of the monotonic clock.
    period_ends: u64,
    lines: u32,
    unlogged: u32,
}

impl ChangeLog {
    /// Counts a change.
    pub fn count(&mut self) {
        self.unlogged = self.unlogged.saturating_add(1);
    }

    /// How many changes the line stands for that is to be written at `now`. `None`: there is
    /// nothing to tell, or not yet.
    pub fn line(&mut self, now: u64) -> Option<u32> {
        if self.unlogged == 0 {
            return None;
        }
        if now >= self.period_ends {
            (self.period_ends, self.lines) = (now.saturating_add(micros(PERIOD)), 0);
        }
        if self.lines >= MOST_LINES {
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_changes_have_a_line_each_and_many_have_one_that_counts_them() {
        let mut log = ChangeLog::default();
        assert_eq!(log.line(1), None);
        for now in 1..=4 {
            log.count();
            assert_eq!((log.line(now), log.line(now)), (Some(1), None));
        }
        for now in 5..=9 {
            log.count();
            assert_eq!(log.line(now), None);
        }
        // Once there is room, without another change.
        let end = 1 + micros(PERIOD);
        assert_eq!(
            (log.line(end - 1), log.line(end), log.line(end)),
            (None, Some(5), None)
        );
    }
}
