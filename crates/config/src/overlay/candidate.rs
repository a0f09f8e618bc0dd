//! A strategy's limits: the one that holds, and the candidate that is tried out beside it or in its
//! place.

use super::part;
use crate::candidate::{Candidate, CandidateBounds, CandidateTerms, Stage};
use crate::report::{Location, Report, ValueProblem, quote};
use crate::section::policies::candidate::{RawCandidate, RawCandidateBounds};
use crate::section::policies::document::RawStrategy;
use crate::yaml::decode::Setting;
use crate::yaml::node::{NodeEntry, YamlNode, YamlValue};

/// A limit that a strategy adds to those of the file.
pub struct StrategyLimit {
    pub name: String,
    pub at: Location,
    pub tree: YamlNode,
    /// The candidate whose limit this is.
    pub candidate: Option<Candidate>,
}

/// The name of a candidate's own limit.
pub fn candidate_name(limit: &str) -> String {
    format!("{limit}.candidate")
}

/// A strategy of an application, and where it is written.
pub struct StrategyPlace<'a> {
    pub application: &'a str,
    pub strategy: &'a str,
    /// The name of its limit.
    pub limit: String,
    pub at: &'a Location,
}

/// The limits that a strategy has on the `node` with this name. Without one, also its candidate for
/// whatever nodes: beside the limit, to be checked like it.
pub fn limits_of(
    place: StrategyPlace<'_>,
    raw: &RawStrategy,
    node: Option<&str>,
    report: &mut Report,
) -> Vec<StrategyLimit> {
    if let (Setting::Absent, Setting::Absent) = (&raw.limit, &raw.candidate) {
        let problem = ValueProblem::new(format!(
            "strategy {} has no limit: it limits nothing",
            quote(place.strategy)
        ));
        report.warning(
            place.at,
            problem.hint("write \"limit\", or take the strategy away"),
        );
    }
    let tried = candidate_limit(&place, raw, node, report);
    // On a node that tries it out, a candidate stands in the place of the limit that holds
    // elsewhere.
    let is_replaced = match &tried {
        Some(tried) => tried.name == place.limit,
        None => false,
    };
    let mut limits = Vec::new();
    if let Some(limit) = raw.limit.valid()
        && !is_replaced
    {
        limits.push(StrategyLimit {
            name: place.limit,
            at: place.at.clone(),
            tree: limit.0.clone(),
            candidate: None,
        });
    }
    limits.extend(tried);
    limits
}

/// The limit of a strategy's candidate. `None`: it has none on the `node`, or a mistake was
/// reported.
fn candidate_limit(
    place: &StrategyPlace<'_>,
    raw: &RawStrategy,
    node: Option<&str>,
    report: &mut Report,
) -> Option<StrategyLimit> {
    let raw = raw.candidate.valid()?;
    let stage = &raw.on.valid()?.stage;
    let limit = match (stage, node) {
        (Stage::Nodes(nodes), Some(node)) => {
            if !nodes.iter().any(|pattern| pattern.takes(node)) {
                return None;
            }
            place.limit.clone()
        }
        (Stage::Nodes(_), None) | (Stage::Shadow | Stage::Share(_), _) => {
            candidate_name(&place.limit)
        }
    };
    let terms = terms(raw, report);
    let tree = tree(raw, report)?;
    let candidate = Candidate {
        application: place.application.into(),
        strategy: place.strategy.into(),
        limit: limit.as_str().into(),
        stage: stage.clone(),
        terms: terms?,
    };
    Some(StrategyLimit {
        name: limit,
        at: raw.location.clone(),
        tree,
        candidate: Some(candidate),
    })
}

/// How the candidate is judged. `None`: a mistake was reported.
fn terms(raw: &RawCandidate, report: &mut Report) -> Option<CandidateTerms> {
    let bounds = raw.bounds.build(|raw| bounds(raw, report))?;
    let over = raw.over.value()?.0;
    let least = raw.least.value()?.0;
    let promote_after = raw.promote_after.build(|at| {
        let problem = match bounds {
            None => {
                ValueProblem::new("the candidate has no bounds: nothing would keep a bad one from becoming the limit")
                    .hint("give it \"bounds\", such as {denials: 5%, errors: 1%}")
            }
            Some(_) if at.value.0 < over => {
                ValueProblem::new("the candidate would become the limit before it was judged over a whole \"over\"")
                    .hint("write a time as long as \"over\", or a longer one")
            }
            Some(bounds) => {
                let is_canary = raw.on.valid().is_some_and(|on| matches!(on.stage, Stage::Nodes(_)));
                if is_canary && bounds.denials.is_some() {
                    let problem = ValueProblem::new(
                        "a canary of a tighter limit denies less than the limit will: other nodes fill the same buckets",
                    );
                    report.warning(&at.location, problem.hint("try it in shadow, or leave out \"promote_after\""));
                }
                return Some(at.value.0);
            }
        };
        report.mistake(&at.location, problem);
        None
    })?;
    Some(CandidateTerms {
        bounds: bounds.unwrap_or_default(),
        over,
        least,
        promote_after,
    })
}

fn bounds(raw: &RawCandidateBounds, report: &mut Report) -> Option<CandidateBounds> {
    let bounds = CandidateBounds {
        denials: raw.denials.build(|at| Some(at.value.hundredths()))?,
        errors: raw.errors.build(|at| Some(at.value.hundredths()))?,
        latency: raw.latency.build(|at| Some(at.value.0))?,
    };
    if bounds == CandidateBounds::default() {
        let problem = ValueProblem::new("the bounds are empty");
        report.mistake(
            &raw.location,
            problem.hint("write {denials: 5%, errors: 1%, latency: 500ms}, or some of them"),
        );
        return None;
    }
    Some(bounds)
}

/// The candidate's limit, with the share of keys that it acts on. `None`: a mistake was reported.
fn tree(raw: &RawCandidate, report: &mut Report) -> Option<YamlNode> {
    let on = raw.on.valid()?;
    let mut tree = raw.limit.valid()?.0.clone();
    let YamlValue::Map(entries) = &mut tree.value else {
        return None;
    };
    let share = match &on.stage {
        Stage::Nodes(_) => return Some(tree),
        Stage::Shadow => "0%",
        Stage::Share(share) => share,
    };
    if let Some(entry) = entries
        .iter()
        .find(|entry| entry.key == "enforce" || is_shadow(entry))
    {
        let problem = ValueProblem::new(format!(
            "\"on\" says where a candidate acts, and {} too",
            quote(&entry.key)
        ));
        report.mistake(
            &entry.key_location,
            problem.hint(format!("take {} away", quote(&entry.key))),
        );
        return None;
    }
    let value = part::text_node(share, &on.location);
    entries.push(NodeEntry {
        key: "enforce".to_owned(),
        key_location: on.location.clone(),
        value,
    });
    Some(tree)
}

fn is_shadow(entry: &NodeEntry) -> bool {
    entry.key == "on_limit"
        && matches!(&entry.value.value, YamlValue::Scalar { text, .. } if text == "shadow")
}

/// The name that a strategy's limit and a part of a route have.
pub fn joined_name(application: &str, name: &str) -> String {
    format!("{application}.{name}")
}
