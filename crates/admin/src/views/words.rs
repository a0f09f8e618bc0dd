//! Levels and limits in words, as commands print them and the console shows them.

use tollgate_limiter::limit::algorithm::AlgorithmKind;

use super::policy::{LevelView, PolicyView, SettledView};
use crate::bucket_service::LevelSource;

/// `response_header x-used, 8000 at most`.
pub fn show_settled(SettledView { by, max, absent }: &SettledView) -> String {
    let absent = match absent {
        Some(absent) => format!(", {absent} if it does not say"),
        None => String::new(),
    };
    format!("{by}, {max} at most{absent}")
}

/// `10/s by plan gold, burst 20`, or `1000/month in Europe/Berlin, fixed_window`.
pub fn show_policy(policy: &PolicyView) -> String {
    let plan = match &policy.plan {
        Some(plan) => format!(" by plan {plan}"),
        None => String::new(),
    };
    let rate = &policy.rate;
    let algorithm = &policy.algorithm;
    match AlgorithmKind::named(algorithm) {
        Some(kind) if kind.has_burst() => format!("{rate}{plan}, burst {}", policy.burst),
        Some(_) | None => format!("{rate}{plan}, {algorithm}"),
    }
}

/// `7 of 20 tokens`.
pub fn show_level(level: &LevelView, burst: u64) -> String {
    format!("{} of {burst} tokens", level.remaining)
}

/// When a request of this cost passes.
pub fn show_wait(level: &LevelView, cost: u64) -> String {
    if level.retry_after > 0.0 {
        format!(
            "a request (cost {cost}) passes in {}",
            show_seconds(level.retry_after)
        )
    } else {
        format!("a request (cost {cost}) passes now")
    }
}

/// The place where a level was read.
pub fn show_source(source: LevelSource) -> &'static str {
    match source {
        LevelSource::Redis => "redis",
        LevelSource::Local => "local (this node)",
    }
}

/// Seconds in the unit that fits.
pub fn show_seconds(seconds: f64) -> String {
    match seconds {
        short if short < 1.0 => format!("{:.0} ms", (short * 1_000.0).ceil()),
        middle if middle < 120.0 => format!("{middle:.1} s"),
        long if long < 7_200.0 => format!("{:.0} min", long / 60.0),
        longer => format!("{:.1} h", longer / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_shown_in_the_unit_that_fits() {
        for (seconds, shown) in [
            (0.0004, "1 ms"),
            (1.25, "1.2 s"),
            (1_200.0, "20 min"),
            (90_000.0, "25.0 h"),
        ] {
            assert_eq!(show_seconds(seconds), shown);
        }
    }
}
