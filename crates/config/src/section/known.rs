//! Limits and routes of policies that were checked before.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_limiter::limit::definition::Limit;

use crate::report::Location;
use tollgate_spec::route::Route;

/// The parts of policies that are known.
#[derive(Default)]
pub struct KnownParts {
    /// Limits that have no mistake by themselves.
    pub limits: Vec<Arc<Limit>>,
    /// Parts of routes, by the route of the file that they go before.
    pub routes: HashMap<Arc<str>, Vec<KnownRoute>>,
    /// The route that a part in the tree is of, by name.
    pub part_of: HashMap<String, Arc<str>>,
}

/// A part of a route.
#[derive(Clone)]
pub struct KnownRoute {
    pub location: Location,
    pub route: Arc<Route>,
}
