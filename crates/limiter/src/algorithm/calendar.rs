//! When fixed windows begin and end: every so many microseconds since 1970-01-01T00:00Z, or by the calendar of a place.
//!
//! Guarantees windows that follow each other without gap or overlap. A day that changes to or from summer time is an hour
//! shorter or longer, and an hour is cut short by a change in its middle. Time zones are those of the IANA database: the
//! system's, or else the one built in. Refuses to know what time it is.

use std::hash::{Hash, Hasher};

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned, civil};
use parking_lot::Mutex;

/// How long a window is, and where it begins. Small, as it goes with each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Period(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Every(u64),
    Calendar(&'static Calendar),
}

/// A unit of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    Minute,
    Hour,
    Day,
    Month,
}

/// The windows of one place. There is one of each: see [`Period::calendar`].
#[derive(Debug)]
struct Calendar {
    unit: CalendarUnit,
    zone: TimeZone,
    name: Box<str>,
    /// The window that was last asked for, since the next to ask mostly means the same.
    last: Mutex<WindowBounds>,
}

/// A window, in microseconds since 1970-01-01T00:00Z. It ends where the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WindowBounds {
    pub start_us: u64,
    pub end_us: u64,
}

/// Every calendar that was ever named: as many as there are places and units in the files that were read.
static CALENDARS: Mutex<Vec<&'static Calendar>> = Mutex::new(Vec::new());

const HOUR_US: u64 = 3_600_000_000;

impl CalendarUnit {
    pub fn name(self) -> &'static str {
        match self {
            Self::Minute => "m",
            Self::Hour => "h",
            Self::Day => "d",
            Self::Month => "month",
        }
    }

    /// Of the longest one, summer time left aside.
    pub fn longest_us(self) -> u64 {
        match self {
            Self::Minute => HOUR_US / 60,
            Self::Hour => HOUR_US,
            Self::Day => 24 * HOUR_US,
            Self::Month => 31 * 24 * HOUR_US,
        }
    }
}

impl Period {
    /// Every `width_us` microseconds, at least one.
    pub fn every(width_us: u64) -> Self {
        Self(Kind::Every(width_us.max(1)))
    }

    /// By the calendar of the time zone called `zone`. `None`: there is no such zone.
    pub fn calendar(unit: CalendarUnit, zone: &str) -> Option<Self> {
        let mut known = CALENDARS.lock();
        let same = |calendar: &&&Calendar| calendar.unit == unit && *calendar.name == *zone;
        if let Some(calendar) = known.iter().find(same) {
            return Some(Self(Kind::Calendar(calendar)));
        }
        let zone_info = if zone == "UTC" { TimeZone::UTC } else { TimeZone::get(zone).ok()? };
        let calendar = Calendar { unit, zone: zone_info, name: zone.into(), last: Mutex::default() };
        let calendar: &'static Calendar = Box::leak(Box::new(calendar));
        known.push(calendar);
        Some(Self(Kind::Calendar(calendar)))
    }

    /// Microseconds of the longest one.
    pub fn longest_us(self) -> u64 {
        match self.0 {
            Kind::Every(width_us) => width_us,
            Kind::Calendar(calendar) => calendar.unit.longest_us(),
        }
    }

    /// The unit and the name of the place, of those that have one.
    pub fn place(self) -> Option<(CalendarUnit, &'static str)> {
        match self.0 {
            Kind::Every(_) => None,
            Kind::Calendar(calendar) => Some((calendar.unit, &calendar.name)),
        }
    }

    /// The window of `unix_us`, in microseconds since 1970-01-01T00:00Z.
    pub fn window_at(self, unix_us: u64) -> WindowBounds {
        match self.0 {
            Kind::Every(width_us) => {
                let start_us = unix_us - unix_us % width_us;
                WindowBounds { start_us, end_us: start_us.saturating_add(width_us) }
            }
            Kind::Calendar(calendar) => calendar.window_at(unix_us),
        }
    }
}

impl Calendar {
    fn window_at(&self, unix_us: u64) -> WindowBounds {
        let mut last = self.last.lock();
        if !(last.start_us..last.end_us).contains(&unix_us) {
            // Beyond the calendar, which ends in the year 9999, all time is one window.
            *last = self.find(unix_us).unwrap_or(WindowBounds { start_us: unix_us, end_us: u64::MAX >> 11 });
        }
        *last
    }

    fn find(&self, unix_us: u64) -> Option<WindowBounds> {
        let now = Timestamp::from_microsecond(i64::try_from(unix_us).ok()?).ok()?.to_zoned(self.zone.clone());
        let (start, end) = match self.unit {
            CalendarUnit::Minute => self.clock_hands(&now, 60)?,
            CalendarUnit::Hour => self.clock_hands(&now, 3_600)?,
            CalendarUnit::Day => (self.midnight(now.date())?, self.midnight(now.date().tomorrow().ok()?)?),
            CalendarUnit::Month => {
                let first = now.date().first_of_month();
                (self.midnight(first)?, self.midnight(first.checked_add(1.month()).ok()?)?)
            }
        };
        // Where midnight comes twice, what lies between belongs to the day before.
        let end_us = if end > now.timestamp() { end } else { now.timestamp().checked_add(1.hour()).ok()? };
        let micros = |time: Timestamp| u64::try_from(time.as_microsecond()).ok();
        Some(WindowBounds { start_us: micros(start)?.min(unix_us), end_us: micros(end_us)? })
    }

    /// The first moment of a day.
    fn midnight(&self, date: civil::Date) -> Option<Timestamp> {
        Some(date.to_zoned(self.zone.clone()).ok()?.start_of_day().ok()?.timestamp())
    }

    /// Between two positions of the clock's hands, or a change of the clock before.
    fn clock_hands(&self, now: &Zoned, seconds: i64) -> Option<(Timestamp, Timestamp)> {
        let local = now.timestamp().as_second() + i64::from(now.offset().seconds());
        let floor = Timestamp::from_second(now.timestamp().as_second() - local.rem_euclid(seconds)).ok()?;
        let end = Timestamp::from_second(floor.as_second() + seconds).ok()?;
        let before = self.zone.preceding(now.timestamp()).next().map(|change| change.timestamp());
        let after = self.zone.following(now.timestamp()).next().map(|change| change.timestamp());
        Some((before.map_or(floor, |change| change.max(floor)), after.map_or(end, |change| change.min(end))))
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn micros(text: &str) -> u64 {
        u64::try_from(text.parse::<Timestamp>().unwrap().as_microsecond()).unwrap()
    }

    fn window(unit: CalendarUnit, zone: &str, at: &str) -> [String; 2] {
        let WindowBounds { start_us, end_us } = Period::calendar(unit, zone).unwrap().window_at(micros(at));
        [start_us, end_us].map(|us| Timestamp::from_microsecond(i64::try_from(us).unwrap()).unwrap().to_string())
    }

    #[test]
    fn days_and_months_are_those_of_the_place() {
        assert_eq!(
            window(CalendarUnit::Day, "Europe/Berlin", "2026-07-14T22:30:00Z"),
            ["2026-07-14T22:00:00Z", "2026-07-15T22:00:00Z"]
        );
        assert_eq!(
            window(CalendarUnit::Month, "America/New_York", "2028-02-15T00:00:00Z"),
            ["2028-02-01T05:00:00Z", "2028-03-01T05:00:00Z"]
        );
    }

    #[test]
    fn a_day_of_a_clock_change_is_an_hour_longer_or_shorter() {
        assert_eq!(
            window(CalendarUnit::Day, "Europe/Berlin", "2026-03-29T12:00:00Z"),
            ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"]
        );
        assert_eq!(
            window(CalendarUnit::Day, "Europe/Berlin", "2026-10-25T12:00:00Z"),
            ["2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"]
        );
    }

    #[test]
    fn hours_are_full_ones_where_the_place_is_half_an_hour_off() {
        assert_eq!(
            window(CalendarUnit::Hour, "Asia/Kolkata", "2026-01-01T10:10:00Z"),
            ["2026-01-01T09:30:00Z", "2026-01-01T10:30:00Z"]
        );
    }

    #[test]
    fn an_unknown_place_is_none_and_a_known_one_is_the_same_twice() {
        assert_eq!(Period::calendar(CalendarUnit::Day, "Europe/Atlantis"), None);
        assert_eq!(
            Period::calendar(CalendarUnit::Day, "Asia/Tokyo"),
            Period::calendar(CalendarUnit::Day, "Asia/Tokyo")
        );
        assert_ne!(
            Period::calendar(CalendarUnit::Day, "Asia/Tokyo"),
            Period::calendar(CalendarUnit::Hour, "Asia/Tokyo")
        );
    }

    #[test]
    fn even_windows_are_counted_from_1970() {
        let bounds = Period::every(90_000_000).window_at(100_000_000);
        assert_eq!(bounds, WindowBounds { start_us: 90_000_000, end_us: 180_000_000 });
    }

    #[test]
    fn time_beyond_the_calendar_is_a_window_too() {
        let bounds = Period::calendar(CalendarUnit::Month, "UTC").unwrap().window_at(1 << 52);
        assert!(bounds.start_us <= 1 << 52 && bounds.end_us > 1 << 52, "{bounds:?}");
        Period::calendar(CalendarUnit::Month, "UTC").unwrap().window_at((1 << 53) - 1);
    }

    proptest! {
        #[test]
        fn windows_follow_each_other_without_gap_or_overlap(
            seconds in 0_u64..4_000_000_000,
            unit in prop::sample::select(vec![CalendarUnit::Minute, CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Month]),
            zone in prop::sample::select(vec![
                "UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Cairo",
                "America/Sao_Paulo", "Pacific/Apia", "Asia/Gaza",
            ]),
        ) {
            let period = Period::calendar(unit, zone).unwrap();
            let now = seconds * 1_000_000;
            let this = period.window_at(now);
            prop_assert!(this.start_us <= now && now < this.end_us, "{:?} at {}", this, now);
            let next = period.window_at(this.end_us);
            prop_assert_eq!(next.start_us, this.end_us);
            prop_assert_eq!(period.window_at(this.end_us - 1), this);
        }
    }
}
