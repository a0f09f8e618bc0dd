//! Limits, and their uses by listeners and routes.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use super::named::Named;
use crate::config::decode::{At, Slot};
use crate::config::mistake::{Report, Trouble, quote};
use crate::config::node::Place;
use crate::config::raw;
use crate::rate_limit::bucket::{MAX_BURST, MAX_TOKENS_PER_SECOND, Shape, ShapeError};
use crate::rate_limit::key::{KeyPart, KeySpec};
use crate::rate_limit::policy::{Limit, LimitUse};

/// One limit. `None`: said in the report.
pub(super) fn limit(name: &raw::Name, raw: &raw::Limit, report: &mut Report) -> Option<Limit> {
    let burst = burst(raw, report);
    let cost = raw.cost.good().and_then(|cost| {
        check_cost(cost, burst?, "the burst", report)?;
        NonZeroU64::new(cost.value.0)
    });
    Some(Limit {
        name: name.0.clone(),
        key: KeySpec { parts: parts(raw.key.good()?)?, on_missing: raw.on_missing.value()? },
        rate: raw.rate.value()?,
        burst: burst?,
        cost: cost?,
        on_outage: raw.on_outage.value()?,
        consistency: raw.consistency.value()?,
    })
}

fn parts(key: &raw::Key) -> Option<Vec<KeyPart>> {
    key.0.iter().map(|raw::Part(part)| part.clone()).collect()
}

/// The burst, checked together with the rate.
fn burst(raw: &raw::Limit, report: &mut Report) -> Option<NonZeroU64> {
    let rate = raw.rate.good()?;
    let (burst, burst_place) = match &raw.burst {
        Slot::Absent => (rate.value.tokens, &rate.place),
        Slot::Bad => return None,
        Slot::Good(at) => (NonZeroU64::new(at.value.0)?, &at.place),
    };
    let Err(bound) = Shape::new(rate.value.tokens, rate.value.period_us, burst) else { return Some(burst) };
    let (place, hint) = match bound {
        ShapeError::TooFast => (&rate.place, format!("write at most {MAX_TOKENS_PER_SECOND}/s")),
        ShapeError::BurstTooLarge => (burst_place, format!("set \"burst\" to at most {MAX_BURST}")),
        ShapeError::TooSlow => (burst_place, "lower the burst or raise the rate".to_owned()),
    };
    report.mistake(place, Trouble::new(bound.to_string()).hint(hint));
    None
}

/// A cost above the burst could never be paid.
fn check_cost<const MIN: u64, const MAX: u64>(
    cost: &At<raw::Whole<MIN, MAX>>,
    burst: NonZeroU64,
    whose: &str,
    report: &mut Report,
) -> Option<()> {
    if cost.value.0 <= burst.get() {
        return Some(());
    }
    let trouble = Trouble::new(format!("a cost of {} is over {whose}, {burst}: no request would pass", cost.value.0));
    report.mistake(&cost.place, trouble.hint("lower the cost or raise the burst"));
    None
}

/// One use and where it is written.
pub(super) struct Used {
    pub place: Place,
    pub limit_use: LimitUse,
}

/// The limits that a listener or a route names. `None`: said in the report.
pub(super) fn uses(slot: &Slot<Vec<raw::LimitUse>>, limits: &Named<Limit>, report: &mut Report) -> Option<Vec<Used>> {
    let mut seen = HashSet::new();
    let mut sound = !slot.is_bad();
    let mut uses = Vec::new();
    for raw in slot.good().into_iter().flatten() {
        let used = raw.limit.good().and_then(|name| {
            check_first(name, seen.insert(name.value.0.clone()), report)?;
            let limit = limits.find(name, report)?;
            Some(Used { place: name.place.clone(), limit_use: limit_use(&raw.cost, limit, report)? })
        });
        sound &= used.is_some();
        uses.extend(used);
    }
    sound.then_some(uses)
}

fn check_first(name: &At<raw::Name>, first: bool, report: &mut Report) -> Option<()> {
    if first {
        return Some(());
    }
    let trouble = Trouble::new(format!("{} is listed twice", quote(&name.value.0)));
    report.mistake(&name.place, trouble.hint("to count a request more than once, raise its cost: {limit: …, cost: 2}"));
    None
}

fn limit_use<const MIN: u64, const MAX: u64>(
    cost: &Slot<At<raw::Whole<MIN, MAX>>>,
    limit: Arc<Limit>,
    report: &mut Report,
) -> Option<LimitUse> {
    let cost = match cost {
        Slot::Absent => limit.cost,
        Slot::Bad => return None,
        Slot::Good(cost) => {
            check_cost(cost, limit.burst, &format!("the burst of {}", quote(&limit.name)), report)?;
            NonZeroU64::new(cost.value.0)?
        }
    };
    Some(LimitUse { limit, cost })
}

/// The path parameters that a limit counts by.
pub(super) fn path_params(limit: &Limit) -> impl Iterator<Item = &Arc<str>> {
    limit.key.parts.iter().filter_map(|part| match part {
        KeyPart::PathParam(name) => Some(name),
        _ => None,
    })
}
