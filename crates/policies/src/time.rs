//! Points in time, as the database tells them.

use std::fmt::{self, Display};
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

const MILLIS_OF_DAY: i64 = 86_400_000;

/// Milliseconds since 1970-01-01T00:00Z, by the clock of the database: all nodes see one clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixTime(i64);

impl UnixTime {
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Later by this much; at the end of time, that.
    pub fn after(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)),
        )
    }
}

impl Display for UnixTime {
    /// `2026-11-22T16:27:14.123Z` (RFC 3339), by the proleptic Gregorian calendar.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.0.div_euclid(MILLIS_OF_DAY));
        let of_day = self.0.rem_euclid(MILLIS_OF_DAY);
        let millis = of_day % 1000;
        let second = of_day / 1000 % 60;
        let minute = of_day / 60_000 % 60;
        let hour = of_day / 3_600_000;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"
        )
    }
}

impl fmt::Debug for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl Serialize for UnixTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UnixTime {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        read(&text).ok_or_else(|| {
            serde::de::Error::custom(format!("{text:?} is no time: 2026-11-22T16:27:14.123Z"))
        })
    }
}

/// Reads what [`Display`] writes, and nothing else.
fn read(text: &str) -> Option<UnixTime> {
    let days = days_of(
        number(text, 0..4)?,
        number(text, 5..7)?,
        number(text, 8..10)?,
    );
    let minutes = number(text, 11..13)? * 60 + number(text, 14..16)?;
    let seconds = minutes * 60 + number(text, 17..19)?;
    let time = UnixTime(days * MILLIS_OF_DAY + seconds * 1000 + number(text, 20..23)?);
    if time.to_string() == text {
        Some(time)
    } else {
        None
    }
}

/// The number that the digits in a part of `text` are.
fn number(text: &str, part: Range<usize>) -> Option<i64> {
    let digits = text.get(part)?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        digits.parse().ok()
    } else {
        None
    }
}

/// Days since 1970 as year, month and day; the year begins in March, so that its leap day is its
/// last (<https://howardhinnant.github.io/date_algorithms.html>).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day = shifted.rem_euclid(146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (
        era * 400 + year + i64::from(month <= 2),
        month,
        day_of_year - (153 * from_march + 2) / 5 + 1,
    )
}

fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let from_march = (month + 9) % 12;
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_people_read_them_and_read_again() {
        let known = [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_763_829_000_123, "2025-11-22T16:30:00.123Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (millis, text) in known {
            assert_eq!(UnixTime(millis).to_string(), text);
            assert_eq!(read(text), Some(UnixTime(millis)));
        }
        for day in (-200_000..400_000).step_by(7) {
            let time = UnixTime(day * MILLIS_OF_DAY + 1);
            assert_eq!(read(&time.to_string()), Some(time));
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2026-02-30T00:00:00.000Z",
            "2026-11-22 16:27:14.123Z",
            "2026-11-22T16:27:14Z",
            "+026-11-22T1",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
