//! Quantities with their bounds in the type, so that message and schema state the same bounds.

use std::num::NonZeroUsize;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::algorithm_kind::{WindowLength, WindowRate};
use tollgate_limiter::limit::rollout::Rollout;
use tollgate_limiter::limit::units::{self, DURATION_FORMS, RATE_FORMS, SIZE_FORMS};

use crate::config::decode::Scalar;
use crate::config::mistake::{Trouble, quote};

/// A whole number from MIN to MAX.
#[derive(Clone, Copy)]
pub(in crate::config) struct Whole<const MIN: u64, const MAX: u64>(pub u64);

/// A duration from MIN_MS to MAX_MS.
#[derive(Clone, Copy)]
pub(in crate::config) struct Span<const MAX_MS: u64, const MIN_MS: u64 = 1>(pub Duration);

/// Bytes from MIN to MAX.
#[derive(Clone, Copy)]
pub(in crate::config) struct Size<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> Whole<MIN, MAX> {
    /// As a count of things in memory; MIN is at least 1 wherever this is asked.
    pub fn count(self) -> NonZeroUsize {
        usize::try_from(self.0).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN)
    }
}

impl<const MIN: u64, const MAX: u64> Scalar for Whole<MIN, MAX> {
    const WHAT: &'static str = "a whole number";

    fn read(text: &str) -> Result<Self, Trouble> {
        let number = units::whole(text).ok_or_else(|| {
            Trouble::new(format!("{} is not a whole number", quote(text)))
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

impl<const MAX_MS: u64, const MIN_MS: u64> Scalar for Span<MAX_MS, MIN_MS> {
    const WHAT: &'static str = "a duration";

    fn read(text: &str) -> Result<Self, Trouble> {
        let duration = units::parse_duration(text).ok_or_else(|| {
            Trouble::new(format!("{} is not a duration", quote(text))).hint(format!("write {DURATION_FORMS}"))
        })?;
        let (least, most) = (Duration::from_millis(MIN_MS), Duration::from_millis(MAX_MS));
        within(duration, least, most, |duration| units::show_duration(*duration)).map(Self)
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("[0-9]+(ms|s|m|h|d)") })
    }
}

impl<const MIN: u64, const MAX: u64> Scalar for Size<MIN, MAX> {
    const WHAT: &'static str = "a size";

    fn read(text: &str) -> Result<Self, Trouble> {
        let bytes = units::parse_size(text).ok_or_else(|| {
            Trouble::new(format!("{} is not a size", quote(text))).hint(format!("write {SIZE_FORMS}"))
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

impl Scalar for WindowRate {
    const WHAT: &'static str = "a rate";

    fn read(text: &str) -> Result<Self, Trouble> {
        if text.starts_with("0/") {
            let trouble = Trouble::new(format!("{} lets nothing pass", quote(text)));
            return Err(trouble.hint("to refuse requests, give them a route that responds with an error"));
        }
        let (tokens, period_us) = units::parse_window_rate(text).ok_or_else(|| {
            Trouble::new(format!("{} is not a rate", quote(text))).hint(format!("write {RATE_FORMS}"))
        })?;
        Ok(Self { tokens, per: period_us.map_or(WindowLength::Month, WindowLength::Micros) })
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("[0-9]+/([0-9]*(s|m|h|d)|month)") })
    }
}

impl Scalar for Rollout {
    const WHAT: &'static str = "a percentage";

    fn read(text: &str) -> Result<Self, Trouble> {
        let share = units::parse_percent(text).and_then(Self::of_hundredths);
        share.ok_or_else(|| {
            Trouble::new(format!("{} is not a share", quote(text))).hint("write 0% to 100%, such as 25% or 0.5%")
        })
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("[0-9]+(\\.[0-9]{1,2})?%") })
    }
}

fn within<T: PartialOrd + Copy>(value: T, least: T, most: T, show: impl Fn(&T) -> String) -> Result<T, Trouble> {
    let (bound, problem) = match () {
        () if value < least => (format!("at least {}", show(&least)), "too small"),
        () if value > most => (format!("at most {}", show(&most)), "too large"),
        () => return Ok(value),
    };
    Err(Trouble::new(format!("{} is {problem}", show(&value))).hint(format!("write {bound}")))
}

/// A pattern of JSON Schema: the whole text, or a text with an environment variable in it.
pub(super) fn or_variable(pattern: &str) -> String {
    format!("^({pattern})$|\\$\\{{")
}
