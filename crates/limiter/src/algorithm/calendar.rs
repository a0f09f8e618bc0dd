//! When fixed windows begin and end: after a number of microseconds since 1970-01-01T00:00Z, or by
//! the calendar of a time zone.
//!
//! Guarantees windows that follow each other without gap or overlap. Calendars need the feature
//! `calendar`; without it, asking for one is an error and all else works.

#[cfg(feature = "calendar")]
mod time_zone;
#[cfg(not(feature = "calendar"))]
#[path = "calendar/no_time_zone.rs"]
mod time_zone;

mod unit;

pub use unit::{CalendarError, CalendarUnit, WindowBounds};

use time_zone::Calendar;

/// The length of a window, and where it begins. Small, since it goes with each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Period(PeriodKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PeriodKind {
    Every(u64),
    Calendar(&'static Calendar),
}

impl Period {
    /// Every `width_us` microseconds, at least one.
    pub fn every(width_us: u64) -> Self {
        Self(PeriodKind::Every(width_us.max(1)))
    }

    /// By the calendar of the IANA time zone called `zone`.
    ///
    /// # Errors
    /// When there is no such zone, or the crate was built without the feature `calendar`.
    pub fn calendar(unit: CalendarUnit, zone: &str) -> Result<Self, CalendarError> {
        Calendar::find(unit, zone).map(|calendar| Self(PeriodKind::Calendar(calendar)))
    }

    /// Microseconds of the longest window.
    #[inline]
    pub fn longest_us(self) -> u64 {
        match self.0 {
            PeriodKind::Every(width_us) => width_us,
            PeriodKind::Calendar(calendar) => calendar.unit().longest_us(),
        }
    }

    /// Whether windows go by a calendar, and so differ in length.
    #[inline]
    pub fn is_calendar(self) -> bool {
        matches!(self.0, PeriodKind::Calendar(_))
    }

    /// The window of `unix_us`, in microseconds since 1970-01-01T00:00Z.
    #[inline]
    pub fn window_at(self, unix_us: u64) -> WindowBounds {
        match self.0 {
            PeriodKind::Every(width_us) => {
                let start_us = unix_us - unix_us % width_us;
                WindowBounds {
                    start_us,
                    end_us: start_us.saturating_add(width_us),
                }
            }
            PeriodKind::Calendar(calendar) => calendar.window_at(unix_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_windows_are_counted_from_1970() {
        let bounds = Period::every(90_000_000).window_at(100_000_000);
        assert_eq!(
            bounds,
            WindowBounds {
                start_us: 90_000_000,
                end_us: 180_000_000
            }
        );
    }
}
