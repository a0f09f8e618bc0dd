//! The last values of something, in bounded room.

use std::collections::VecDeque;
use std::time::Duration;

/// How often a value is added.
pub const STEP: Duration = Duration::from_secs(2);

/// Values that are kept: those of ten minutes.
pub const LENGTH: usize = 300;

/// Values that what is shown as of now is the mean of: those of ten seconds. A single one jumps
/// about.
pub const NOW: usize = 5;

/// The last values, the oldest first. It takes no room until there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History<T>(VecDeque<T>);

impl<T> Default for History<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Copy> History<T> {
    /// Adds a value, in place of the oldest if there are as many as are kept.
    pub fn push(&mut self, value: T) {
        if self.0.is_empty() {
            self.0.reserve_exact(LENGTH);
        }
        if self.0.len() == LENGTH {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn last(&self) -> Option<T> {
        self.0.back().copied()
    }

    /// The oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = T> + ExactSizeIterator {
        self.0.iter().copied()
    }

    /// The last `count` values, the oldest first.
    pub fn latest(&self, count: usize) -> impl Iterator<Item = T> {
        self.iter().skip(self.len().saturating_sub(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_value_makes_room_and_the_room_stays_what_it_was() {
        let mut history = History::default();
        assert_eq!(history.0.capacity(), 0);
        (0..LENGTH as u32 + 10).for_each(|value| history.push(value));
        assert_eq!(
            (history.len(), history.iter().next(), history.last()),
            (LENGTH, Some(10), Some(309))
        );
        assert_eq!(history.latest(2).collect::<Vec<_>>(), [308, 309]);
        assert_eq!(history.0.capacity(), LENGTH);
    }
}
