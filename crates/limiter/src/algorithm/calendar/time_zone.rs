//! The calendar of a time zone of the IANA database: the system's, or else the one built in.
//!
//! Guarantees windows without gap or overlap across changes of the clock: a day that changes to or
//! from summer time is an hour shorter or longer, and an hour is cut short by a change in its
//! middle.

mod last_windows;

use std::hash::{Hash, Hasher};

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned, civil};
use parking_lot::Mutex;

use last_windows::LastWindows;

use super::unit::{CalendarError, CalendarUnit, WindowBounds};

/// The windows of one time zone. There is one of each: see [`Calendar::find`].
#[derive(Debug)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: TimeZone,
    name: Box<str>,
    last: LastWindows,
}

/// Every calendar that was ever named: as many as there are time zones and units in the files that
/// were read.
static CALENDARS: Mutex<Vec<&'static Calendar>> = Mutex::new(Vec::new());

impl Calendar {
    /// The calendar of the time zone called `zone`.
    pub fn find(unit: CalendarUnit, zone: &str) -> Result<&'static Self, CalendarError> {
        let mut known = CALENDARS.lock();
        if let Some(calendar) = known
            .iter()
            .find(|calendar| calendar.unit == unit && *calendar.name == *zone)
        {
            return Ok(calendar);
        }
        let zone_info = match zone {
            "UTC" => TimeZone::UTC,
            _ => TimeZone::get(zone).map_err(|_| CalendarError::UnknownZone)?,
        };
        let calendar = Self {
            unit,
            zone: zone_info,
            name: zone.into(),
            last: LastWindows::default(),
        };
        let calendar: &'static Self = Box::leak(Box::new(calendar));
        known.push(calendar);
        Ok(calendar)
    }

    pub fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// The window of `unix_us`, in microseconds since 1970-01-01T00:00Z.
    pub fn window_at(&self, unix_us: u64) -> WindowBounds {
        if let Some(known) = self.last.find(unix_us) {
            return known;
        }
        let this = self.known_or_last(unix_us);
        let next = self.known_or_last(this.end_us);
        self.last.remember(
            this,
            if next.start_us == this.end_us {
                next.end_us
            } else {
                this.end_us
            },
        );
        this
    }

    /// Beyond the calendar, which ends in the year 9999, all time is one window.
    fn known_or_last(&self, unix_us: u64) -> WindowBounds {
        self.bounds_at(unix_us).unwrap_or(WindowBounds {
            start_us: unix_us,
            end_us: u64::MAX,
        })
    }

    fn bounds_at(&self, unix_us: u64) -> Option<WindowBounds> {
        let now = Timestamp::from_microsecond(i64::try_from(unix_us).ok()?)
            .ok()?
            .to_zoned(self.zone.clone());
        let (start, end) = match self.unit {
            CalendarUnit::Minute => self.clock_hands(&now, 60)?,
            CalendarUnit::Hour => self.clock_hands(&now, 3_600)?,
            CalendarUnit::Day => (
                self.midnight(now.date())?,
                self.midnight(now.date().tomorrow().ok()?)?,
            ),
            CalendarUnit::Month => {
                let first = now.date().first_of_month();
                (
                    self.midnight(first)?,
                    self.midnight(first.checked_add(1.month()).ok()?)?,
                )
            }
        };
        // Where midnight comes twice, the time between belongs to the day before.
        let end_us = if end > now.timestamp() {
            end
        } else {
            now.timestamp().checked_add(1.hour()).ok()?
        };
        // East of Greenwich, the first windows began before 1970.
        Some(WindowBounds {
            start_us: unix_micros(start).unwrap_or(0).min(unix_us),
            end_us: unix_micros(end_us)?,
        })
    }

    /// The first moment of a day.
    fn midnight(&self, date: civil::Date) -> Option<Timestamp> {
        Some(
            date.to_zoned(self.zone.clone())
                .ok()?
                .start_of_day()
                .ok()?
                .timestamp(),
        )
    }

    /// Between two positions of the clock's hands, or a change of the clock before.
    fn clock_hands(&self, now: &Zoned, seconds: i64) -> Option<(Timestamp, Timestamp)> {
        let local = now.timestamp().as_second() + i64::from(now.offset().seconds());
        let floor =
            Timestamp::from_second(now.timestamp().as_second() - local.rem_euclid(seconds)).ok()?;
        let end = Timestamp::from_second(floor.as_second() + seconds).ok()?;
        let before = self
            .zone
            .preceding(now.timestamp())
            .next()
            .map(|change| change.timestamp());
        let after = self
            .zone
            .following(now.timestamp())
            .next()
            .map(|change| change.timestamp());
        Some((
            before.map_or(floor, |change| change.max(floor)),
            after.map_or(end, |change| change.min(end)),
        ))
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        self.unit == other.unit && self.name == other.name
    }
}

impl Eq for Calendar {}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.unit.hash(state);
        self.name.hash(state);
    }
}

/// Microseconds since 1970. `None`: a time before.
fn unix_micros(time: Timestamp) -> Option<u64> {
    u64::try_from(time.as_microsecond()).ok()
}

#[cfg(test)]
mod tests;
