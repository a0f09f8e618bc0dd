//! Applications over a file: the file's limits with theirs, and the file's routes with what they
//! change. All of it is data that was read before; nothing is read again.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_limiter::limit::units::show_size;

use super::application::{CheckedApplication, checked_applications};
use super::applied::{ChangedRoute, CheckedPart};
use super::apply::apply;
use super::base::Base;
use super::document::PolicySet;
use super::owned_routes::OwnedRoutes;
use super::strategy_limits::LimitNames;
use crate::report::{Report, ValueProblem};
use crate::section::defaults::LimitDefaults;
use crate::section::root::CheckedFile;
use crate::section::route::matching::ambiguity::{MatchedRoute, report_ambiguities};
use crate::section::route::matching::hidden::warn_of_hidden;
use crate::settings::Config;
use tollgate_identity::api_key::RouteKeys;
use tollgate_spec::route::{Action, Route};

/// Bytes of copied routes at most: parts of long routes would fill all memory.
const MOST_COPIED: usize = 256 << 20;

/// About how many bytes a route takes besides its lists, and each item of these.
const ROUTE_BYTES: usize = 1 << 10;
const ITEM_BYTES: usize = 64;

/// The policies of a document.
pub struct Overlay {
    applications: Vec<Arc<CheckedApplication>>,
    /// The name of the node that they are for. `None`: they have to fit any.
    node: Option<Arc<str>>,
}

impl Overlay {
    /// The overlay of applications, for the `node` with this name.
    pub fn new(applications: Vec<Arc<CheckedApplication>>, node: Option<Arc<str>>) -> Self {
        Self { applications, node }
    }

    /// Reads the document. `None`: a mistake was reported.
    pub fn read(set: PolicySet, report: &mut Report) -> Option<Self> {
        let PolicySet { name, root, node } = set;
        report.include(name);
        checked_applications(&root, report).map(|applications| Self::new(applications, node))
    }

    /// The configuration of the file with the applications over it. Their mistakes are reported.
    pub fn over(
        &self,
        file: &CheckedFile,
        limit_defaults: &LimitDefaults,
        report: &mut Report,
    ) -> Config {
        let base = Base {
            file,
            limit_defaults,
            owned: OwnedRoutes::read(&self.applications, &file.routes, report),
            node: self.node.as_ref(),
        };
        let mut names = LimitNames::new(&file.limits);
        let mut applied = Vec::with_capacity(self.applications.len());
        for application in &self.applications {
            applied.push(apply(application, &base, &mut names, report));
        }
        let mut limits = Vec::new();
        let mut candidates = Vec::new();
        let mut changed = HashMap::new();
        for application in &applied {
            limits.extend(application.limits.iter().cloned());
            candidates.extend(application.candidates.iter().cloned());
            for route in &application.routes {
                changed.insert(route.place, route);
            }
        }
        limit_defaults.check(limits.len(), report);
        limits.sort_by(|one, other| one.name.cmp(&other.name));
        let mut keys = RouteKeys::default();
        for application in &self.applications {
            application.add_keys(&mut keys);
        }
        let mut config = file.config.clone();
        config.limits.extend(limits);
        config.candidates = candidates;
        config.policy_keys = Some(keys);
        config.routes = routes(file, &changed, report);
        config
    }
}

/// The file's routes with what was changed of them. Ambiguities are reported.
fn routes(
    file: &CheckedFile,
    changed: &HashMap<usize, &ChangedRoute>,
    report: &mut Report,
) -> Vec<Arc<Route>> {
    let mut routes = Vec::new();
    let mut matched = Vec::new();
    let mut copied = CopiedRoutes::default();
    for (place, checked) in file.routes.iter().enumerate() {
        let change = changed.get(&place);
        if let Some(change) = change {
            // Before their route: of two expressions, the first takes a request.
            for part in &change.parts {
                copied.add(part, report);
                routes.push(part.route.clone());
                matched.push(MatchedRoute::new(&part.route, &part.location));
            }
        }
        routes.push(match change {
            Some(change) => change.whole.clone(),
            None => checked.route.clone(),
        });
        matched.push(MatchedRoute::new(&checked.route, &checked.location));
    }
    if routes.len() > file.config.routes.len() {
        report_ambiguities(&matched, report);
        warn_of_hidden(&matched, report);
    }
    routes
}

/// The memory of the copies of routes so far.
#[derive(Default)]
struct CopiedRoutes {
    bytes: usize,
}

impl CopiedRoutes {
    /// Adds a part, and reports the first that is too much.
    fn add(&mut self, part: &CheckedPart, report: &mut Report) {
        let was_within = self.bytes <= MOST_COPIED;
        self.bytes = self.bytes.saturating_add(size(&part.route));
        if was_within && self.bytes > MOST_COPIED {
            let most = show_size(MOST_COPIED as u64);
            let problem =
                ValueProblem::new(format!("the parts of the file's routes are over {most}"));
            let hint = "make fewer resources, or shorten their routes";
            report.mistake(&part.location, problem.hint(hint));
        }
    }
}

/// About how many bytes a copy of a route takes: long texts are shared, lists are not.
fn size(route: &Route) -> usize {
    let answer = match &route.action {
        Action::Respond(answer) => answer.headers.len(),
        Action::Forward(_) | Action::Distribute(_) | Action::Redirect(_) | Action::Echo => 0,
    };
    let conditions = route.matches.hosts.len() + route.matches.paths.len();
    let items = answer + conditions + route.networks.count() + route.limits.len();
    ROUTE_BYTES + ITEM_BYTES * items
}
