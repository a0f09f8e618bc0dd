//! `limits` of a listener or a route: each defined, listed once, and with a cost that it can ever
//! grant.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::definition::{Limit, LimitUse};
use tollgate_limiter::limit::key::{BodyMember, KeyPart};

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::text::DefinedName;
use crate::section::common::named::NamedSection;
use crate::section::limit::cost::{self, RawCost};
use crate::section::limit::key::part_of_identity;
use crate::yaml::decode::{Decode, Located, SchemaDefinitions, Setting, mismatch};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;

record! {
    /// A limit with a cost of its own.
    RawCostedUse {
        /// The limit's name.
        required limit: Located<DefinedName>,
        /// Tokens one request takes here. Default: the limit's cost.
        optional cost: RawCost,
    }
}

/// A limit as a listener or a route names it.
pub struct RawLimitUse {
    pub limit: Setting<Located<DefinedName>>,
    pub cost: Setting<RawCost>,
}

impl Decode for RawLimitUse {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Map(_) => RawCostedUse::decode(node, report)
                .map(|RawCostedUse { limit, cost, .. }| Self { limit, cost }),
            YamlValue::Scalar { .. } if !node.value.is_null() => {
                Located::decode(node, report).map(|name| Self {
                    limit: Setting::Valid(name),
                    cost: Setting::Absent,
                })
            }
            _ => {
                mismatch(
                    node,
                    "the name of a limit",
                    Some("write its name, or {limit: name, cost: 5}"),
                    report,
                );
                None
            }
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [Located::<DefinedName>::schema(definitions), RawCostedUse::schema(definitions)] })
    }
}

/// A use of a limit and its location.
pub struct CheckedUse {
    pub location: Location,
    pub limit_use: LimitUse,
}

/// The limits that a listener or a route names. `None`: a mistake was reported.
pub fn uses(
    setting: &Setting<Vec<RawLimitUse>>,
    limits: &NamedSection<Limit>,
    report: &mut Report,
) -> Option<Vec<CheckedUse>> {
    let raws = match setting {
        Setting::Absent => return Some(Vec::new()),
        Setting::Invalid => return None,
        Setting::Valid(raws) => raws,
    };
    let mut seen = HashSet::new();
    let mut uses = Vec::with_capacity(raws.len());
    for raw in raws {
        uses.extend(checked_use(raw, &mut seen, limits, report));
    }
    if uses.len() == raws.len() {
        Some(uses)
    } else {
        None
    }
}

/// A use of a limit that is none of those `seen` before. `None`: a mistake was reported.
fn checked_use(
    raw: &RawLimitUse,
    seen: &mut HashSet<Arc<str>>,
    limits: &NamedSection<Limit>,
    report: &mut Report,
) -> Option<CheckedUse> {
    let name = raw.limit.valid()?;
    if !seen.insert(name.value.0.clone()) {
        let problem = ValueProblem::new(format!("{} is listed twice", quote(&name.value.0)));
        report.mistake(
            &name.location,
            problem.hint("to count a request more than once, raise its cost: {limit: …, cost: 2}"),
        );
        return None;
    }
    let limit = limits.find(name, report)?;
    Some(CheckedUse {
        location: name.location.clone(),
        limit_use: limit_use(&raw.cost, limit, report)?,
    })
}

fn limit_use(
    setting: &Setting<RawCost>,
    limit: Arc<Limit>,
    report: &mut Report,
) -> Option<LimitUse> {
    let cost = setting.build(|raw| {
        let cost = cost::build(
            raw,
            &limit.algorithm,
            &format!("the burst of {}", quote(&limit.name)),
            report,
        )?;
        if let Some(burst) = smallest_burst(&limit) {
            let whose = format!("the smallest burst of the plans of {}", quote(&limit.name));
            cost::check_fixed(&cost, burst, &whose, raw.location(), report)?;
        }
        Some(cost)
    });
    Some(LimitUse { cost: cost?, limit })
}

/// The smallest burst of the plans of a limit, if it has plans.
fn smallest_burst(limit: &Limit) -> Option<NonZeroU64> {
    let plans = limit.plans.as_ref()?;
    let bursts = plans.all().map(|plan| plan.compiled().burst());
    NonZeroU64::new(bursts.min()?)
}

/// The parts of a request that a limit counts by, or selects plans by.
pub fn parts(limit: &Limit) -> impl Iterator<Item = &KeyPart> {
    let by = limit.plans.iter().map(|plans| &plans.by);
    limit.key.parts.iter().chain(by)
}

/// The member of the body that a limit counts or selects plans by, if there is one.
pub fn body_member(limit: &Limit) -> Option<&BodyMember> {
    for part in parts(limit) {
        if let KeyPart::Body(member) = part {
            return Some(member);
        }
    }
    None
}

/// The path parameters that a limit counts or selects plans by.
pub fn path_params(limit: &Limit) -> Vec<&Arc<str>> {
    let mut params = Vec::new();
    for part in parts(limit) {
        if let KeyPart::PathParam(name) = part {
            params.push(name);
        }
    }
    params
}

/// The part of an identity that a limit counts or selects plans by, as operators call it.
pub fn part_of_limit(limit: &Limit) -> Option<String> {
    part_of_identity(parts(limit))
}

/// The problem with a limit that counts by a part of an identity, in a place where requests have
/// none.
pub fn by_nobody(used: &CheckedUse, part: &str, place: &str) -> ValueProblem {
    let limit = quote(&used.limit_use.limit.name);
    ValueProblem::new(format!(
        "limit {limit} counts by {part}, and {place} authenticates nobody"
    ))
}
