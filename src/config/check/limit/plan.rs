//! The plans of a limit: a table by what a part of the request says, or where in Redis there is
//! one.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;
use tollgate_limiter::limit::cost::Cost;
use tollgate_limiter::limit::key::{Key, KeyPart};
use tollgate_limiter::limit::plan::{Plan, PlanHash, PlanSource, Plans};

use super::{cost, credential};
use crate::config::file::limit::{AlgorithmChoice, RawKeyPart, RawPlan, RawPlanHash, RawPlans};
use crate::config::file::scalar::text::PlainText;
use crate::config::report::{Report, ValueProblem, quote};
use crate::config::yaml::collection::{Mapping, MappingEntry};
use crate::config::yaml::decode::only_one;
use crate::identity::credential::CredentialPlace;

/// The limit that the plans are of, and the rest of the file.
pub struct PlanContext<'a> {
    /// The parts of the limit's key. `None`: a mistake was reported.
    pub key: Option<&'a [KeyPart]>,
    pub algorithm: &'a AlgorithmChoice<'a>,
    /// The limit's own cost. `None`: a mistake was reported.
    pub cost: Option<&'a Cost>,
    /// Whether the file names a store.
    pub has_store: bool,
    /// Where authenticators find credentials.
    pub credentials: &'a [CredentialPlace],
}

impl PlanContext<'_> {
    /// The part of a request that tells a client's plan: `own`, or else the first of the limit's
    /// key.
    pub fn by(&self, own: Option<KeyPart>) -> Option<KeyPart> {
        let hashed = own.map(|part| credential::hashed(part, self.credentials));
        hashed.or_else(|| self.key?.first().cloned())
    }
}

/// All plans of a limit. `None`: a mistake was reported.
pub fn build(raw: &RawPlans, limit: &PlanContext<'_>, report: &mut Report) -> Option<Plans> {
    let by = raw.by.build(|RawKeyPart(part)| part.clone());
    let by = by.and_then(|own| limit.by(own));
    let sources = [
        raw.table
            .build(|plans| table(plans, by.as_ref(), limit, report)),
        raw.redis
            .build(|redis| hash(redis, limit.has_store, report)),
    ];
    let source = only_one(sources).unwrap_or_else(|_| {
        let problem = ValueProblem::new("plans are in exactly one of table and redis");
        let hint = "write {table: {gold: {rate: 100/s}}} for those of this file, or {redis: {hash: plans}}";
        report.mistake(&raw.location, problem.hint(hint));
        None
    });
    Some(Plans {
        by: by?,
        source: source?,
    })
}

fn hash(raw: &RawPlanHash, has_store: bool, report: &mut Report) -> Option<PlanSource> {
    if !has_store {
        let problem = ValueProblem::new("the plans are in Redis, but the file has no store");
        report.mistake(
            &raw.location,
            problem.hint("add store: {redis: \"redis://…\"}, or write the plans in a table"),
        );
        return None;
    }
    Some(PlanSource::Hash(PlanHash {
        name: raw.hash.value()?.0,
        cache: raw.cache.value()?.0,
    }))
}

fn table(
    entries: &Mapping<PlainText, RawPlan>,
    by: Option<&KeyPart>,
    limit: &PlanContext<'_>,
    report: &mut Report,
) -> Option<PlanSource> {
    let (mut table, mut lines) = (HashMap::new(), HashMap::new());
    let mut sound = true;
    for entry in &entries.0 {
        let value = by.and_then(|by| value(by, entry, report));
        let plan = entry
            .value
            .as_ref()
            .and_then(|raw| plan(raw, limit, report));
        sound &= value.is_some() && plan.is_some();
        let (Some(value), Some(plan)) = (value, plan) else {
            continue;
        };
        if let Some(line) = lines.insert(value.clone(), entry.location.line()) {
            let problem = ValueProblem::new(format!(
                "{} has a plan already, on line {line}",
                quote(&entry.text)
            ));
            report.mistake(&entry.location, problem.hint("keep one of the two"));
        }
        table.insert(value, plan);
    }
    sound.then_some(PlanSource::Table(table))
}

/// The bytes of the key part by which a request is given this plan.
fn value(
    by: &KeyPart,
    entry: &MappingEntry<PlainText, RawPlan>,
    report: &mut Report,
) -> Option<Box<[u8]>> {
    let PlainText(text) = entry.key.as_ref()?;
    let KeyPart::ClientIp {
        ipv4_prefix,
        ipv6_prefix,
    } = by
    else {
        let text = if *by == KeyPart::Host {
            text.to_ascii_lowercase()
        } else {
            text.to_string()
        };
        return Some(text.into_bytes().into());
    };
    // A network is a client if it is as large as a client is to this limit. Any other network would
    // match no request.
    let prefix = |network: &IpNet| {
        if network.addr().is_ipv4() {
            *ipv4_prefix
        } else {
            *ipv6_prefix
        }
    };
    let network = || {
        text.parse::<IpNet>()
            .ok()
            .filter(|network| network.prefix_len() == prefix(network))
    };
    let address = text
        .parse::<IpAddr>()
        .ok()
        .or_else(|| network().map(|network| network.addr()));
    let Some(address) = address else {
        let problem = ValueProblem::new(format!("{} is not a client's address", quote(text)));
        report.mistake(
            &entry.location,
            problem.hint("write an address, or tell plans by another part: {by: {header: x-plan}}"),
        );
        return None;
    };
    Some(
        Key::from_ip(address, *ipv4_prefix, *ipv6_prefix)
            .as_bytes()
            .into(),
    )
}

/// The plan for this limit. `None`: a mistake was reported.
pub fn plan(raw: &RawPlan, limit: &PlanContext<'_>, report: &mut Report) -> Option<Plan> {
    let algorithm = limit.algorithm.build(&raw.quota, report)?;
    let burst = algorithm.burst();
    let cost = raw
        .cost
        .build(|cost| cost::build(cost, &algorithm, limit.algorithm.capacity(), report))?;
    if let (None, Some(Cost::Fixed(inherited))) = (&cost, limit.cost)
        && *inherited > burst
    {
        let problem = ValueProblem::new(format!(
            "the limit's cost of {inherited} is over the burst, {burst}: no request would pass"
        ));
        let location = raw
            .quota
            .burst
            .valid()
            .map_or(&raw.location, |burst| &burst.location);
        report.mistake(
            location,
            problem.hint("raise the burst, or give the plan a cost of its own"),
        );
        return None;
    }
    Plan::new(algorithm, cost).ok()
}
