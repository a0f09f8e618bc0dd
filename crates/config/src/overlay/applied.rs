//! An application as it lies over a file without a mistake: what has come of it there, for the next
//! revisions of the policies.
//!
//! The result holds for as long as neither the file, nor the application, nor the node is another
//! one. Nothing in it depends on other applications: a route is of one alone, and the names of
//! limits and parts begin with their application.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_limiter::limit::definition::Limit;

use super::limit_references::LimitReference;
use super::part_bounds::PartBounds;
use crate::candidate::Candidate;
use crate::report::{Location, Mistake};
use crate::section::known::KnownRoute;
use tollgate_spec::route::Route;

/// An application over a file, without a mistake.
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
    /// Warnings about it, which hold for as long as the rest does.
    pub warnings: Vec<Mistake>,
}

/// The additions of an application to a file, by name.
#[derive(Default)]
pub struct PolicyAdditions {
    pub limits: Vec<String>,
    pub candidates: Vec<Candidate>,
    pub whole_routes: Vec<(Arc<str>, Vec<LimitReference>)>,
    /// Each with the route of the file that it is a part of.
    pub parts: Vec<(String, Arc<str>, Location)>,
    pub copied: usize,
    pub bounds: PartBounds,
}

/// The limits and routes of a configuration that were added, by name.
#[derive(Default)]
pub struct AddedParts<'a> {
    pub limits: HashMap<&'a str, &'a Arc<Limit>>,
    pub routes: HashMap<&'a str, &'a Arc<Route>>,
}

impl AppliedApplication {
    /// Whether this comes of the application on `node`, too. Candidates alone act on some nodes
    /// only.
    pub fn is_for(&self, node: Option<&Arc<str>>) -> bool {
        self.candidates.is_empty() || node == Some(&self.node)
    }

    /// `None`: something that was added is not there.
    pub fn new(
        additions: PolicyAdditions,
        warnings: Vec<Mistake>,
        node: &Arc<str>,
        added: &AddedParts<'_>,
    ) -> Option<Self> {
        let PolicyAdditions {
            limits,
            candidates,
            whole_routes,
            parts,
            copied,
            bounds: _,
        } = additions;
        let mut known_limits = Vec::with_capacity(limits.len());
        for name in &limits {
            known_limits.push(Arc::clone(added.limits.get(&**name)?));
        }
        let mut known_parts = Vec::with_capacity(parts.len());
        for (name, of, location) in parts {
            let route = Arc::clone(added.routes.get(&*name)?);
            known_parts.push((of, KnownRoute { location, route }));
        }
        Some(Self {
            node: node.clone(),
            limits: known_limits,
            candidates,
            whole_routes,
            parts: known_parts,
            copied,
            warnings,
        })
    }
}
