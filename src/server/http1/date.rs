//! The `Date` of answers that have none (RFC 9110 §6.6.1): formatted once per second, by each thread for itself.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use crate::clock::{self, Instant};

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
pub type Text = [u8; 29];

thread_local! {
    static LATEST: Cell<Option<(Text, Instant)>> = const { Cell::new(None) };
}

/// The date at `now`, which is the present.
pub fn at(now: Instant) -> Text {
    if let Some((text, until)) = LATEST.get()
        && now < until
    {
        return text;
    }
    let since = clock::wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let text = format(since.as_secs());
    let rest = Duration::from_secs(1) - Duration::from_nanos(since.subsec_nanos().into());
    LATEST.set(Some((text, now + rest)));
    text
}

/// `seconds` since 1970-01-01T00:00Z, of years with four digits.
fn format(seconds: u64) -> Text {
    const WEEKDAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
    const MONTHS: [&[u8; 3]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    text[..3].copy_from_slice(WEEKDAYS[(days % 7) as usize]);
    text[5..7].copy_from_slice(&two_digits(day));
    text[8..11].copy_from_slice(MONTHS[(month - 1) as usize % 12]);
    text[12..14].copy_from_slice(&two_digits(year / 100));
    text[14..16].copy_from_slice(&two_digits(year));
    text[17..19].copy_from_slice(&two_digits(second / 3600));
    text[20..22].copy_from_slice(&two_digits(second / 60 % 60));
    text[23..25].copy_from_slice(&two_digits(second % 60));
    text
}

fn two_digits(number: u64) -> [u8; 2] {
    [b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8]
}

/// Year, month and day of the Gregorian calendar, so many days after 1970-01-01. Counted from 0000-03-01, so that a leap
/// day is the last of its year, in eras of 400 years.
fn civil(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    let days = days + 719_468;
    let day_of_era = days % ERA;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / (ERA - 1)) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = days / ERA * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day_of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seconds: u64) -> String {
        String::from_utf8(format(seconds).to_vec()).unwrap()
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(text(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(text(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(text(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(text(1_709_251_199), "Thu, 29 Feb 2024 23:59:59 GMT");
        assert_eq!(text(4_107_542_400), "Mon, 01 Mar 2100 00:00:00 GMT");
        assert_eq!(text(253_402_300_799), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    /// `jiff` knows the calendar, too.
    #[test]
    fn every_day_of_400_years_is_the_one_that_others_make_of_it() {
        let mut day = jiff::civil::date(1970, 1, 1);
        for days in 0..146_097 {
            assert_eq!(text(days * 86_400 + 1), day.strftime("%a, %d %b %Y 00:00:01 GMT").to_string());
            day = day.tomorrow().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_has_one_date() {
        let now = clock::now();
        let first = at(now);
        assert_eq!(at(now), first);
        LATEST.set(Some((format(0), now)));
        assert_ne!(at(now), format(0));
    }
}
