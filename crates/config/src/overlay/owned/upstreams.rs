//! The upstreams that an application's limits may send requests to: those that it lists, so that
//! nobody who edits one leads its traffic past the logins and limits of another's routes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::overlay::application::CheckedApplication;
use crate::overlay::part::entry;
use crate::report::{Report, ValueProblem, quote};
use crate::section::policies::document::RawApplication;
use crate::yaml::node::{YamlNode, YamlValue};

/// The upstreams of each application.
pub struct OwnedUpstreams(HashMap<String, HashSet<String>>);

impl OwnedUpstreams {
    pub fn read(applications: &[Arc<CheckedApplication>]) -> Self {
        let mut all = HashMap::new();
        for application in applications {
            if let Some(raw) = &application.raw {
                all.insert(application.name.clone(), listed(raw));
            }
        }
        Self(all)
    }

    /// Reports that a limit of `application` sends requests to an upstream that is not among its
    /// own.
    pub fn check(&self, application: &str, limit: &YamlNode, report: &mut Report) {
        let Some(upstream) = degraded_upstream(limit) else {
            return;
        };
        let YamlValue::Scalar { text, .. } = &upstream.value else {
            return;
        };
        if let Some(own) = self.0.get(application)
            && own.contains(text)
        {
            return;
        }
        let name = quote(text);
        let application = quote(application);
        let problem = ValueProblem::new(format!(
            "upstream {name} is not among those of application {application}"
        ));
        let hint = format!(
            "write upstreams: [{text}] in the application; in a database only an admin may"
        );
        report.mistake(&upstream.location, problem.hint(hint));
    }
}

/// The upstream that a limit sends requests over it to.
fn degraded_upstream(limit: &YamlNode) -> Option<&YamlNode> {
    member(member(member(limit, "on_limit")?, "degrade")?, "upstream")
}

fn listed(raw: &RawApplication) -> HashSet<String> {
    match raw.upstreams.valid() {
        Some(list) => list.0.iter().map(|at| at.value.0.to_string()).collect(),
        None => HashSet::new(),
    }
}

fn member<'a>(node: &'a YamlNode, key: &str) -> Option<&'a YamlNode> {
    let YamlValue::Map(entries) = &node.value else {
        return None;
    };
    Some(&entry(entries, key)?.value)
}
