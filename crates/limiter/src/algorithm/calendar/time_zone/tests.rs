use proptest::prelude::*;

use super::*;
use crate::algorithm::calendar::Period;

fn micros(text: &str) -> u64 {
    u64::try_from(text.parse::<Timestamp>().unwrap().as_microsecond()).unwrap()
}

fn window(unit: CalendarUnit, zone: &str, at: &str) -> [String; 2] {
    let WindowBounds { start_us, end_us } =
        Period::calendar(unit, zone).unwrap().window_at(micros(at));
    [start_us, end_us].map(|us| {
        Timestamp::from_microsecond(i64::try_from(us).unwrap())
            .unwrap()
            .to_string()
    })
}

#[test]
fn days_and_months_are_those_of_the_time_zone() {
    assert_eq!(
        window(CalendarUnit::Day, "Europe/Berlin", "2026-07-14T22:30:00Z"),
        ["2026-07-14T22:00:00Z", "2026-07-15T22:00:00Z"]
    );
    assert_eq!(
        window(
            CalendarUnit::Month,
            "America/New_York",
            "2028-02-15T00:00:00Z"
        ),
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
fn hours_are_whole_where_the_zone_is_part_of_an_hour_off() {
    assert_eq!(
        window(CalendarUnit::Hour, "Asia/Kolkata", "2026-01-01T10:10:00Z"),
        ["2026-01-01T09:30:00Z", "2026-01-01T10:30:00Z"]
    );
    assert_eq!(
        window(CalendarUnit::Hour, "Asia/Kathmandu", "2026-01-01T10:10:00Z"),
        ["2026-01-01T09:15:00Z", "2026-01-01T10:15:00Z"]
    );
}

#[test]
fn an_unknown_zone_is_an_error_and_a_known_one_is_found_twice() {
    assert_eq!(
        Period::calendar(CalendarUnit::Day, "Europe/Atlantis"),
        Err(CalendarError::UnknownZone)
    );
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
fn time_beyond_the_calendar_is_a_window_too() {
    let late = micros("9999-12-29T00:00:00Z") + 10 * 86_400 * 1_000_000;
    let bounds = Period::calendar(CalendarUnit::Month, "UTC")
        .unwrap()
        .window_at(late);
    assert!(
        bounds.start_us <= late && late < bounds.end_us,
        "{bounds:?}"
    );
}

#[test]
fn a_window_that_began_before_1970_ends_like_any_other() {
    for unit in [CalendarUnit::Day, CalendarUnit::Month] {
        let bounds = Period::calendar(unit, "Asia/Tokyo").unwrap().window_at(1);
        let end = if unit == CalendarUnit::Day {
            "1970-01-01T15:00:00Z"
        } else {
            "1970-01-31T15:00:00Z"
        };
        assert_eq!(
            bounds,
            WindowBounds {
                start_us: 0,
                end_us: micros(end)
            }
        );
    }
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
