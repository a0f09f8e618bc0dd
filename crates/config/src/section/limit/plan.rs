//! `plans`: other numbers for some clients, in a table of the file or in Redis.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;
use tollgate_limiter::limit::cost::Cost;
use tollgate_limiter::limit::key::{Key, KeyPart};
use tollgate_limiter::limit::plan::{Plan, PlanHash, PlanSource, Plans};

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::number::BoundedDuration;
use crate::scalar::text::{DefinedName, PlainText};
use crate::section::limit::algorithm::{AlgorithmChoice, RawQuota};
use crate::section::limit::cost::{self, RawCost};
use crate::section::limit::key::{RawKeyPart, hashed};
use crate::yaml::collection::{Mapping, MappingEntry};
use crate::yaml::decode::{Located, only_one};
use crate::yaml::record::record;
use tollgate_identity::credential::CredentialPlace;

record! {
    /// Other rates for some clients. Exactly one of table and redis.
    RawPlans at location {
        /// The part of the request that tells a client's plan. Default: the first part of the
        /// limit's key.
        optional by: RawKeyPart,
        /// The plans, by what that part says.
        optional table: Mapping<PlainText, RawPlan>,
        /// A hash in Redis with the plans by what that part says, changed without a reload.
        optional redis: RawPlanHash,
    }
}

record! {
    /// Plans in Redis: texts such as "100/s burst=200 cost=2" in a hash.
    RawPlanHash at location {
        /// The name of the hash, behind the store's key_prefix.
        required hash: Located<DefinedName>,
        /// How long a node uses a plan before it reads it again. 100ms to 1h.
        default("5s") cache: Located<BoundedDuration<3_600_000, 100>>,
    }
}

record! {
    /// A rate instead of the limit's own.
    RawPlan at location {
        /// The plan's own quota.
        group quota: RawQuota,
        /// Tokens one request takes. Default: the limit's cost.
        optional cost: RawCost,
    }
}

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
    /// The part of a request that selects a client's plan: `own`, or else the first of the limit's
    /// key.
    pub fn by(&self, own: Option<KeyPart>) -> Option<KeyPart> {
        let hashed = own.map(|part| hashed(part, self.credentials));
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
    let mut table = HashMap::new();
    let mut lines = HashMap::new();
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
    if sound {
        Some(PlanSource::Table(table))
    } else {
        None
    }
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
    let prefixes = ClientPrefixes {
        ipv4: *ipv4_prefix,
        ipv6: *ipv6_prefix,
    };
    let address = prefixes.client(text);
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

/// The leading bits of addresses by which clients are told apart.
struct ClientPrefixes {
    ipv4: u8,
    ipv6: u8,
}

impl ClientPrefixes {
    /// An address of the client that `text` means: an address, or a network. A network is a client
    /// if it is as large as one: any other would match no request.
    fn client(&self, text: &str) -> Option<IpAddr> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(address);
        }
        let network = text.parse::<IpNet>().ok()?;
        let prefix = if network.addr().is_ipv4() {
            self.ipv4
        } else {
            self.ipv6
        };
        if network.prefix_len() == prefix {
            Some(network.addr())
        } else {
            None
        }
    }
}

/// The plan for this limit. `None`: a mistake was reported.
pub fn plan(raw: &RawPlan, limit: &PlanContext<'_>, report: &mut Report) -> Option<Plan> {
    let algorithm = limit.algorithm.of_plan(&raw.quota, report)?;
    if raw.quota.nothing().is_some() {
        return Plan::closed(algorithm).ok();
    }
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
        let location = raw.quota.burst.location_or(&raw.location);
        report.mistake(
            location,
            problem.hint("raise the burst, or give the plan a cost of its own"),
        );
        return None;
    }
    Plan::new(algorithm, cost).ok()
}
