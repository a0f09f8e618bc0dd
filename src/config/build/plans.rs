//! The plans of a limit: a table by what a part of the request says, or where in Redis there is one.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;
use tollgate_limiter::limit::cost::Cost;
use tollgate_limiter::limit::key::{Key, KeyPart};
use tollgate_limiter::limit::plan::{Plan, PlanHash, PlanSource, Plans};

use super::algorithm::{Counting, Numbers};
use super::{costs, optional};
use crate::config::decode::{Row, Slot, Table};
use crate::config::mistake::{Report, Trouble, quote};
use crate::config::raw;

/// All plans. `parts` and `cost` are the limit's own, where they could be built; `stored`: the file names a store. `None`:
/// said in the report.
pub(super) fn build(
    raw: &raw::Plans,
    parts: Option<&[KeyPart]>,
    counting: &Counting<'_>,
    cost: Option<&Cost>,
    stored: bool,
    report: &mut Report,
) -> Option<Plans> {
    let by = optional(&raw.by, |raw::Part(part)| part.clone());
    let by = by.and_then(|by| by.or_else(|| parts?.first().cloned()));
    let source = match (&raw.table, &raw.redis) {
        (Slot::Good(rows), Slot::Absent) => table(rows, by.as_ref(), counting, cost, report),
        (Slot::Absent, Slot::Good(redis)) => hash(redis, stored, report),
        (Slot::Absent, Slot::Absent) | (Slot::Good(_) | Slot::Bad, Slot::Good(_) | Slot::Bad) => {
            let trouble = Trouble::new("plans are in exactly one of table and redis");
            report.mistake(
                &raw.place,
                trouble.hint("write {table: {gold: {rate: 100/s}}} for those of this file, or {redis: {hash: plans}}"),
            );
            None
        }
        (Slot::Bad, Slot::Absent) | (Slot::Absent, Slot::Bad) => None,
    };
    Some(Plans { by: by?, source: source? })
}

fn hash(raw: &raw::PlanHash, stored: bool, report: &mut Report) -> Option<PlanSource> {
    if !stored {
        let trouble = Trouble::new("plans in Redis, and there is no store");
        report.mistake(&raw.place, trouble.hint("add store: {redis: \"redis://…\"}, or write the plans in a table"));
        return None;
    }
    Some(PlanSource::Hash(PlanHash { name: raw.hash.value()?.0, cache: raw.cache.value()?.0 }))
}

fn table(
    rows: &Table<raw::Text, raw::Plan>,
    by: Option<&KeyPart>,
    counting: &Counting<'_>,
    cost: Option<&Cost>,
    report: &mut Report,
) -> Option<PlanSource> {
    let (mut table, mut lines) = (HashMap::new(), HashMap::new());
    let mut sound = true;
    for row in &rows.0 {
        let value = by.and_then(|by| value(by, row, report));
        let plan = row.value.as_ref().and_then(|raw| plan(raw, counting, cost, report));
        sound &= value.is_some() && plan.is_some();
        let (Some(value), Some(plan)) = (value, plan) else { continue };
        if let Some(line) = lines.insert(value.clone(), row.place.line) {
            let trouble = Trouble::new(format!("{} has a plan already, on line {line}", quote(&row.text)));
            report.mistake(&row.place, trouble.hint("keep one of the two"));
        }
        table.insert(value, plan);
    }
    sound.then_some(PlanSource::Table(table))
}

/// What the part of the request says when it means this row.
fn value(by: &KeyPart, row: &Row<raw::Text, raw::Plan>, report: &mut Report) -> Option<Box<[u8]>> {
    let raw::Text(text) = row.key.as_ref()?;
    let KeyPart::ClientIp { ipv4_prefix, ipv6_prefix } = by else {
        let text = if *by == KeyPart::Host { text.to_ascii_lowercase() } else { text.to_string() };
        return Some(text.into_bytes().into());
    };
    // A network counts as one client if it is as large as a client is to this limit, and else would never be met.
    let prefix = |network: &IpNet| if network.addr().is_ipv4() { *ipv4_prefix } else { *ipv6_prefix };
    let network = || text.parse::<IpNet>().ok().filter(|network| network.prefix_len() == prefix(network));
    let address = text.parse::<IpAddr>().ok().or_else(|| network().map(|network| network.addr()));
    let Some(address) = address else {
        let trouble = Trouble::new(format!("{} is not a client's address", quote(text)));
        report.mistake(
            &row.place,
            trouble.hint("write an address, or tell plans by another part: {by: {header: x-plan}}"),
        );
        return None;
    };
    Some(Key::of_ip(address, *ipv4_prefix, *ipv6_prefix).as_bytes().into())
}

fn plan(raw: &raw::Plan, counting: &Counting<'_>, limits_cost: Option<&Cost>, report: &mut Report) -> Option<Plan> {
    let raw::Plan { rate, burst, max_in_flight, place, .. } = raw;
    let algorithm = counting.algorithm(&Numbers { rate, burst, max_in_flight, place }, report)?;
    let burst = algorithm.burst();
    let cost = optional(&raw.cost, |cost| costs::build(cost, &algorithm, counting.most(), report))?;
    if let (None, Some(Cost::Fixed(inherited))) = (&cost, limits_cost)
        && *inherited > burst
    {
        let trouble =
            Trouble::new(format!("the limit's cost of {inherited} is over the burst, {burst}: no request would pass"));
        let place = if let Slot::Good(at) = &raw.burst { &at.place } else { &raw.place };
        report.mistake(place, trouble.hint("raise the burst, or give the plan a cost of its own"));
        return None;
    }
    Plan::new(algorithm, cost).ok()
}
