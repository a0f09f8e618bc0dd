//! Limits and routes of policies that were checked with this file before, and are the same ones still.
//!
//! They are not built again, but stand among the others for whatever compares all of them.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_limiter::limit::definition::Limit;

use crate::config::report::Location;
use crate::route::Route;

/// What is known to be without mistakes by itself.
#[derive(Default)]
pub struct KnownParts {
    pub limits: Vec<Arc<Limit>>,
    /// Parts of routes, by the route of the file that they stand before.
    pub routes: HashMap<Arc<str>, Vec<KnownRoute>>,
}

/// A part of a route.
#[derive(Clone)]
pub struct KnownRoute {
    pub location: Location,
    pub route: Arc<Route>,
}
