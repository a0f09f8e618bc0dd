//! The limits of an application's strategies on a node, read as limits of the file are.

use std::collections::HashMap;

use super::application::CheckedApplication;
use super::application::limit_rules::LimitRules;
use super::base::Base;
use super::candidate::{self, candidate_name, joined_name};
use super::limit_work::LimitWork;
use crate::candidate::{Candidate, Stage};
use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::text::DefinedName;
use crate::section::common::named::NamedSection;
use crate::section::limit::definition::RawLimit;
use crate::section::policies::document::RawStrategy;
use crate::section::policies::strategy_limit::RawStrategyLimit;
use crate::yaml::collection::MappingEntry;
use crate::yaml::decode::Setting;
use tollgate_limiter::limit::definition::Limit;

/// A limit that a strategy adds to those of the file.
pub struct StrategyLimit {
    pub name: String,
    pub raw: RawLimit,
    pub work: LimitWork,
    /// The candidate whose limit this is.
    pub candidate: Option<Candidate>,
}

/// The names of limits that are taken.
pub struct LimitNames<'a> {
    file: &'a NamedSection<Limit>,
    taken: HashMap<String, Location>,
}

impl<'a> LimitNames<'a> {
    pub fn new(file: &'a NamedSection<Limit>) -> Self {
        Self {
            file,
            taken: HashMap::new(),
        }
    }

    /// Takes the names that the limits of a strategy may ever have, so that on no node a limit of
    /// the file is mistaken for one of them. `false`: one is taken already, which is reported.
    fn take(&mut self, name: &str, at: &Location, report: &mut Report) -> bool {
        let names = [name.to_owned(), candidate_name(name)];
        for name in &names {
            let Some(first) = self.file.location(name).or_else(|| self.taken.get(name)) else {
                continue;
            };
            let place = first.line_beside(at);
            let problem = ValueProblem::new(format!(
                "there is a limit {} already, on {place}",
                quote(name)
            ));
            report.mistake(at, problem.hint("give the strategy another name"));
            return false;
        }
        self.taken.extend(names.map(|name| (name, at.clone())));
        true
    }
}

/// The strategies of an application, over a file.
pub struct StrategyLimits<'a> {
    application: &'a CheckedApplication,
    base: &'a Base<'a>,
    rules: LimitRules<'a>,
}

impl<'a> StrategyLimits<'a> {
    pub fn new(application: &'a CheckedApplication, base: &'a Base<'a>) -> Self {
        Self {
            application,
            base,
            rules: LimitRules::new(application),
        }
    }

    /// The limits that a strategy has on the node, except those with a mistake, which is reported.
    /// Where any node is meant, also its candidate for whatever nodes: beside the limit, to be
    /// checked like it.
    pub fn read(
        &self,
        strategy: &MappingEntry<DefinedName, RawStrategy>,
        raw: &RawStrategy,
        names: &mut LimitNames<'_>,
        report: &mut Report,
    ) -> Vec<StrategyLimit> {
        let at = &strategy.location;
        let name = joined_name(&self.application.name, &strategy.text);
        let is_free = names.take(&name, at, report);
        if let (Setting::Absent, Setting::Absent) = (&raw.limit, &raw.candidate) {
            let problem = ValueProblem::new(format!(
                "strategy {} has no limit: it limits nothing",
                quote(&strategy.text)
            ));
            report.warning(
                at,
                problem.hint("write \"limit\", or take the strategy away"),
            );
        }
        let tried = self.candidate(&strategy.text, &name, raw, report);
        // On a node that tries it out, a candidate stands in the place of the limit that holds
        // elsewhere.
        let is_replaced = match &tried {
            Some(tried) => tried.name == name,
            None => false,
        };
        let mut limits = Vec::new();
        if !is_replaced && let Some(limit) = raw.limit.valid() {
            limits.extend(self.limit(limit, name, report));
        }
        limits.extend(tried);
        limits.retain(|limit| is_free && is_short(&limit.name, at, report));
        limits
    }

    fn limit(
        &self,
        written: &RawStrategyLimit,
        name: String,
        report: &mut Report,
    ) -> Option<StrategyLimit> {
        let raw = written.read(self.base.limit_defaults, report)?;
        self.rules.check(written, &raw, report);
        Some(StrategyLimit {
            name,
            work: LimitWork::new(written, &raw),
            raw,
            candidate: None,
        })
    }

    /// The limit of a strategy's candidate, where `name` is that of its limit. `None`: it has none
    /// on the node, or a mistake was reported.
    fn candidate(
        &self,
        strategy: &str,
        name: &str,
        raw: &RawStrategy,
        report: &mut Report,
    ) -> Option<StrategyLimit> {
        let raw = raw.candidate.valid()?;
        let on = raw.on.valid()?;
        let name = match (&on.stage, self.base.node) {
            (Stage::Nodes(nodes), Some(node)) => {
                if !nodes.iter().any(|pattern| pattern.takes(node)) {
                    return None;
                }
                name.to_owned()
            }
            (Stage::Nodes(_), None) | (Stage::Shadow | Stage::Share(_), _) => candidate_name(name),
        };
        let terms = candidate::terms(raw, report);
        let written = raw.limit.valid()?;
        candidate::check_stage(on, written, report)?;
        let mut limit = self.limit(written, name, report)?;
        candidate::act_on(on, &mut limit.raw);
        limit.candidate = Some(Candidate {
            application: self.application.name.as_str().into(),
            strategy: strategy.into(),
            limit: limit.name.as_str().into(),
            stage: on.stage.clone(),
            terms: terms?,
        });
        Some(limit)
    }
}

/// Whether a joined name may be that of a limit or a route, which is reported otherwise.
pub fn is_short(name: &str, at: &Location, report: &mut Report) -> bool {
    if name.len() <= DefinedName::LONGEST {
        return true;
    }
    let problem = ValueProblem::new(format!(
        "together with its application it is called {}, over {} bytes",
        quote(name),
        DefinedName::LONGEST
    ));
    report.mistake(at, problem.hint("shorten one of the two names"));
    false
}
