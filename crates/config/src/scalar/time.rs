//! A point in time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use crate::report::{ValueProblem, quote};
use crate::yaml::decode::Scalar;
use crate::yaml::schema::or_variable;

/// A point in time, to the second, from 1970 to 9999.
#[derive(Clone, Copy)]
pub struct PointInTime(pub SystemTime);

const DAY_SECS: i64 = 86_400;

impl Scalar for PointInTime {
    const WHAT: &'static str = "a point in time";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let seconds = unix_seconds(text.as_bytes()).and_then(|seconds| u64::try_from(seconds).ok());
        seconds.map(|seconds| Self(UNIX_EPOCH + Duration::from_secs(seconds))).ok_or_else(|| {
            ValueProblem::new(format!("{} is not a point in time", quote(text)))
                .hint("write 2026-11-23T04:00:00Z, or with the distance from UTC: 2026-11-23T05:00:00+01:00")
        })
    }

    fn schema() -> Json {
        let pattern =
            "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})";
        json!({ "type": "string", "pattern": or_variable(pattern) })
    }
}

/// Seconds since 1970 of a date and time (RFC 3339 §5.6, without fractions and leap seconds).
fn unix_seconds(text: &[u8]) -> Option<i64> {
    let (date_time, zone) = text.split_at_checked(19)?;
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators.iter().any(|(at, byte)| date_time[*at] != *byte) {
        return None;
    }
    let year = number(&date_time[..4])?;
    let month = number(&date_time[5..7])?;
    let day = number(&date_time[8..10])?;
    let hour = number(&date_time[11..13])?;
    let minute = number(&date_time[14..16])?;
    let second = number(&date_time[17..19])?;
    let is_real = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    if !is_real || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days_before(year, month, day) * DAY_SECS + hour * 3_600 + minute * 60 + second;
    match zone {
        b"Z" => Some(seconds),
        [sign @ (b'+' | b'-'), hours @ .., b':', _, _] if hours.len() == 2 => {
            let hours = number(hours)?;
            let minutes = number(&zone[4..])?;
            if hours >= 24 || minutes >= 60 {
                return None;
            }
            let distance = hours * 3_600 + minutes * 60;
            if *sign == b'+' {
                Some(seconds - distance)
            } else {
                Some(seconds + distance)
            }
        }
        _ => None,
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    let mut number = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i64::from(digit - b'0');
    }
    Some(number)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The 29ths of February from the year 1 to the end of the year before.
fn leap_days_before(year: i64) -> i64 {
    let last = year - 1;
    last / 4 - last / 100 + last / 400
}

/// Days from 1970-01-01 to a date.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let in_years = 365 * (year - 1_970) + leap_days_before(year) - leap_days_before(1_970);
    in_years + (1..month).map(|month| days_of(year, month)).sum::<i64>() + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_time_are_those_of_the_calendar() {
        // By `date -u -d … +%s`.
        let known = [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-03-01T00:00:00Z", 5_097_600),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2026-11-23T04:00:00Z", 1_795_406_400),
            ("2026-11-23T05:30:00+01:30", 1_795_406_400),
            ("2026-11-22T20:00:00-08:00", 1_795_406_400),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
        ];
        for (text, seconds) in known {
            assert_eq!(unix_seconds(text.as_bytes()), Some(seconds), "{text}");
        }
    }

    #[test]
    fn other_texts_are_none() {
        let bad = [
            "",
            "2026-11-23",
            "2026-11-23T04:00:00",
            "2026-11-23 04:00:00Z",
            "2026-11-23T04:00Z",
            "2026-02-29T04:00:00Z",
            "2026-13-01T04:00:00Z",
            "2026-00-01T04:00:00Z",
            "2026-01-00T04:00:00Z",
            "2026-11-23T24:00:00Z",
            "2026-11-23T04:60:00Z",
            "2026-11-23T04:00:60Z",
            "2026-11-23T04:00:00+1:00",
            "2026-11-23T04:00:00+24:00",
            "2026-11-23T04:00:00+01:60",
            "2026-11-23T04:00:00Zulu",
            "2026-11-2\u{663}T04:00:00Z",
            "+026-11-23T04:00:00Z",
            "1969-12-31T23:59:59Z",
        ];
        for text in bad {
            assert!(PointInTime::read(text).is_err(), "{text}");
        }
    }
}
