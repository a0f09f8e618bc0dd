//! The units of a calendar, and the bounds of a window.

/// A unit of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    Minute,
    Hour,
    Day,
    Month,
}

/// A window, in microseconds since 1970-01-01T00:00Z. It ends where the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WindowBounds {
    pub start_us: u64,
    pub end_us: u64,
}

/// Why there are no windows by a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalendarError {
    /// The time zone is not in the database.
    UnknownZone,
    /// The crate was built without the feature `calendar`.
    Unavailable,
}

const HOUR_US: u64 = 3_600_000_000;

impl CalendarUnit {
    /// Microseconds of the longest one, summer time left aside.
    pub fn longest_us(self) -> u64 {
        match self {
            Self::Minute => HOUR_US / 60,
            Self::Hour => HOUR_US,
            Self::Day => 24 * HOUR_US,
            Self::Month => 31 * 24 * HOUR_US,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_as_long_as_its_longest_window() {
        let units = [
            CalendarUnit::Minute,
            CalendarUnit::Hour,
            CalendarUnit::Day,
            CalendarUnit::Month,
        ];
        assert_eq!(
            units.map(|unit| unit.longest_us() / 1_000_000),
            [60, 3_600, 86_400, 2_678_400]
        );
    }
}
