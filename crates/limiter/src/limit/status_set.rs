//! Status codes by which a limit tells the requests that it counts.
//!
//! Guarantees at least one code, and none that no response ends with. A set that is shown reads as
//! it is written.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use http::StatusCode;

/// The codes of final responses.
const FINAL: RangeInclusive<u16> = 200..=599;

/// Some status codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSet(Arc<[StatusRange]>);

/// A code, or all from one to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusRange(RangeInclusive<u16>);

/// Why these are no status codes of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("status codes of responses are 200 to 599")]
pub struct NoStatus;

impl StatusSet {
    /// # Errors
    /// When there is none, or one that no response ends with.
    pub fn new(ranges: impl IntoIterator<Item = StatusRange>) -> Result<Self, NoStatus> {
        let ranges: Arc<[StatusRange]> = ranges.into_iter().collect();
        if ranges.is_empty()
            || !ranges.iter().all(|StatusRange(range)| {
                FINAL.contains(range.start()) && FINAL.contains(range.end()) && !range.is_empty()
            })
        {
            Err(NoStatus)
        } else {
            Ok(Self(ranges))
        }
    }

    pub fn contains(&self, status: StatusCode) -> bool {
        self.0
            .iter()
            .any(|StatusRange(range)| range.contains(&status.as_u16()))
    }
}

impl StatusRange {
    /// A code, or a class of them: `401`, `4xx`.
    ///
    /// # Errors
    /// When it is neither, or no response ends with it.
    pub fn parse(text: &str) -> Result<Self, NoStatus> {
        let range = match text.strip_suffix("xx").map(str::as_bytes) {
            Some([class @ b'2'..=b'5']) => Self::class(class - b'0'),
            Some(_) => return Err(NoStatus),
            None => text.parse::<u16>().map_err(|_| NoStatus)?.into(),
        };
        if FINAL.contains(range.0.start()) {
            Ok(range)
        } else {
            Err(NoStatus)
        }
    }

    fn class(digit: u8) -> Self {
        let first = u16::from(digit) * 100;
        Self(first..=first + 99)
    }
}

impl From<u16> for StatusRange {
    fn from(code: u16) -> Self {
        Self(code..=code)
    }
}

impl From<StatusCode> for StatusRange {
    fn from(code: StatusCode) -> Self {
        code.as_u16().into()
    }
}

impl From<RangeInclusive<u16>> for StatusRange {
    fn from(codes: RangeInclusive<u16>) -> Self {
        Self(codes)
    }
}

impl fmt::Display for StatusSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&ranges.join(", "))
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = *self.0.start();
        let last = *self.0.end();
        match last - first {
            0 => write!(f, "{first}"),
            99 if first.is_multiple_of(100) => write!(f, "{}xx", first / 100),
            _ => write!(f, "{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_codes_and_classes_that_are_written() {
        let set =
            StatusSet::new(["401", "403", "5xx"].map(|text| StatusRange::parse(text).unwrap()))
                .unwrap();
        for code in [401, 403, 500, 599] {
            assert!(set.contains(StatusCode::from_u16(code).unwrap()), "{code}");
        }
        for code in [200, 400, 402, 499, 600] {
            assert!(!set.contains(StatusCode::from_u16(code).unwrap()), "{code}");
        }
        assert_eq!(set.to_string(), "401, 403, 5xx");
        assert_eq!(
            StatusSet::new([(400..=403).into()]).unwrap().to_string(),
            "400-403"
        );
    }

    #[test]
    fn what_no_response_ends_with_is_no_status() {
        for text in [
            "", "xx", "4x", "1xx", "6xx", "44xx", "4XX", "100", "600", "-401", "401.0", "4 01",
            "65937",
        ] {
            assert_eq!(StatusRange::parse(text), Err(NoStatus), "{text}");
        }
        assert_eq!(StatusSet::new([]), Err(NoStatus));
        assert_eq!(StatusSet::new([101.into()]), Err(NoStatus));
        assert_eq!(
            StatusSet::new([StatusRange(RangeInclusive::new(403, 401))]),
            Err(NoStatus)
        );
    }
}
