//! `limits` of a listener or a route: each defined, listed once, and with a cost that it can ever
//! grant.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::definition::{Limit, LimitUse};
use tollgate_limiter::limit::key::{BodyMember, KeyPart};
use tollgate_limiter::limit::plan::Plans;

use crate::config::report::{Location, Report, ValueProblem, quote};
use crate::config::scalar::text::DefinedName;
use crate::config::section::common::named::NamedSection;
use crate::config::section::limit::cost::{self, RawCost};
use crate::config::section::limit::key::part_of_identity;
use crate::config::yaml::decode::{Decode, Located, SchemaDefinitions, Setting, mismatch};
use crate::config::yaml::node::{YamlNode, YamlValue};
use crate::config::yaml::record::record;

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
    let mut seen = HashSet::new();
    let mut sound = !setting.is_invalid();
    let mut uses = Vec::new();
    for raw in setting.valid().into_iter().flatten() {
        let used = raw.limit.valid().and_then(|name| {
            let first = seen.insert(name.value.0.clone());
            check_first(name, first, report)?;
            let limit = limits.find(name, report)?;
            Some(CheckedUse {
                location: name.location.clone(),
                limit_use: limit_use(&raw.cost, limit, report)?,
            })
        });
        sound &= used.is_some();
        uses.extend(used);
    }
    if sound { Some(uses) } else { None }
}

fn check_first(name: &Located<DefinedName>, first: bool, report: &mut Report) -> Option<()> {
    if first {
        return Some(());
    }
    let problem = ValueProblem::new(format!("{} is listed twice", quote(&name.value.0)));
    report.mistake(
        &name.location,
        problem.hint("to count a request more than once, raise its cost: {limit: …, cost: 2}"),
    );
    None
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
        let smallest = limit
            .plans
            .iter()
            .flat_map(Plans::all)
            .map(|plan| plan.compiled().burst())
            .min();
        if let Some(burst) = smallest.and_then(NonZeroU64::new) {
            let whose = format!("the smallest burst of the plans of {}", quote(&limit.name));
            cost::check_fixed(&cost, burst, &whose, raw.location(), report)?;
        }
        Some(cost)
    });
    Some(LimitUse { cost: cost?, limit })
}

/// The member of the body that a limit counts or tells plans by, if there is one.
pub fn body_member(limit: &Limit) -> Option<&BodyMember> {
    limit
        .key
        .parts
        .iter()
        .chain(limit.plans.iter().map(|plans| &plans.by))
        .find_map(|part| match part {
            KeyPart::Body(member) => Some(member),
            _ => None,
        })
}

/// The path parameters that a limit counts or tells plans by.
pub fn path_params(limit: &Limit) -> impl Iterator<Item = &Arc<str>> {
    limit
        .key
        .parts
        .iter()
        .chain(limit.plans.iter().map(|plans| &plans.by))
        .filter_map(|part| match part {
            KeyPart::PathParam(name) => Some(name),
            _ => None,
        })
}

/// The part of an identity that a limit counts or tells plans by.
pub fn part_of_limit(limit: &Limit) -> Option<String> {
    part_of_identity(&limit.key.parts).or_else(|| {
        limit
            .plans
            .as_ref()
            .and_then(|plans| part_of_identity(std::slice::from_ref(&plans.by)))
    })
}

/// The problem with a limit that counts by a part of an identity, in a place where nobody has one.
pub fn by_nobody(used: &CheckedUse, part: &str, place: &str) -> ValueProblem {
    let limit = quote(&used.limit_use.limit.name);
    ValueProblem::new(format!(
        "limit {limit} counts by {part}, and {place} authenticates nobody"
    ))
}
