//! Assembles a [`Gateway`] from a configuration.

use std::sync::Arc;

use anyhow::Context;
use http::HeaderName;
use metrics::counter;
use tollgate_limiter::layer::RateLimitLayer;
use tollgate_limiter::limit::algorithm::QuotaError;
use tollgate_limiter::limit::definition::LimitUse;
use tollgate_limiter::limit::key::KeyPart;
use tollgate_limiter::request::catalog::Catalog;
use tollgate_limiter::request::compiled_limit::LargestCosts;
use tollgate_limiter::request::rule::LimitStates;
use tollgate_limiter::request::rule_set::RuleSet;

use super::kept_routes::{KeptRoutes, RunningGateway};
use tollgate_config::{Config, ListenerConfig};
use tollgate_gateway::access_log::RouteLog;
use tollgate_gateway::answer::compression::Compression;
use tollgate_gateway::body_keys::BodyKeys;
use tollgate_gateway::listener_rules::ListenerRules;
use tollgate_gateway::maintenance::RouteMaintenance;
use tollgate_gateway::observe::access_log::AccessLog;
use tollgate_gateway::route_metrics::RouteMetrics;
use tollgate_gateway::steps::Pipeline;
use tollgate_gateway::steps::answer_rules::AnswerRules;
use tollgate_gateway::steps::body_bound::BodyBound;
use tollgate_gateway::steps::cors::CrossOrigin;
use tollgate_gateway::steps::identity::Authentication;
use tollgate_gateway::steps::networks::ClientNetworks;
use tollgate_gateway::steps::rate_limit::WorkerLimiter;
use tollgate_gateway::steps::request_fields::RequestChanges;
use tollgate_gateway::steps::shed::RequestBound;
use tollgate_gateway::{Gateway, RouteGuard, RouteRuntime, RouteTarget, UNROUTED, Upstreams};
use tollgate_identity::api_key::ApiKeyTable;
use tollgate_identity::route::RouteAuthenticators;
use tollgate_identity::{Authenticators, NamedAuthenticator};
use tollgate_proxy::Mirror;
use tollgate_proxy::upstream::{Upstream, UpstreamSpec};
use tollgate_spec::route::error_pages::ErrorPages;
use tollgate_spec::route::table::listeners::ListenerTables;
use tollgate_spec::route::{Action, Route};
use tollgate_wire::body_memory::BodyMemory;

/// Assembles the gateway that `config` describes. Upstreams that are the same in the `running`
/// gateway keep their state, and routes that are the same go on.
///
/// # Errors
/// When a limit's rate or burst is out of bounds, which those of a checked configuration are not.
pub fn gateway(
    config: &Config,
    access_log: Option<&AccessLog>,
    running: Option<RunningGateway<'_>>,
) -> Result<Gateway, QuotaError> {
    let shared = RouteParts::new(config, access_log, running)?;
    let kept = KeptRoutes::new(running, config);
    let mut routes = Vec::with_capacity(config.routes.len());
    for route in &config.routes {
        routes.push(shared.route_runtime(route, &kept)?);
    }
    let names = config.listeners.iter().map(|one| one.name.clone());
    let names: Vec<_> = names.collect();
    Ok(Gateway {
        tables: ListenerTables::build(&config.routes, &names),
        routes,
        unrouted: shared.guard(None, Some(&shared.no_keys))?,
        listeners: config.listeners.iter().map(listener_rules).collect(),
        trusted_proxies: config.trusted_proxies.clone(),
        access_log: access_log.cloned(),
        panics: counter!("tollgate_panics_total"),
        upstreams: shared.upstreams,
        authenticators: shared.authenticators,
        limits: shared.catalog,
        limit_states: shared.states,
        body_memory: shared.body_memory,
    })
}

/// The access log that `config` asks for. A `running` one goes on where that writes to the same
/// destination.
///
/// # Errors
/// When its file cannot be opened, or its thread cannot be started.
pub fn access_log(
    config: &Config,
    running: Option<&AccessLog>,
) -> anyhow::Result<Option<AccessLog>> {
    let Some(spec) = &config.access_log else {
        return Ok(None);
    };
    let log = AccessLog::start(spec, running)
        .with_context(|| format!("cannot open the access log ({})", spec.to))?;
    Ok(Some(log))
}

/// The parts of a gateway that all of its routes are assembled from.
struct RouteParts<'a> {
    config: &'a Config,
    access_log: Option<&'a AccessLog>,
    before: Option<&'a Gateway>,
    upstreams: Upstreams,
    authenticators: Authenticators,
    costs: LargestCosts,
    states: Arc<LimitStates>,
    catalog: Arc<Catalog>,
    body_memory: Arc<BodyMemory>,
    max_requests: Option<RequestBound>,
    /// The keys of policies for requests without a route: none.
    no_keys: Arc<ApiKeyTable>,
    listeners: Vec<ListenerParts<'a>>,
}

/// The parts of one listener that its routes are assembled from.
struct ListenerParts<'a> {
    config: &'a ListenerConfig,
    /// The authenticators of routes that name none.
    authenticators: OptionalAuthenticators,
    /// The limits of clients whom no authenticator knows, if there are any.
    unidentified: Option<Arc<RuleSet>>,
}

/// The authenticators that requests meet, if they meet any.
type OptionalAuthenticators = Option<Arc<RouteAuthenticators>>;

/// The parts that a route has alike behind each listener. Requests without a route have them too.
struct Requests<'a> {
    route: Option<&'a Route>,
    maintenance: Option<Arc<RouteMaintenance>>,
    body_keys: Option<Arc<BodyKeys>>,
}

impl<'a> RouteParts<'a> {
    fn new(
        config: &'a Config,
        access_log: Option<&'a AccessLog>,
        running: Option<RunningGateway<'a>>,
    ) -> Result<Self, QuotaError> {
        let before = running.map(|running| running.gateway);
        let costs = LargestCosts::over(config.limit_uses());
        let states = match before {
            Some(before) => before.limit_states.clone(),
            None => Arc::new(LimitStates::watching_denials()),
        };
        let body_memory = before.map_or_else(Arc::default, |before| before.body_memory.clone());
        body_memory.bound(config.body_keys.max_memory, config.body_keys.max_body);
        let mut parts = Self {
            config,
            access_log,
            before,
            upstreams: upstreams(config, before),
            authenticators: authenticators(config, before),
            catalog: Arc::new(Catalog::new(&config.limits, &costs, &states.plans)?),
            costs,
            states,
            body_memory,
            max_requests: config.max_requests.map(|max| RequestBound {
                max,
                with_tunnels: config.tunnels_count,
            }),
            no_keys: Arc::default(),
            listeners: Vec::with_capacity(config.listeners.len()),
        };
        for listener in &config.listeners {
            let listener = parts.listener(listener)?;
            parts.listeners.push(listener);
        }
        Ok(parts)
    }

    fn listener(&self, config: &'a ListenerConfig) -> Result<ListenerParts<'a>, QuotaError> {
        let unidentified = self.rules(config.limits.iter().filter(|used| !needs_identity(used)))?;
        Ok(ListenerParts {
            config,
            authenticators: self.authenticators(&config.authenticate, Some(&self.no_keys)),
            unidentified: non_empty(unidentified),
        })
    }

    /// The route at work, assembled anew unless it is one of those `kept`.
    fn route_runtime(
        &self,
        route: &Arc<Route>,
        kept: &KeptRoutes<'_>,
    ) -> Result<Arc<RouteRuntime>, QuotaError> {
        let keys = self.config.policy_keys.as_ref();
        let keys = keys.map(|keys| keys.of(&route.name));
        if let Some(same) = kept.find(route, &self.costs, keys.as_ref()) {
            return Ok(same);
        }
        let guard = self.guard(Some(route), keys.as_ref())?;
        let target = RouteTarget {
            route: route.clone(),
            upstream: self.upstream(route),
            mirror: mirror(route, &self.upstreams),
            timed: timed_specs(self.config, route, &self.upstreams),
            follows_attempts: route.retry.is_some() || guard.metrics.log.is_some(),
        };
        Ok(Arc::new(RouteRuntime { target, guard }))
    }

    /// The upstream that the route forwards to, or the first of several.
    fn upstream(&self, route: &Route) -> Option<Arc<Upstream>> {
        let forward = route.action.forward()?;
        self.upstreams.get(&forward.upstream).cloned()
    }

    /// Everything in front of a route, or in front of the answer to requests without one.
    fn guard(
        &self,
        route: Option<&Route>,
        keys: Option<&Arc<ApiKeyTable>>,
    ) -> Result<RouteGuard, QuotaError> {
        let name = route.map_or_else(|| UNROUTED.into(), |route| route.name.clone());
        let limits = route.map_or(&[][..], |route| &route.limits);
        let requests = Requests {
            route,
            maintenance: route.and_then(|route| maintenance(self.config, route, self.before)),
            body_keys: self.body_keys(&name, limits),
        };
        let own_names = route.and_then(|route| route.authenticate.as_deref());
        let own = own_names.map(|names| self.authenticators(names, keys));

        let mut pipelines = Vec::new();
        let mut all_rules = Vec::new();
        let mut unauthenticated = Vec::new();
        for listener in &self.listeners {
            let authenticators = match &own {
                Some(own) => own.clone(),
                None => {
                    let authenticators = listener.authenticators.as_ref();
                    authenticators.map(|authenticators| authenticators.on_route(keys))
                }
            };
            // Clients whom nobody knows are not counted all together: the listener's limits by
            // identity pass them over.
            let is_known = authenticators.is_some();
            let of_listener = listener.config.limits.iter();
            let of_listener = of_listener.filter(|used| is_known || !needs_identity(used));
            let rules = Arc::new(self.rules(of_listener.chain(limits))?);
            let refusal = authenticators.as_ref().map(|asked| asked.missing().clone());
            pipelines.push(self.pipeline(&requests, listener, authenticators, &rules));
            all_rules.push(rules);
            unauthenticated.push(refusal);
        }
        Ok(RouteGuard {
            pipelines,
            rules: all_rules,
            metrics: Arc::new(RouteMetrics::new(name, self.route_log(route))),
            maintenance: requests.maintenance,
            unauthenticated,
        })
    }

    /// The pipeline of the requests behind one listener.
    fn pipeline(
        &self,
        requests: &Requests<'_>,
        listener: &ListenerParts<'_>,
        authenticators: OptionalAuthenticators,
        rules: &Arc<RuleSet>,
    ) -> Pipeline {
        let route = requests.route;
        let request_changes = route
            .and_then(|route| self.request_changes(route, authenticators.as_deref(), listener));
        Pipeline {
            whole_time: route.and_then(|route| route.answer_time.whole),
            cors: route.and_then(cross_origin),
            answer_rules: answer_rules(self.config, route),
            networks: ClientNetworks::new(
                &listener.config.networks,
                route.map(|route| &route.networks),
            ),
            maintenance: requests.maintenance.clone(),
            authentication: authenticators.map(|authenticators| Authentication {
                authenticators,
                limits: listener.unidentified.clone().map(rate_limit),
            }),
            request_bound: self.max_requests,
            body_keys: requests.body_keys.clone(),
            rate_limit: if rules.is_empty() {
                None
            } else {
                Some(rate_limit(rules.clone()))
            },
            body_bound: route.and_then(|route| route.max_body).map(BodyBound),
            request_changes,
            head_time: route.and_then(|route| route.answer_time.head),
        }
    }

    fn rules<'u>(&self, uses: impl Iterator<Item = &'u LimitUse>) -> Result<RuleSet, QuotaError> {
        RuleSet::new(uses, &self.costs, &self.states, self.config.legacy_headers)
    }

    fn body_keys(&self, route: &str, limits: &[LimitUse]) -> Option<Arc<BodyKeys>> {
        let bounds = self.config.body_keys;
        let keys = BodyKeys::new(limits, route, bounds, &self.body_memory);
        keys.map(Arc::new)
    }

    /// The authenticators with these names, which take these keys of policies.
    fn authenticators(
        &self,
        names: &[Arc<str>],
        keys: Option<&Arc<ApiKeyTable>>,
    ) -> OptionalAuthenticators {
        if names.is_empty() {
            return None;
        }
        // Fewer than are listed would only refuse more: a route that lists any is never open.
        let listed = names
            .iter()
            .filter_map(|name| self.authenticators.get(name));
        Some(Arc::new(RouteAuthenticators::new(
            listed.cloned().collect(),
            keys.cloned(),
        )))
    }

    /// The access log of a route, unless the route is left out of it.
    fn route_log(&self, route: Option<&Route>) -> Option<RouteLog> {
        if route.is_some_and(|route| !route.is_logged) {
            return None;
        }
        Some(RouteLog {
            log: self.access_log?.clone(),
            limits: self.catalog.clone(),
        })
    }

    /// The changes of the requests of `route` behind `listener`, if there are any.
    fn request_changes(
        &self,
        route: &Route,
        authenticators: Option<&RouteAuthenticators>,
        listener: &ListenerParts<'_>,
    ) -> Option<Arc<RequestChanges>> {
        let changes = RequestChanges {
            fields: route.request_fields.clone(),
            credentials: RouteAuthenticators::removed_behind(
                authenticators,
                listener.authenticators.as_deref(),
            ),
            credential_fields: match authenticators {
                Some(authenticators) => authenticators.credential_fields(),
                None => Vec::new(),
            },
            own_fields: self.fields_of_others(authenticators),
        };
        let is_empty = changes.fields.is_empty()
            && changes.credentials.is_empty()
            && changes.credential_fields.is_empty()
            && changes.own_fields.is_empty();
        if is_empty {
            return None;
        }
        Some(Arc::new(changes))
    }

    /// The fields that authenticators of listeners set for upstreams, where requests meet `own`
    /// authenticators or none. An upstream that believes these fields must not get a client's.
    fn fields_of_others(&self, own: Option<&RouteAuthenticators>) -> Vec<HeaderName> {
        let own = own.map_or(&[][..], RouteAuthenticators::own_fields);
        let mut others = Vec::new();
        for listener in &self.listeners {
            if let Some(authenticators) = &listener.authenticators {
                let fields = authenticators.own_fields().iter();
                others.extend(fields.filter(|name| !own.contains(name)).cloned());
            }
        }
        others
    }
}

fn non_empty(rules: RuleSet) -> Option<Arc<RuleSet>> {
    if rules.is_empty() {
        None
    } else {
        Some(Arc::new(rules))
    }
}

/// Whether a limit counts by who the client is.
fn needs_identity(used: &LimitUse) -> bool {
    let mut parts = used.limit.key.parts.iter();
    parts.any(|part| matches!(part, KeyPart::Identity(_)))
}

/// The limits of `rules`, as a step of a pipeline.
fn rate_limit(rules: Arc<RuleSet>) -> RateLimitLayer<WorkerLimiter> {
    RateLimitLayer::of_rules(WorkerLimiter, rules)
}

/// The pages of other origins that may read the answers of `route`.
fn cross_origin(route: &Route) -> Option<CrossOrigin> {
    let spec = route.cors.as_ref()?;
    Some(CrossOrigin::new(spec, &route.matches.methods))
}

/// The changes of the answers to requests of the route, or of none.
fn answer_rules(config: &Config, route: Option<&Route>) -> Option<AnswerRules> {
    let compression =
        route.and_then(|route| Some(Compression::new(route.compression.as_ref()?, &route.name)));
    let fields = route.map(|route| route.response_fields.clone());
    AnswerRules {
        fields: fields.filter(|changes| !changes.is_empty()),
        compression,
        error_pages: error_pages(config, route).cloned(),
    }
    .non_empty()
}

/// The pages in place of errors, for requests of the route, or of none.
fn error_pages<'a>(config: &'a Config, route: Option<&'a Route>) -> Option<&'a Arc<ErrorPages>> {
    let own = route.and_then(|route| route.error_pages.as_ref());
    own.or(config.error_pages.as_ref())
}

/// The maintenance of `route`, if there is one. It goes on from that of the route `before`.
fn maintenance(
    config: &Config,
    route: &Route,
    before: Option<&Gateway>,
) -> Option<Arc<RouteMaintenance>> {
    let spec = route.maintenance.as_ref()?;
    let mut running = before.iter().flat_map(|before| &before.routes);
    let running = running.find(|running| running.target.route.name == route.name);
    let maintenance = RouteMaintenance::new(
        &route.name,
        spec,
        error_pages(config, Some(route)),
        running.and_then(|running| running.guard.maintenance.as_deref()),
    );
    Some(Arc::new(maintenance))
}

/// The copies of the requests of `route`, if there are any.
fn mirror(route: &Route, upstreams: &Upstreams) -> Option<Arc<Mirror>> {
    let Action::Distribute(distribution) = &route.action else {
        return None;
    };
    let spec = distribution.mirror.clone()?;
    let upstream = upstreams.get(&spec.upstream)?.clone();
    let forward = distribution.forward.clone();
    Some(Arc::new(Mirror::new(&route.name, spec, upstream, forward)))
}

/// The upstreams that the route's requests may go to, with the route's own time limits: its own
/// first, then those that a limit sends to. Empty: it has no time limits.
fn timed_specs(config: &Config, route: &Route, upstreams: &Upstreams) -> Vec<Arc<UpstreamSpec>> {
    if route.upstream_time.is_empty() {
        return Vec::new();
    }
    let listeners = config.listeners.iter();
    let limits = listeners.flat_map(|listener| &listener.limits);
    let lesser = limits
        .chain(&route.limits)
        .filter_map(|used| used.limit.on_limit.upstream());
    let mut specs: Vec<Arc<UpstreamSpec>> = Vec::new();
    for name in route.action.upstreams().into_iter().chain(lesser) {
        let Some(upstream) = upstreams.get(name) else {
            continue;
        };
        let spec = upstream.spec();
        if specs.iter().all(|known| known.name != spec.name) {
            specs.push(Arc::new(spec.with_time_limits(&route.upstream_time)));
        }
    }
    specs
}

fn listener_rules(listener: &ListenerConfig) -> ListenerRules {
    ListenerRules {
        redirect_to_https: listener.redirect_to_https,
        hsts: listener.hsts.clone(),
        networks: listener.networks.clone(),
    }
}

/// The authenticators of `config`. Those that have not changed stay as they are, and others take
/// over what their predecessors know.
fn authenticators(config: &Config, before: Option<&Gateway>) -> Authenticators {
    let mut all = Authenticators::new();
    for spec in &config.authenticators {
        let running = before.and_then(|before| before.authenticators.get(&spec.name));
        let authenticator = match running {
            Some(running) if *running.spec == **spec => running.clone(),
            _ => Arc::new(NamedAuthenticator::new(
                spec.clone(),
                running.map(Arc::as_ref),
            )),
        };
        all.insert(spec.name.clone(), authenticator);
    }
    all
}

/// The upstreams of `config`. Those that have not changed stay as they are, and others take over
/// what their predecessors know.
fn upstreams(config: &Config, before: Option<&Gateway>) -> Upstreams {
    let mut all = Upstreams::new();
    for spec in &config.upstreams {
        let running = before.and_then(|before| before.upstreams.get(&spec.name));
        let upstream = match running {
            Some(running) if **running.spec() == **spec => running.clone(),
            _ => Arc::new(Upstream::new(spec.clone(), running.map(Arc::as_ref))),
        };
        all.insert(spec.name.clone(), upstream);
    }
    all
}
