//! The routes at work that go on with the next configuration, since nothing has changed of what
//! they are made of.
//!
//! A revision of policies leaves most routes as they are: the configuration has the very same ones.
//! Such a route is kept with its pipelines, its limits and its metrics.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_limiter::request::compiled_limit::LargestCosts;

use crate::config::Config;
use crate::gateway::{Gateway, RouteRuntime};
use crate::identity::api_key::ApiKeyTable;
use crate::route::Route;

/// The routes at work that may go on, by name.
#[derive(Default)]
pub struct KeptRoutes<'a> {
    by_name: HashMap<&'a str, &'a Arc<RouteRuntime>>,
    /// The configuration that they are of.
    was: Option<&'a Config>,
    costs: LargestCosts,
}

impl<'a> KeptRoutes<'a> {
    /// The routes of a gateway that may go on with `config`. None do if a part of the configuration
    /// is another one that any route is made of.
    pub fn of(before: Option<(&'a Gateway, &'a Config)>, config: &Config) -> Self {
        let Some((gateway, was)) = before.filter(|(_, was)| was.differs_in_routes_alone(config))
        else {
            return Self::default();
        };
        // Lines of the access log show limits by the list of all of them, which is another one now.
        let kept = gateway
            .routes
            .iter()
            .filter(|runtime| runtime.guard.metrics.log.is_none());
        let by_name = kept
            .map(|runtime| (&*runtime.target.route.name, runtime))
            .collect();
        Self {
            by_name,
            was: Some(was),
            costs: LargestCosts::over(was.limit_uses()),
        }
    }

    /// The route at work, if it is made of the same `route`, `costs` and keys of policies.
    pub fn find(
        &self,
        route: &Arc<Route>,
        costs: &LargestCosts,
        keys: Option<&Arc<ApiKeyTable>>,
    ) -> Option<Arc<RouteRuntime>> {
        let kept = self
            .by_name
            .get(&*route.name)
            .filter(|kept| Arc::ptr_eq(&kept.target.route, route))?;
        let same_costs = route
            .limits
            .iter()
            .all(|used| costs.agrees(&self.costs, &used.limit.name));
        let were = self
            .was?
            .policy_keys
            .as_ref()
            .map(|keys| keys.of(&route.name));
        let same_keys = match (&were, keys) {
            (Some(were), Some(keys)) => {
                Arc::ptr_eq(were, keys) || were.is_empty() && keys.is_empty()
            }
            (were, keys) => were.is_none() && keys.is_none(),
        };
        (same_costs && same_keys).then(|| Arc::clone(kept))
    }
}
