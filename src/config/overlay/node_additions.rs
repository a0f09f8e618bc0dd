//! The additions of applications to the file of a node, on the way to what is kept of them for the
//! next revisions.

use std::collections::HashSet;
use std::sync::Arc;

use super::application::CheckedApplication;
use super::applied::{AddedParts, AppliedApplication, PolicyAdditions};
use crate::config::report::Report;
use crate::config::settings::Config;

/// The additions of applications on a node, those left out of which this is known.
pub struct NodeAdditions {
    pub node: Arc<str>,
    pub all: Vec<(Arc<CheckedApplication>, PolicyAdditions)>,
}

impl NodeAdditions {
    /// Keeps what has come of each application in `config`, unless a mistake was reported.
    /// Applications with more warnings than are told are checked anew each time.
    pub fn keep(self, config: &Config, report: &Report) {
        let Self { node, all } = self;
        if report.has_mistakes() {
            return;
        }
        let limits: HashSet<&str> = all
            .iter()
            .flat_map(|(_, one)| one.limits.iter().map(String::as_str))
            .collect();
        let routes: HashSet<&str> = all
            .iter()
            .flat_map(|(_, one)| one.parts.iter().map(|(name, ..)| &**name))
            .collect();
        let of_limits = config
            .limits
            .iter()
            .filter(|limit| limits.contains(&*limit.name));
        let of_routes = config
            .routes
            .iter()
            .filter(|route| routes.contains(&*route.name));
        let added = AddedParts {
            limits: of_limits.map(|limit| (&*limit.name, limit)).collect(),
            routes: of_routes.map(|route| (&*route.name, route)).collect(),
        };
        for (application, additions) in all {
            let Some(warnings) = report.warnings_of(&format!("applications.{}", application.name))
            else {
                continue;
            };
            if let Some(applied) = AppliedApplication::of((additions, warnings), &node, &added) {
                application.keep_applied(applied);
            }
        }
    }
}
