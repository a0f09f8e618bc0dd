//! The `Date` of responses that have none (RFC 9110 §6.6.1). Each thread formats it once per
//! second.

use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use httpdate::HttpDate;

use tollgate_limiter::clock::{self, Instant};

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
pub type DateText = [u8; 29];

thread_local! {
    static LATEST: Cell<Option<(DateText, Instant)>> = const { Cell::new(None) };
    /// The latest date as a field's value, for codecs that take values.
    static LATEST_VALUE: RefCell<Option<(DateText, HeaderValue)>> = const { RefCell::new(None) };
}

/// The date at `now`, which must be the present.
pub fn at(now: Instant) -> DateText {
    if let Some((text, until)) = LATEST.get()
        && now < until
    {
        return text;
    }
    let wall = clock::wall();
    let text = format(wall);
    let passed = wall
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .subsec_nanos();
    LATEST.set(Some((
        text,
        now + Duration::from_secs(1) - Duration::from_nanos(passed.into()),
    )));
    text
}

/// The date at `now`, which must be the present, as a field's value.
pub fn value_at(now: Instant) -> HeaderValue {
    let text = at(now);
    LATEST_VALUE.with_borrow_mut(|latest| match latest {
        Some((latest_text, value)) if *latest_text == text => value.clone(),
        Some(_) | None => {
            let value = HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static(""));
            latest.insert((text, value)).1.clone()
        }
    })
}

fn format(time: SystemTime) -> DateText {
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    // All dates have the same length, so the write cannot fail.
    let _ = write!(&mut text[..], "{}", HttpDate::from(time));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_has_the_form_of_rfc_9110() {
        for (seconds, expected) in [
            (784_111_777, b"Sun, 06 Nov 1994 08:49:37 GMT"),
            (1_709_251_199, b"Thu, 29 Feb 2024 23:59:59 GMT"),
        ] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(&format(time), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_date_is_formatted_once_per_second() {
        let now = clock::now();
        let first = at(now);
        assert_eq!(at(now), first);
        LATEST.set(Some((format(SystemTime::UNIX_EPOCH), now)));
        assert_ne!(at(now), format(SystemTime::UNIX_EPOCH));
    }
}
