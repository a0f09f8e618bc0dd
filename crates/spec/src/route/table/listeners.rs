//! The routes that each listener serves.
//!
//! Guarantees that no request finds a route which its listener does not serve. Where no route names
//! a listener, all share one table.

use std::sync::Arc;

use super::RouteTable;
use crate::route::Route;

/// A table for each listener.
pub struct ListenerTables(Vec<Arc<RouteTable>>);

impl ListenerTables {
    /// Builds the tables of the `listeners`, given by their names. `None`: a listener without a
    /// name, which serves the routes that name none. Each table finds a route by its place in
    /// `routes`, also if it has only some of them.
    pub fn build(routes: &[Arc<Route>], listeners: &[Option<Arc<str>>]) -> Self {
        let mut tables = Vec::with_capacity(listeners.len());
        if routes.iter().all(|route| route.listeners.is_empty()) {
            tables.resize(listeners.len(), Arc::new(RouteTable::build(routes)));
            return Self(tables);
        }
        for listener in listeners {
            let all = routes.iter().enumerate();
            let served = all.filter(|(_, route)| route.is_served_by(listener.as_deref()));
            tables.push(Arc::new(RouteTable::of(served)));
        }
        Self(tables)
    }

    /// The table of the listener at this place among those given.
    pub fn table(&self, listener: usize) -> &RouteTable {
        &self.0[listener]
    }
}

/// Whether some listener serves both of two routes, given by the names that each lists. Empty: all
/// listeners do.
pub fn shares_listener(one: &[Arc<str>], other: &[Arc<str>]) -> bool {
    one.is_empty() || other.is_empty() || one.iter().any(|name| other.contains(name))
}
