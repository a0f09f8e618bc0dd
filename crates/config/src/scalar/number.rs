//! Quantities with their bounds in the type, so that message and schema state the same bounds.

use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::units::{self, BYTE_RATE_FORMS, DURATION_FORMS, SIZE_FORMS};

use crate::report::{ValueProblem, quote};
use crate::yaml::decode::Scalar;
use crate::yaml::schema::or_variable;

/// A whole number from MIN to MAX.
#[derive(Clone, Copy)]
pub struct WholeNumber<const MIN: u64, const MAX: u64>(pub u64);

/// A duration from MIN_MS to MAX_MS.
#[derive(Clone, Copy)]
pub struct BoundedDuration<const MAX_MS: u64, const MIN_MS: u64 = 1>(pub Duration);

/// Milliseconds of the longest timeout.
pub const DAY: u64 = 86_400_000;

/// Bytes from MIN to MAX.
#[derive(Clone, Copy)]
pub struct ByteSize<const MIN: u64, const MAX: u64>(pub u64);

/// Bytes per second, from 1 to MAX.
#[derive(Clone, Copy)]
pub struct ByteRate<const MAX: u64>(u64);

impl<const MAX: u64> ByteRate<MAX> {
    /// How many.
    pub fn bytes_per_second(self) -> NonZeroU64 {
        NonZeroU64::new(self.0).unwrap_or(NonZeroU64::MIN)
    }
}

impl<const MIN: u64, const MAX: u64> ByteSize<MIN, MAX> {
    /// The size of something in memory. MIN is at least 1 where this is called.
    pub fn count(self) -> NonZeroUsize {
        usize::try_from(self.0)
            .ok()
            .and_then(NonZeroUsize::new)
            .unwrap_or(NonZeroUsize::MIN)
    }
}

impl<const MIN: u64, const MAX: u64> WholeNumber<MIN, MAX> {
    /// A count of things in memory. MIN is at least 1 where this is called.
    pub fn count(self) -> NonZeroUsize {
        usize::try_from(self.0)
            .ok()
            .and_then(NonZeroUsize::new)
            .unwrap_or(NonZeroUsize::MIN)
    }
}

impl<const MIN: u64, const MAX: u64> Scalar for WholeNumber<MIN, MAX> {
    const WHAT: &'static str = "a whole number";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let number = units::whole(text).ok_or_else(|| {
            ValueProblem::new(format!("{} is not a whole number", quote(text)))
                .hint(format!("write {MIN} to {MAX}, in digits"))
        })?;
        within(number, MIN, MAX, |number| number.to_string()).map(Self)
    }

    fn schema() -> Json {
        json!({ "anyOf": [
            { "type": "integer", "minimum": MIN, "maximum": MAX },
            { "type": "string", "pattern": or_variable("[0-9]+") },
        ] })
    }
}

impl<const MAX_MS: u64, const MIN_MS: u64> Scalar for BoundedDuration<MAX_MS, MIN_MS> {
    const WHAT: &'static str = "a duration";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let duration = units::parse_duration(text).ok_or_else(|| {
            ValueProblem::new(format!("{} is not a duration", quote(text)))
                .hint(format!("write {DURATION_FORMS}"))
        })?;
        let least = Duration::from_millis(MIN_MS);
        let most = Duration::from_millis(MAX_MS);
        within(duration, least, most, |duration| {
            units::show_duration(*duration)
        })
        .map(Self)
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("[0-9]+(ms|s|m|h|d)") })
    }
}

impl<const MIN: u64, const MAX: u64> Scalar for ByteSize<MIN, MAX> {
    const WHAT: &'static str = "a size";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let bytes = units::parse_size(text).ok_or_else(|| {
            ValueProblem::new(format!("{} is not a size", quote(text)))
                .hint(format!("write {SIZE_FORMS}"))
        })?;
        within(bytes, MIN, MAX, |bytes| units::show_size(*bytes)).map(Self)
    }

    fn schema() -> Json {
        json!({ "anyOf": [
            { "type": "integer", "minimum": MIN, "maximum": MAX },
            { "type": "string", "pattern": or_variable("[0-9]+(B|kB|KB|MB|GB|KiB|MiB|GiB)?") },
        ] })
    }
}

impl<const MAX: u64> Scalar for ByteRate<MAX> {
    const WHAT: &'static str = "a rate of bytes";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let bytes = units::parse_byte_rate(text).ok_or_else(|| {
            ValueProblem::new(format!("{} is not a rate of bytes", quote(text)))
                .hint(format!("write {BYTE_RATE_FORMS}"))
        })?;
        within(bytes, 1, MAX, |bytes| {
            format!("{}/s", units::show_size(*bytes))
        })
        .map(Self)
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("[0-9]+(B|kB|KB|MB|GB|KiB|MiB|GiB)?/s") })
    }
}

fn within<T: PartialOrd + Copy>(
    value: T,
    least: T,
    most: T,
    show: impl Fn(&T) -> String,
) -> Result<T, ValueProblem> {
    if value < least {
        let problem = ValueProblem::new(format!("{} is too small", show(&value)));
        return Err(problem.hint(format!("write at least {}", show(&least))));
    }
    if value > most {
        let problem = ValueProblem::new(format!("{} is too large", show(&value)));
        return Err(problem.hint(format!("write at most {}", show(&most))));
    }
    Ok(value)
}
