//! Stands for `time_zone.rs` where the crate is built without the feature `calendar`: there is no
//! calendar.

pub use self::NoCalendar as Calendar;

use super::unit::{CalendarError, CalendarUnit, WindowBounds};

/// None exists.
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum NoCalendar {}

impl NoCalendar {
    /// Always an error.
    pub fn find(_: CalendarUnit, _: &str) -> Result<&'static Self, CalendarError> {
        Err(CalendarError::Unavailable)
    }

    pub fn unit(&self) -> CalendarUnit {
        match *self {}
    }

    pub fn window_at(&self, _: u64) -> WindowBounds {
        match *self {}
    }
}
