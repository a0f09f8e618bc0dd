//! A strategy's candidate: how it is judged, and where it acts.

use crate::candidate::{CandidateBounds, CandidateTerms, Stage};
use crate::report::{Report, ValueProblem, quote};
use crate::section::limit::definition::RawLimit;
use crate::section::policies::candidate::{RawCandidate, RawCandidateBounds, RawStage};
use crate::section::policies::strategy_limit::RawStrategyLimit;
use crate::yaml::decode::{Located, Scalar, Setting};
use crate::yaml::node::{NodeEntry, YamlValue};
use tollgate_limiter::limit::rollout::Rollout;

/// The name of a candidate's own limit.
pub fn candidate_name(limit: &str) -> String {
    format!("{limit}.candidate")
}

/// The name that a strategy's limit and a part of a route have.
pub fn joined_name(application: &str, name: &str) -> String {
    format!("{application}.{name}")
}

/// How the candidate is judged. `None`: a mistake was reported.
pub fn terms(raw: &RawCandidate, report: &mut Report) -> Option<CandidateTerms> {
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

/// Reports a candidate's limit that says itself where it acts. `None`: it does.
pub fn check_stage(on: &RawStage, limit: &RawStrategyLimit, report: &mut Report) -> Option<()> {
    let shadow = limit.written("on_limit").filter(|entry| is_shadow(entry));
    let Some(entry) = limit.written("enforce").or(shadow) else {
        return Some(());
    };
    if let Stage::Nodes(_) = on.stage {
        return Some(());
    }
    let problem = ValueProblem::new(format!(
        "\"on\" says where a candidate acts, and {} too",
        quote(&entry.key)
    ));
    report.mistake(
        &entry.key_location,
        problem.hint(format!("take {} away", quote(&entry.key))),
    );
    None
}

fn is_shadow(entry: &NodeEntry) -> bool {
    matches!(&entry.value.value, YamlValue::Scalar { text, .. } if text == "shadow")
}

/// Gives a candidate's limit the share of keys that it acts on.
pub fn act_on(on: &RawStage, limit: &mut RawLimit) {
    let share = match &on.stage {
        Stage::Nodes(_) => return,
        Stage::Shadow => Rollout::NONE,
        Stage::Share(share) => match Rollout::read(share) {
            Ok(share) => share,
            Err(_) => return,
        },
    };
    limit.enforce = Setting::Valid(Located {
        location: on.location.clone(),
        value: share,
    });
}
