//! The quantities a person writes: rates, durations, sizes.
//!
//! Guarantees that what [`show_rate`], [`show_duration`] and [`show_size`] print reads back as the
//! same quantity.

use std::num::NonZeroU64;
use std::time::Duration;

/// Forms of a rate, for messages.
pub const RATE_FORMS: &str = "tokens per period: 10/s, 100/m, 1000/h, 5/d, 3/90s or 100/15m";
/// Forms of a duration, for messages.
pub const DURATION_FORMS: &str = "a whole number and a unit: 20ms, 5s, 1m, 2h or 1d";
/// Forms of a size, for messages.
pub const SIZE_FORMS: &str = "bytes, or a whole number and a unit: 4096, 64KiB, 10MB or 1GiB";

/// Forms of a rate of bytes, for messages.
pub const BYTE_RATE_FORMS: &str = "a size per second: 500/s, 1KiB/s or 10kB/s";

const MICROS_PER_MILLI: u64 = 1_000;

/// Longest unit first: the first that divides a quantity is the one it is shown in.
const PERIODS: [(&str, u64); 4] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
];

const SIZES: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

/// `10/s` or `3/90s` as tokens and microseconds. `None`: not a rate, zero, or beyond 64 bits.
pub fn parse_rate(text: &str) -> Option<(NonZeroU64, NonZeroU64)> {
    let (tokens, period) = text.split_once('/')?;
    let (count, unit) = split_unit(period);
    let unit = PERIODS.iter().find(|(name, _)| *name == unit)?.1;
    let count = if count.is_empty() { 1 } else { whole(count)? };
    Some((
        NonZeroU64::new(whole(tokens)?)?,
        NonZeroU64::new(count.checked_mul(unit)?)?,
    ))
}

/// Like [`parse_rate`], or `1000/month`, whose period is `None`: a month has no fixed length.
pub fn parse_window_rate(text: &str) -> Option<(NonZeroU64, Option<NonZeroU64>)> {
    match text.strip_suffix("/month") {
        Some(tokens) => Some((NonZeroU64::new(whole(tokens)?)?, None)),
        None => parse_rate(text).map(|(tokens, period_us)| (tokens, Some(period_us))),
    }
}

/// `20ms`, `5s`, `1m`, `2h`, `1d`. `None`: not a duration, or beyond 64 bits of microseconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (count, unit) = split_unit(text);
    let unit = match unit {
        "ms" => MICROS_PER_MILLI,
        _ => PERIODS.iter().find(|(name, _)| *name == unit)?.1,
    };
    Some(Duration::from_micros(whole(count)?.checked_mul(unit)?))
}

/// `4096`, `64KiB`, `10MB` in bytes. `None`: not a size, or beyond 64 bits.
pub fn parse_size(text: &str) -> Option<u64> {
    let (count, unit) = split_unit(text);
    let unit = if unit.is_empty() {
        1
    } else {
        SIZES.iter().find(|(name, _)| *name == unit)?.1
    };
    whole(count)?.checked_mul(unit)
}

/// `1KiB/s` in bytes per second. `None`: not a size per second, or beyond 64 bits.
pub fn parse_byte_rate(text: &str) -> Option<u64> {
    parse_size(text.strip_suffix("/s")?)
}

/// `25%`, `0.5%` or `0.25%` in hundredths of a percent. `None`: not a percentage, or finer than
/// that.
pub fn parse_percent(text: &str) -> Option<u16> {
    let number = text.strip_suffix('%')?;
    let (percents, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let hundredths = match fraction.len() {
        1 => whole(fraction)? * 10,
        2 => whole(fraction)?,
        _ => return None,
    };
    u16::try_from(whole(percents)?.checked_mul(100)?.checked_add(hundredths)?).ok()
}

/// Decimal digits only: no sign, no fraction. `None`: anything else, or beyond 64 bits.
pub fn whole(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// A rate the way [`parse_rate`] reads it.
pub fn show_rate(tokens: NonZeroU64, period_us: NonZeroU64) -> String {
    match largest_unit(period_us.get(), &PERIODS) {
        Some((1, unit)) => format!("{tokens}/{unit}"),
        Some((count, unit)) => format!("{tokens}/{count}{unit}"),
        None => format!("{tokens}/{period_us}us"),
    }
}

/// A duration the way [`parse_duration`] reads it, cut to whole milliseconds.
pub fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let micros = millis.checked_mul(MICROS_PER_MILLI);
    match micros
        .filter(|micros| *micros > 0)
        .and_then(|micros| largest_unit(micros, &PERIODS))
    {
        Some((count, unit)) => format!("{count}{unit}"),
        None => format!("{millis}ms"),
    }
}

/// A size the way [`parse_size`] reads it.
pub fn show_size(bytes: u64) -> String {
    match largest_unit(bytes, &SIZES) {
        Some((count, unit)) if bytes > 0 && unit != "B" => format!("{count}{unit}"),
        _ => bytes.to_string(),
    }
}

fn largest_unit(quantity: u64, units: &[(&'static str, u64)]) -> Option<(u64, &'static str)> {
    let (name, unit) = units
        .iter()
        .find(|(_, unit)| quantity.is_multiple_of(*unit))?;
    Some((quantity / unit, name))
}

fn split_unit(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(digits)
}
