//! The limits and routes that one application added to the file, kept so that the next revision
//! need not build them again.
//!
//! The result is valid while file, application and node stay the same. Nothing in it depends on
//! other applications: a route belongs to one alone, and the names of limits and parts begin with
//! their application.

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
    /// Whether the result is valid on `node`. Only candidates differ from node to node.
    pub fn is_for(&self, node: Option<&Arc<str>>) -> bool {
        self.candidates.is_empty() || node == Some(&self.node)
    }

    /// Looks up each addition by name in the configuration that was built. `None`: one is missing.
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
