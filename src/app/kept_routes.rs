//! The routes at work that go on with the next configuration, since nothing has changed of what
//! they are made of.
//!
//! A revision of policies leaves most routes as they are: the configuration has the very same ones.
//! Such a route is kept with its pipelines, its limits and its metrics.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_limiter::request::compiled_limit::LargestCosts;

use tollgate_config::Config;
use tollgate_gateway::{Gateway, RouteRuntime};
use tollgate_identity::api_key::ApiKeyTable;
use tollgate_spec::route::Route;

/// The gateway at work, and the configuration that it was assembled from.
#[derive(Clone, Copy)]
pub struct RunningGateway<'a> {
    pub gateway: &'a Gateway,
    pub config: &'a Config,
}

/// The routes at work that may go on, by name.
#[derive(Default)]
pub struct KeptRoutes<'a> {
    by_name: HashMap<&'a str, &'a Arc<RouteRuntime>>,
    /// The configuration that the routes were assembled from.
    config: Option<&'a Config>,
    costs: LargestCosts,
}

impl<'a> KeptRoutes<'a> {
    /// The routes of a gateway that may go on with `config`. None do if a part of the configuration
    /// is another one that any route is made of.
    pub fn new(running: Option<RunningGateway<'a>>, config: &Config) -> Self {
        let Some(running) = running else {
            return Self::default();
        };
        if !running.config.differs_in_routes_alone(config) {
            return Self::default();
        }
        let mut by_name = HashMap::new();
        for runtime in &running.gateway.routes {
            // Lines of the access log show limits by the list of all of them, which is another one
            // now.
            if runtime.guard.metrics.log.is_none() {
                by_name.insert(&*runtime.target.route.name, runtime);
            }
        }
        Self {
            by_name,
            config: Some(running.config),
            costs: LargestCosts::over(running.config.limit_uses()),
        }
    }

    /// The route at work, if it is made of the same `route`, `costs` and keys of policies.
    pub fn find(
        &self,
        route: &Arc<Route>,
        costs: &LargestCosts,
        keys: Option<&Arc<ApiKeyTable>>,
    ) -> Option<Arc<RouteRuntime>> {
        let kept = *self.by_name.get(&*route.name)?;
        let mut limits = route.limits.iter();
        let is_same = Arc::ptr_eq(&kept.target.route, route)
            && limits.all(|used| costs.agrees(&self.costs, &used.limit.name))
            && self.has_same_keys(route, keys);
        if is_same {
            Some(Arc::clone(kept))
        } else {
            None
        }
    }

    fn has_same_keys(&self, route: &Route, keys: Option<&Arc<ApiKeyTable>>) -> bool {
        let running = self.config.and_then(|config| config.policy_keys.as_ref());
        let running = running.map(|running| running.of(&route.name));
        match (&running, keys) {
            (Some(running), Some(keys)) => {
                Arc::ptr_eq(running, keys) || running.is_empty() && keys.is_empty()
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}
