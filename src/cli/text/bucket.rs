//! Buckets, levels and limits as text for people.

use crate::admin::views::bucket::{BucketView, ChangeView};
use crate::admin::views::policy::SettledView;
use crate::admin::views::words::{
    show_level, show_policy, show_seconds, show_settled, show_source, show_wait,
};

/// A bucket, its level and its limit.
pub fn show_bucket(bucket: &BucketView) -> String {
    let BucketView { policy, level, .. } = bucket;
    let notes = bucket.store.iter().chain(&bucket.note);
    let from = policy
        .plan_from
        .iter()
        .map(|from| format!("  plan     from {from}\n"));
    let notes: String = from
        .chain(notes.map(|note| format!("  note     {note}\n")))
        .collect();
    let settled =
        |settled: &SettledView| format!(" reserved and settled by {}", show_settled(settled));
    let settled = policy.settled.as_ref().map_or_else(String::new, settled);
    let counted = |counted: &String| format!(" for responses with {counted}");
    let counted = policy.counted.as_ref().map_or_else(String::new, counted);
    format!(
        "{}\n  level    {}\n  next     {}\n  full     {}\n  policy   {}, cost {}{settled}{counted}, on outage: {}\n  source   {}\n  in logs  {}\n{notes}",
        bucket.key,
        show_level(level, policy.burst),
        show_wait(level, policy.cost),
        if level.full {
            "now".to_owned()
        } else {
            format!("in {}", show_seconds(level.reset_after))
        },
        show_policy(policy),
        policy.cost,
        policy.on_outage,
        show_source(bucket.source),
        bucket.logged_as,
    )
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
    let note = change
        .not_told
        .as_ref()
        .map_or_else(String::new, |why| format!("  note     {why}\n"));
    format!(
        "{done} {}\n  tokens   {} before, {} after{full}\n  source   {}\n  log      {}\n{note}",
        change.key,
        change.before.remaining,
        change.after.remaining,
        show_source(change.source),
        change.logged_as,
    )
}
