//! An application as it lies over a file without a mistake: what has come of it there, for the next revisions of the policies.
//!
//! It holds for as long as neither the file, nor the application, nor the node is another one. Nothing in it depends on other
//! applications: a route is of one alone, and the names of limits and parts begin with their application.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tollgate_limiter::limit::definition::Limit;

use super::application::CheckedApplication;
use super::limit_references::LimitReference;
use crate::config::candidate::Candidate;
use crate::config::check::KnownRoute;
use crate::config::report::{Location, Report};
use crate::config::settings::Config;
use crate::route::Route;

/// An application over a file, without a mistake and without a warning.
pub struct AppliedApplication {
    /// The node that it is for.
    node: Arc<str>,
    pub limits: Vec<Arc<Limit>>,
    pub candidates: Vec<Candidate>,
    /// The limits of whole routes of the file, by their names.
    pub whole_routes: Vec<(Arc<str>, Vec<LimitReference>)>,
    /// Parts of routes, by the route of the file that they are of.
    pub parts: Vec<(Arc<str>, KnownRoute)>,
    /// Bytes of routes that were copied for the parts.
    pub copied: usize,
}

/// What an application adds to a file, by name.
#[derive(Default)]
pub struct Additions {
    pub limits: Vec<String>,
    pub candidates: Vec<Candidate>,
    pub whole_routes: Vec<(Arc<str>, Vec<LimitReference>)>,
    /// Each with the route of the file that it is a part of.
    pub parts: Vec<(String, Arc<str>, Location)>,
    pub copied: usize,
    /// Pairs of a host and a path in all parts.
    pub pairs: usize,
}

/// What applications add on a node, those left out of which this is known.
pub struct NodeAdditions {
    pub node: Arc<str>,
    pub all: Vec<(Arc<CheckedApplication>, Additions)>,
}

/// The limits and routes of a configuration that were added, by name.
struct AddedParts<'a> {
    limits: HashMap<&'a str, &'a Arc<Limit>>,
    routes: HashMap<&'a str, &'a Arc<Route>>,
}

impl AppliedApplication {
    /// Whether this comes of the application on `node`, too. Candidates alone act on some nodes only.
    pub fn is_for(&self, node: Option<&Arc<str>>) -> bool {
        self.candidates.is_empty() || node == Some(&self.node)
    }

    /// `None`: something that was added is not there.
    fn of(additions: Additions, node: &Arc<str>, added: &AddedParts<'_>) -> Option<Self> {
        let Additions { limits, candidates, whole_routes, parts, copied, pairs: _ } = additions;
        let limits = limits.iter().map(|name| added.limits.get(&**name).map(|limit| Arc::clone(limit)));
        let part = |(name, of, location): (String, Arc<str>, Location)| {
            let route = Arc::clone(added.routes.get(&*name)?);
            Some((of, KnownRoute { location, route }))
        };
        Some(Self {
            node: node.clone(),
            limits: limits.collect::<Option<_>>()?,
            candidates,
            whole_routes,
            parts: parts.into_iter().map(part).collect::<Option<_>>()?,
            copied,
        })
    }
}

impl NodeAdditions {
    /// Keeps what has come of each application in `config`, unless a mistake was reported. Those with a warning are checked anew each
    /// time, to be warned of again.
    pub fn keep(self, config: &Config, report: &Report) {
        let Self { node, mut all } = self;
        if report.has_mistakes() {
            return;
        }
        all.retain(|(application, _)| !report.warns_of(&format!("applications.{}", application.name)));
        let limits: HashSet<&str> = all.iter().flat_map(|(_, one)| one.limits.iter().map(String::as_str)).collect();
        let routes: HashSet<&str> =
            all.iter().flat_map(|(_, one)| one.parts.iter().map(|(name, ..)| &**name)).collect();
        let of_limits = config.limits.iter().filter(|limit| limits.contains(&*limit.name));
        let of_routes = config.routes.iter().filter(|route| routes.contains(&*route.name));
        let added = AddedParts {
            limits: of_limits.map(|limit| (&*limit.name, limit)).collect(),
            routes: of_routes.map(|route| (&*route.name, route)).collect(),
        };
        for (application, additions) in all {
            if let Some(applied) = AppliedApplication::of(additions, &node, &added) {
                application.keep_applied(applied);
            }
        }
    }
}
