//! The upstreams that an application's limits may send requests to: those that it lists, so that
//! nobody who edits one leads its traffic past the logins and limits of another's routes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::config::file::policies::RawApplication;
use crate::config::overlay::application::CheckedApplication;
use crate::config::overlay::part::entry;
use crate::config::report::{Report, ValueProblem, quote};
use crate::config::yaml::node::{YamlNode, YamlValue};

/// The upstreams of each application.
pub struct OwnedUpstreams(HashMap<String, HashSet<String>>);

impl OwnedUpstreams {
    pub fn read(applications: &[Arc<CheckedApplication>]) -> Self {
        let listed = |raw: &RawApplication| {
            raw.upstreams
                .valid()
                .into_iter()
                .flat_map(|list| &list.0)
                .map(|at| at.value.0.to_string())
                .collect()
        };
        let all = applications
            .iter()
            .filter_map(|one| Some((one.name.clone(), listed(one.raw.as_ref()?))));
        Self(all.collect())
    }

    /// Reports that a limit of `application` sends requests to an upstream that is not among its
    /// own.
    pub fn check(&self, application: &str, limit: &YamlNode, report: &mut Report) {
        let Some(upstream) =
            member(limit, "on_limit").and_then(|on_limit| member(on_limit, "degrade"))
        else {
            return;
        };
        let Some(YamlNode {
            location,
            value: YamlValue::Scalar { text, .. },
        }) = member(upstream, "upstream")
        else {
            return;
        };
        if self
            .0
            .get(application)
            .is_some_and(|own| own.contains(text))
        {
            return;
        }
        let (name, application) = (quote(text), quote(application));
        let problem = ValueProblem::new(format!(
            "upstream {name} is not among those of application {application}"
        ));
        let hint = format!(
            "write upstreams: [{text}] in the application; in a database only an admin may"
        );
        report.mistake(location, problem.hint(hint));
    }
}

fn member<'a>(node: &'a YamlNode, key: &str) -> Option<&'a YamlNode> {
    let YamlValue::Map(entries) = &node.value else {
        return None;
    };
    entry(entries, key).map(|entry| &entry.value)
}
