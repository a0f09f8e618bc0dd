//! Buckets, levels and limits as text for people.

use crate::admin::bucket_service::LevelSource;
use crate::admin::views::bucket::{BucketView, ChangeView};
use crate::admin::views::policy::{LevelView, PolicyView, SettledView};

/// A bucket, its level and its limit.
pub fn show_bucket(bucket: &BucketView) -> String {
    let BucketView { policy, level, .. } = bucket;
    let notes = bucket.store.iter().chain(&bucket.note);
    let from = policy.plan_from.iter().map(|from| format!("  plan     from {from}\n"));
    let notes: String = from.chain(notes.map(|note| format!("  note     {note}\n"))).collect();
    let settled = |settled: &SettledView| format!(" reserved and settled by {}", show_settled(settled));
    let settled = policy.settled.as_ref().map_or_else(String::new, settled);
    let counted = |counted: &String| format!(" for responses with {counted}");
    let counted = policy.counted.as_ref().map_or_else(String::new, counted);
    format!(
        "{}\n  level    {}\n  next     {}\n  full     {}\n  policy   {}, cost {}{settled}{counted}, on outage: {}\n  source   {}\n  in logs  {}\n{notes}",
        bucket.key,
        show_level(level, policy.burst),
        show_wait(level, policy.cost),
        if level.full { "now".to_owned() } else { format!("in {}", show_seconds(level.reset_after)) },
        show_policy(policy),
        policy.cost,
        policy.on_outage,
        show_source(bucket.source),
        bucket.logged_as,
    )
}

/// `response_header x-used, 8000 at most`.
pub fn show_settled(SettledView { by, max, absent }: &SettledView) -> String {
    let absent = absent.map_or_else(String::new, |absent| format!(", {absent} if it does not say"));
    format!("{by}, {max} at most{absent}")
}

/// `10/s by plan gold, burst 20`, or `1000/month in Europe/Berlin, fixed_window`.
pub fn show_policy(policy: &PolicyView) -> String {
    let plan = policy.plan.as_ref().map_or_else(String::new, |plan| format!(" by plan {plan}"));
    match policy.algorithm.as_str() {
        "token_bucket" => format!("{}{plan}, burst {}", policy.rate, policy.burst),
        other => format!("{}{plan}, {other}", policy.rate),
    }
}

/// `7 of 20 tokens`.
pub fn show_level(level: &LevelView, burst: u64) -> String {
    format!("{} of {burst} tokens", level.remaining)
}

/// When a request of this cost passes.
pub fn show_wait(level: &LevelView, cost: u64) -> String {
    if level.retry_after > 0.0 {
        format!("a request (cost {cost}) passes in {}", show_seconds(level.retry_after))
    } else {
        format!("a request (cost {cost}) passes now")
    }
}

/// Where a level was read.
pub fn show_source(source: LevelSource) -> &'static str {
    match source {
        LevelSource::Redis => "redis",
        LevelSource::Local => "local (this node)",
    }
}

/// A change of a bucket, or what it would change.
pub fn show_change(change: &ChangeView) -> String {
    let done = match (change.action.as_str(), change.dry_run) {
        ("reset", false) => "reset",
        ("reset", true) => "would reset",
        (_, false) => "gave tokens back to",
        (_, true) => "would give tokens back to",
    };
    let full = if change.after.full { ", full" } else { "" };
    let note = change.not_told.as_ref().map_or_else(String::new, |why| format!("  note     {why}\n"));
    format!(
        "{done} {}\n  tokens   {} before, {} after{full}\n  source   {}\n  log      {}\n{note}",
        change.key,
        change.before.remaining,
        change.after.remaining,
        show_source(change.source),
        change.logged_as,
    )
}

/// Seconds in the unit that fits.
fn show_seconds(seconds: f64) -> String {
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
        for (seconds, shown) in [(0.0004, "1 ms"), (1.25, "1.2 s"), (1_200.0, "20 min"), (90_000.0, "25.0 h")] {
            assert_eq!(show_seconds(seconds), shown);
        }
    }
}
