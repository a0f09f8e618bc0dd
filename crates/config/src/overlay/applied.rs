//! An application over a file, as it is kept for the next revisions.
//!
//! The result is valid while file, application and node stay the same. Nothing in it depends on
//! other applications: a route belongs to one alone, and the names of limits and parts begin with
//! their application.

use std::sync::Arc;

use tollgate_limiter::limit::definition::Limit;

use crate::candidate::Candidate;
use crate::report::{Location, Mistake};
use tollgate_spec::route::Route;

/// An application over a file.
#[derive(Default)]
pub struct AppliedApplication {
    /// The node that it is for. `None`: any.
    pub node: Option<Arc<str>>,
    /// Whether it is another one on other nodes: a candidate acts on some of them.
    pub varies: bool,
    pub limits: Vec<Arc<Limit>>,
    pub candidates: Vec<Candidate>,
    pub routes: Vec<ChangedRoute>,
    /// Warnings about it, which are true for as long as the rest is.
    pub warnings: Vec<Mistake>,
}

/// A route of the file with the limits of its application.
pub struct ChangedRoute {
    /// The place of the route in the file.
    pub place: usize,
    pub whole: Arc<Route>,
    pub parts: Vec<CheckedPart>,
}

/// A part of a route, which is a route itself.
pub struct CheckedPart {
    pub location: Location,
    pub route: Arc<Route>,
}

impl AppliedApplication {
    /// Whether the result is valid on `node`.
    pub fn is_for(&self, node: Option<&Arc<str>>) -> bool {
        !self.varies || self.node.as_ref() == node
    }
}
