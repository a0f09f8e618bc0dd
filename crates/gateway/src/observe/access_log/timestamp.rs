//! The time of a line, in the forms that logs have, always in UTC; and durations.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A moment by the calendar, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarTime {
    year: u64,
    /// The month, from 0 on.
    month: usize,
    day: u64,
    second_of_day: u64,
    microsecond: u32,
}

impl CalendarTime {
    /// The moment of `time`. The first moment of 1970 for earlier times.
    pub fn new(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let days = since.as_secs() / 86_400;
        let second_of_day = since.as_secs() % 86_400;
        // Years that begin in March end with the leap day (Howard Hinnant, "chrono-compatible
        // low-level date algorithms").
        let shifted = days + 719_468;
        let era = shifted / 146_097;
        let day_of_era = shifted % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = usize::try_from((from_march + 2) % 12).unwrap_or(0);
        Self {
            year: era * 400 + year_of_era + u64::from(month < 2),
            month,
            day: day_of_year - (153 * from_march + 2) / 5 + 1,
            second_of_day,
            microsecond: since.subsec_micros(),
        }
    }

    /// Writes `2026-11-22T16:27:14.123456Z` (ISO 8601, RFC 3339).
    pub fn write_iso(self, text: &mut Vec<u8>) {
        let mut iso = *b"YYYY-MM-DDThh:mm:ss.uuuuuuZ";
        iso[..4].copy_from_slice(&digits::<4>(self.year));
        iso[5..7].copy_from_slice(&digits::<2>(self.month as u64 + 1));
        iso[8..10].copy_from_slice(&digits::<2>(self.day));
        iso[11..19].copy_from_slice(&self.time_of_day());
        iso[20..26].copy_from_slice(&digits::<6>(self.microsecond.into()));
        text.extend_from_slice(&iso);
    }

    /// Writes `22/Nov/2026:16:27:14 +0000`, as in Apache's logs.
    pub fn write_apache(self, text: &mut Vec<u8>) {
        text.extend_from_slice(&digits::<2>(self.day));
        text.push(b'/');
        text.extend_from_slice(self.month_name());
        text.push(b'/');
        text.extend_from_slice(&digits::<4>(self.year));
        text.push(b':');
        text.extend_from_slice(&self.time_of_day());
        text.extend_from_slice(b" +0000");
    }

    /// Writes `Nov 22 16:27:14`, as syslog(3) does: a day of one digit has a space before it.
    pub fn write_syslog(self, text: &mut Vec<u8>) {
        text.extend_from_slice(self.month_name());
        text.push(b' ');
        match digits(self.day) {
            [b'0', day] => text.extend_from_slice(&[b' ', day]),
            day => text.extend_from_slice(&day),
        }
        text.push(b' ');
        text.extend_from_slice(&self.time_of_day());
    }

    fn month_name(self) -> &'static [u8] {
        MONTHS
            .get(self.month)
            .copied()
            .unwrap_or_default()
            .as_bytes()
    }

    /// `16:27:14`.
    fn time_of_day(self) -> [u8; 8] {
        let mut time = *b"hh:mm:ss";
        time[..2].copy_from_slice(&digits::<2>(self.second_of_day / 3600));
        time[3..5].copy_from_slice(&digits::<2>(self.second_of_day / 60 % 60));
        time[6..].copy_from_slice(&digits::<2>(self.second_of_day % 60));
        time
    }
}

/// Writes milliseconds, to the microsecond.
pub fn push_milliseconds(text: &mut Vec<u8>, value: Duration) {
    let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
    let mut buffer = itoa::Buffer::new();
    text.extend_from_slice(buffer.format(micros / 1000).as_bytes());
    let [tenths, hundredths, thousandths] = digits(micros % 1000);
    text.extend_from_slice(&[b'.', tenths, hundredths, thousandths]);
}

/// The last decimal digits of `value`.
fn digits<const COUNT: usize>(mut value: u64) -> [u8; COUNT] {
    let mut digits = [b'0'; COUNT];
    for digit in digits.iter_mut().rev() {
        *digit += (value % 10) as u8;
        value /= 10;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms(micros: u64) -> [String; 3] {
        let time = CalendarTime::new(UNIX_EPOCH + Duration::from_micros(micros));
        [
            CalendarTime::write_iso,
            CalendarTime::write_apache,
            CalendarTime::write_syslog,
        ]
        .map(|write| {
            let mut text = Vec::new();
            write(time, &mut text);
            String::from_utf8(text).unwrap()
        })
    }

    #[test]
    fn a_moment_has_the_date_of_the_calendar() {
        for (micros, iso, apache, syslog) in [
            (
                0,
                "1970-01-01T00:00:00.000000Z",
                "01/Jan/1970:00:00:00 +0000",
                "Jan  1 00:00:00",
            ),
            (
                951_782_399_999_999,
                "2000-02-28T23:59:59.999999Z",
                "28/Feb/2000:23:59:59 +0000",
                "Feb 28 23:59:59",
            ),
            (
                951_782_400_000_000,
                "2000-02-29T00:00:00.000000Z",
                "29/Feb/2000:00:00:00 +0000",
                "Feb 29 00:00:00",
            ),
            (
                1_709_251_199_042_007,
                "2024-02-29T23:59:59.042007Z",
                "29/Feb/2024:23:59:59 +0000",
                "Feb 29 23:59:59",
            ),
            (
                1_709_251_200_000_000,
                "2024-03-01T00:00:00.000000Z",
                "01/Mar/2024:00:00:00 +0000",
                "Mar  1 00:00:00",
            ),
            (
                1_735_689_599_000_000,
                "2024-12-31T23:59:59.000000Z",
                "31/Dec/2024:23:59:59 +0000",
                "Dec 31 23:59:59",
            ),
            (
                4_107_542_400_000_000,
                "2100-03-01T00:00:00.000000Z",
                "01/Mar/2100:00:00:00 +0000",
                "Mar  1 00:00:00",
            ),
        ] {
            assert_eq!(forms(micros), [iso, apache, syslog]);
        }
    }

    #[test]
    fn durations_have_milliseconds_and_three_digits_more() {
        for (micros, written) in [
            (0, "0.000"),
            (7, "0.007"),
            (1_050, "1.050"),
            (86_400_000_123, "86400000.123"),
        ] {
            let mut text = Vec::new();
            push_milliseconds(&mut text, Duration::from_micros(micros));
            assert_eq!(String::from_utf8(text).unwrap(), written);
        }
    }

    #[test]
    fn every_day_of_a_century_is_that_of_the_http_date() {
        for day in 0..36_525 {
            let time = UNIX_EPOCH + Duration::from_secs(day * 86_400);
            let mut text = Vec::new();
            CalendarTime::new(time).write_apache(&mut text);
            let http = httpdate::fmt_http_date(time);
            assert_eq!(
                String::from_utf8(text).unwrap()[..11].replace('/', " "),
                http[5..16],
                "{http}"
            );
        }
    }
}
