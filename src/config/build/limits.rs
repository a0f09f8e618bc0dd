//! Limits, and their uses by listeners and routes.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use tollgate_limiter::limit::exemption::Exemption;
use tollgate_limiter::limit::key::{KeyPart, KeySpec};
use tollgate_limiter::limit::plan::Plans;
use tollgate_limiter::limit::spec::{Limit, LimitUse};

use super::algorithm::{Counting, Numbers};
use super::named::Named;
use super::rewrite::check_names;
use super::{costs, on_limit, optional, plans};
use crate::config::decode::{At, Slot};
use crate::config::mistake::{Report, Trouble, quote};
use crate::config::node::Place;
use crate::config::raw;
use crate::upstream::UpstreamSpec;

/// One limit; `stored`: the file names a store. `None`: said in the report.
pub(super) fn limit(
    name: &raw::Name,
    raw: &raw::Limit,
    upstreams: &Named<UpstreamSpec>,
    stored: bool,
    report: &mut Report,
) -> Option<Limit> {
    let counting = Counting::of(raw, report);
    let raw::Limit { rate, burst, max_in_flight, place, .. } = raw;
    let numbers = Numbers { rate, burst, max_in_flight, place };
    let algorithm = counting.as_ref().and_then(|counting| counting.algorithm(&numbers, report));
    let cost =
        raw.cost.good().and_then(|cost| costs::build(cost, algorithm.as_ref()?, counting.as_ref()?.most(), report));
    let enforcement = on_limit::build(raw, upstreams, report);
    let exempt = optional(&raw.exempt, |raw| exempt(raw, report));
    let parts = raw.key.good().and_then(parts);
    let plans = optional(&raw.plans, |raw| {
        plans::build(raw, parts.as_deref(), counting.as_ref()?, cost.as_ref(), stored, report)
    });
    let (on_limit, enforced) = enforcement?;
    Some(Limit {
        name: name.0.clone(),
        key: KeySpec { parts: parts?, on_missing: raw.on_missing.value()? },
        algorithm: algorithm?,
        cost: cost?,
        on_outage: raw.on_outage.value()?,
        on_limit,
        rollout: enforced,
        exemption: exempt?.unwrap_or_default(),
        plans: plans?,
        consistency: raw.consistency.value()?,
    })
}

fn exempt(raw: &raw::Exempt, report: &mut Report) -> Option<Exemption> {
    let clients = optional(&raw.client, |list| Some(list.iter().map(|at| at.value.0).collect::<Vec<_>>()));
    let headers = optional(&raw.headers, |table| {
        check_names(table, report);
        table.0.iter().map(|row| Some((row.key.clone()?, row.value.as_ref()?.0.clone()))).collect::<Option<Vec<_>>>()
    });
    let exempt = Exemption { clients: clients?.unwrap_or_default(), headers: headers?.unwrap_or_default() };
    if exempt.is_empty() {
        let trouble = Trouble::new("nobody is exempt");
        report.mistake(&raw.place, trouble.hint("write {client: [10.0.0.0/8]} or {headers: {x-name: value}}"));
        return None;
    }
    Some(exempt)
}

fn parts(key: &raw::Key) -> Option<Vec<KeyPart>> {
    key.0.iter().map(|raw::Part(part)| part.clone()).collect()
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

fn limit_use(cost: &Slot<raw::Cost>, limit: Arc<Limit>, report: &mut Report) -> Option<LimitUse> {
    let cost = optional(cost, |raw| {
        let cost = costs::build(raw, &limit.algorithm, &format!("the burst of {}", quote(&limit.name)), report)?;
        let smallest = limit.plans.iter().flat_map(Plans::all).map(|plan| plan.counting().burst()).min();
        if let Some(burst) = smallest.and_then(NonZeroU64::new) {
            let whose = format!("the smallest burst of the plans of {}", quote(&limit.name));
            costs::check_fixed(&cost, burst, &whose, raw.place(), report)?;
        }
        Some(cost)
    });
    Some(LimitUse { cost: cost?, limit })
}

/// The path parameters that a limit counts or tells plans by.
pub(super) fn path_params(limit: &Limit) -> impl Iterator<Item = &Arc<str>> {
    limit.key.parts.iter().chain(limit.plans.iter().map(|plans| &plans.by)).filter_map(|part| match part {
        KeyPart::PathParam(name) => Some(name),
        _ => None,
    })
}
