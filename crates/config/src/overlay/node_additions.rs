//! The additions of applications to the file of a node, until they are kept for the next revisions.

use std::collections::HashSet;
use std::sync::Arc;

use super::application::CheckedApplication;
use super::applied::{AddedParts, AppliedApplication, PolicyAdditions};
use crate::report::Report;
use crate::settings::Config;

/// The additions of applications on a node, without the applications whose results are kept
/// already.
pub struct NodeAdditions {
    pub node: Arc<str>,
    pub all: Vec<(Arc<CheckedApplication>, PolicyAdditions)>,
}

impl NodeAdditions {
    /// Keeps the result of each application in `config`, unless a mistake was reported.
    /// Applications with more warnings than are reported are checked anew each time.
    pub fn keep(self, config: &Config, report: &Report) {
        let Self { node, all } = self;
        if report.has_mistakes() {
            return;
        }
        let mut limit_names: HashSet<&str> = HashSet::new();
        let mut part_names: HashSet<&str> = HashSet::new();
        for (_, additions) in &all {
            limit_names.extend(additions.limits.iter().map(String::as_str));
            part_names.extend(additions.parts.iter().map(|(name, ..)| &**name));
        }
        let mut added = AddedParts::default();
        for limit in &config.limits {
            if limit_names.contains(&*limit.name) {
                added.limits.insert(&limit.name, limit);
            }
        }
        for route in &config.routes {
            if part_names.contains(&*route.name) {
                added.routes.insert(&route.name, route);
            }
        }
        for (application, additions) in all {
            let Some(warnings) = report.warnings_of(&format!("applications.{}", application.name))
            else {
                continue;
            };
            if let Some(applied) = AppliedApplication::new(additions, warnings, &node, &added) {
                application.keep_applied(applied);
            }
        }
    }
}
