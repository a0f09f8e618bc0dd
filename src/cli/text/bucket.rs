//! Buckets, levels and limits as text for people.

use tollgate_admin::views::bucket::{BucketView, ChangeView};
use tollgate_admin::views::words::{
    show_level, show_policy, show_seconds, show_settled, show_source, show_wait,
};

/// A bucket, its level and its limit.
pub fn show_bucket(bucket: &BucketView) -> String {
    let BucketView { policy, level, .. } = bucket;
    let mut notes = String::new();
    if let Some(from) = &policy.plan_from {
        notes.push_str(&format!("  plan     from {from}\n"));
    }
    for note in bucket.store.iter().chain(&bucket.note) {
        notes.push_str(&format!("  note     {note}\n"));
    }
    let settled = match &policy.settled {
        Some(settled) => format!(" reserved and settled by {}", show_settled(settled)),
        None => String::new(),
    };
    let counted = match &policy.counted {
        Some(counted) => format!(" for responses with {counted}"),
        None => String::new(),
    };
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

/// A change of a bucket, or a trial of one.
pub fn show_change(change: &ChangeView) -> String {
    let done = match (change.action.as_str(), change.dry_run) {
        ("reset", false) => "reset",
        ("reset", true) => "would reset",
        (_, false) => "gave tokens back to",
        (_, true) => "would give tokens back to",
    };
    let full = if change.after.full { ", full" } else { "" };
    let note = match &change.not_told {
        Some(why) => format!("  note     {why}\n"),
        None => String::new(),
    };
    format!(
        "{done} {}\n  tokens   {} before, {} after{full}\n  source   {}\n  log      {}\n{note}",
        change.key,
        change.before.remaining,
        change.after.remaining,
        show_source(change.source),
        change.logged_as,
    )
}
