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

use super::kept_routes::KeptRoutes;
use crate::config::{Config, ListenerConfig};
use crate::gateway::access_log::RouteLog;
use crate::gateway::answer::compression::Compression;
use crate::gateway::body_keys::BodyKeys;
use crate::gateway::listener_rules::ListenerRules;
use crate::gateway::maintenance::RouteMaintenance;
use crate::gateway::route_metrics::RouteMetrics;
use crate::gateway::steps::Pipeline;
use crate::gateway::steps::answer_rules::AnswerRules;
use crate::gateway::steps::body_bound::BodyBound;
use crate::gateway::steps::cors::CrossOrigin;
use crate::gateway::steps::identity::Authentication;
use crate::gateway::steps::networks::ClientNetworks;
use crate::gateway::steps::rate_limit::WorkerLimiter;
use crate::gateway::steps::request_fields::RequestChanges;
use crate::gateway::steps::shed::RequestBound;
use crate::gateway::{Gateway, RouteGuard, RouteRuntime, RouteTarget, UNROUTED, Upstreams};
use crate::identity::api_key::ApiKeyTable;
use crate::identity::credential::CredentialPlace;
use crate::identity::route::RouteAuthenticators;
use crate::identity::spec::AuthenticatorSpec;
use crate::identity::{Authenticators, NamedAuthenticator};
use crate::observe::access_log::AccessLog;
use crate::proxy::Mirror;
use crate::route::error_pages::ErrorPages;
use crate::route::fields::FieldChanges;
use crate::route::table::RouteTable;
use crate::route::{Action, Route};
use crate::upstream::{Upstream, UpstreamSpec};

/// Assembles the gateway that `config` describes. Upstreams that are the same as `before` keep
/// their state, and routes that are the same go on.
///
/// # Errors
/// When a limit's rate or burst is out of bounds, which those of a checked configuration are not.
pub fn gateway(
    config: &Config,
    access_log: Option<&AccessLog>,
    before: Option<(&Gateway, &Config)>,
) -> Result<Gateway, QuotaError> {
    let kept = KeptRoutes::of(before, config);
    let before = before.map(|(gateway, _)| gateway);
    let upstreams = upstreams(config, before);
    let authenticators = authenticators(config, before);
    let costs = LargestCosts::over(config.limit_uses());
    let new_states = || Arc::new(LimitStates::watching_denials());
    let states = before.map_or_else(new_states, |before| before.limit_states.clone());
    let body_memory = before.map_or_else(Arc::default, |before| before.body_memory.clone());
    body_memory.bound(config.body_keys.max_memory, config.body_keys.max_body);
    let with_tunnels = config.tunnels_count;
    let max_requests = config
        .max_requests
        .map(|max| RequestBound { max, with_tunnels });
    let unidentified = |listener: &ListenerConfig| {
        let uses = listener.limits.iter().filter(|used| !needs_identity(used));
        let rules = RuleSet::new(uses, &costs, &states, config.legacy_headers)?;
        Ok::<_, QuotaError>((!rules.is_empty()).then(|| Arc::new(rules)))
    };
    let unidentified = config
        .listeners
        .iter()
        .map(unidentified)
        .collect::<Result<Vec<_>, QuotaError>>()?;
    let unrouted = Arc::default();
    let of_listeners: Vec<_> = config
        .listeners
        .iter()
        .map(|listener| asked(&authenticators, &listener.authenticate, Some(&unrouted)))
        .collect();
    let catalog = Arc::new(Catalog::new(&config.limits, &costs, &states.plans)?);
    let logged = |route: Option<&Route>| {
        let log = access_log.filter(|_| route.is_none_or(|route| route.is_logged))?;
        Some(RouteLog {
            log: log.clone(),
            limits: catalog.clone(),
        })
    };
    let guard = |name: Arc<str>,
                 limits: &[LimitUse],
                 route: Option<&Route>,
                 keys: Option<&Arc<ApiKeyTable>>| {
        let own = route
            .and_then(|route| route.authenticate.as_deref())
            .map(|names| asked(&authenticators, names, keys));
        let asked_by = |of_listener: &Asked| match &own {
            Some(own) => own.clone(),
            None => of_listener
                .as_ref()
                .map(|of_listener| of_listener.on_route(keys)),
        };
        let asked: Vec<Asked> = of_listeners.iter().map(asked_by).collect();
        let maintenance = route.and_then(|route| maintenance(config, route, before));
        let body_keys = BodyKeys::of(limits, &name, config.body_keys, &body_memory).map(Arc::new);
        // Clients whom nobody knows are not counted all together: the listener's limits by identity
        // pass them over.
        let rules = config
            .listeners
            .iter()
            .zip(&asked)
            .map(|(listener, asked)| {
                let of_listener = listener
                    .limits
                    .iter()
                    .filter(|used| asked.is_some() || !needs_identity(used));
                RuleSet::new(
                    of_listener.chain(limits),
                    &costs,
                    &states,
                    config.legacy_headers,
                )
                .map(Arc::new)
            });
        let rules = rules.collect::<Result<Vec<_>, QuotaError>>()?;
        let pipeline = |(at, listener): (usize, &ListenerConfig)| {
            let (asked, rules) = (&asked[at], &rules[at]);
            let authentication = |authenticators| Authentication {
                authenticators,
                limits: unidentified[at].clone().map(rate_limit),
            };
            let own_fields = || fields_of_others(asked.as_deref(), &of_listeners);
            let credentials =
                RouteAuthenticators::removed_behind(asked.as_deref(), of_listeners[at].as_deref());
            Pipeline {
                whole_time: route.and_then(|route| route.answer_time.whole),
                cors: route.and_then(cross_origin),
                answer_rules: answer_rules(config, route),
                networks: ClientNetworks::new(
                    &listener.networks,
                    route.map(|route| &route.networks),
                ),
                maintenance: maintenance.clone(),
                authentication: asked.clone().map(authentication),
                request_bound: max_requests,
                body_keys: body_keys.clone(),
                rate_limit: (!rules.is_empty()).then(|| rate_limit(rules.clone())),
                body_bound: route.and_then(|route| route.max_body).map(BodyBound),
                request_changes: route.and_then(|route| {
                    request_changes(route, asked.as_deref(), (credentials, own_fields()))
                }),
                head_time: route.and_then(|route| route.answer_time.head),
            }
        };
        let pipelines = config.listeners.iter().enumerate().map(pipeline).collect();
        let unauthenticated = asked
            .iter()
            .map(|asked| Some(asked.as_ref()?.missing().clone()))
            .collect();
        let metrics = Arc::new(RouteMetrics::new(name, logged(route)));
        Ok::<_, QuotaError>(RouteGuard {
            pipelines,
            rules,
            metrics,
            maintenance,
            unauthenticated,
        })
    };
    let runtime = |route: &Arc<Route>| {
        let keys = config.policy_keys.as_ref().map(|keys| keys.of(&route.name));
        if let Some(same) = kept.find(route, &costs, keys.as_ref()) {
            return Ok(same);
        }
        let upstream = route
            .action
            .forward()
            .and_then(|forward| upstreams.get(&forward.upstream).cloned());
        let mirror = mirror(route, &upstreams);
        let guard = guard(
            route.name.clone(),
            &route.limits,
            Some(route),
            keys.as_ref(),
        )?;
        let timed = timed_specs(config, route, &upstreams);
        let follows_attempts = route.retry.is_some() || guard.metrics.log.is_some();
        let target = RouteTarget {
            route: route.clone(),
            upstream,
            mirror,
            timed,
            follows_attempts,
        };
        Ok::<_, QuotaError>(Arc::new(RouteRuntime { target, guard }))
    };
    Ok(Gateway {
        table: RouteTable::build(&config.routes),
        routes: config
            .routes
            .iter()
            .map(runtime)
            .collect::<Result<_, _>>()?,
        upstreams,
        authenticators: authenticators.clone(),
        limits: catalog.clone(),
        trusted_proxies: config.trusted_proxies.clone(),
        listeners: config.listeners.iter().map(listener_rules).collect(),
        access_log: access_log.cloned(),
        unrouted: guard(UNROUTED.into(), &[], None, Some(&unrouted))?,
        limit_states: states.clone(),
        body_memory: body_memory.clone(),
        panics: counter!("tollgate_panics_total"),
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
    let start = |spec| {
        AccessLog::start(spec, running)
            .with_context(|| format!("cannot open the access log ({})", spec.to))
    };
    config.access_log.as_ref().map(start).transpose()
}

/// Whether a limit counts by who the client is.
fn needs_identity(used: &LimitUse) -> bool {
    used.limit
        .key
        .parts
        .iter()
        .any(|part| matches!(part, KeyPart::Identity(_)))
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
    let pages = error_pages(config, route);
    let compression =
        route.and_then(|route| Some(Compression::new(route.compression.as_ref()?, &route.name)));
    let fields = route.and_then(|route| used(&route.response_fields));
    AnswerRules {
        fields,
        error_pages: pages.cloned(),
        compression,
    }
    .non_empty()
}

/// The pages in place of errors, for requests of the route, or of none.
fn error_pages<'a>(config: &'a Config, route: Option<&'a Route>) -> Option<&'a Arc<ErrorPages>> {
    route
        .and_then(|route| route.error_pages.as_ref())
        .or(config.error_pages.as_ref())
}

/// The maintenance of `route`, if there is one. It goes on from that of the route `before`.
fn maintenance(
    config: &Config,
    route: &Route,
    before: Option<&Gateway>,
) -> Option<Arc<RouteMaintenance>> {
    let spec = route.maintenance.as_ref()?;
    let mut running = before
        .iter()
        .flat_map(|before| &before.routes)
        .filter(|running| running.target.route.name == route.name);
    let running = running
        .next()
        .and_then(|running| running.guard.maintenance.as_deref());
    Some(Arc::new(RouteMaintenance::new(
        &route.name,
        spec,
        error_pages(config, Some(route)),
        running,
    )))
}

/// Changes of fields, if there are any.
fn used(changes: &Arc<FieldChanges>) -> Option<Arc<FieldChanges>> {
    Some(changes.clone()).filter(|changes| !changes.is_empty())
}

/// The authenticators that are asked, if any are.
type Asked = Option<Arc<RouteAuthenticators>>;

/// The authenticators with these names, which take these keys of policies.
fn asked(running: &Authenticators, names: &[Arc<str>], keys: Option<&Arc<ApiKeyTable>>) -> Asked {
    if names.is_empty() {
        return None;
    }
    // Fewer than are listed would only refuse more: a route that lists any is never open.
    let listed = names.iter().filter_map(|name| running.get(name).cloned());
    Some(Arc::new(RouteAuthenticators::new(
        listed.collect(),
        keys.cloned(),
    )))
}

/// The fields that authenticators of listeners set for upstreams, where others are asked, or none.
/// An upstream that believes them must not get a client's.
fn fields_of_others(
    asked: Option<&RouteAuthenticators>,
    of_listeners: &[Asked],
) -> Vec<HeaderName> {
    let own = asked.map_or(&[][..], RouteAuthenticators::own_fields);
    let all = of_listeners
        .iter()
        .flatten()
        .flat_map(|asked| asked.own_fields());
    all.filter(|name| !own.contains(name)).cloned().collect()
}

/// The copies of the requests of `route`, if there are any.
fn mirror(route: &Route, upstreams: &Upstreams) -> Option<Arc<Mirror>> {
    let Action::Distribute(distribution) = &route.action else {
        return None;
    };
    let spec = distribution.mirror.clone()?;
    let upstream = upstreams.get(&spec.upstream)?.clone();
    Some(Arc::new(Mirror::new(
        &route.name,
        spec,
        upstream,
        distribution.forward.clone(),
    )))
}

/// The changes of the requests of `route`, if there are any.
fn request_changes(
    route: &Route,
    asked: Option<&RouteAuthenticators>,
    (credentials, own_fields): (Arc<[CredentialPlace]>, Vec<HeaderName>),
) -> Option<Arc<RequestChanges>> {
    let credential_fields = asked.map_or_else(Vec::new, RouteAuthenticators::credential_fields);
    let changes_nothing =
        credentials.is_empty() && credential_fields.is_empty() && own_fields.is_empty();
    let is_empty = route.request_fields.is_empty() && changes_nothing;
    let changes = RequestChanges {
        fields: route.request_fields.clone(),
        credentials,
        credential_fields,
        own_fields,
    };
    (!is_empty).then(|| Arc::new(changes))
}

/// The upstreams that the route's requests may go to, with the route's own time limits: its own
/// first, then those that a limit sends to. Empty: it has no time limits.
fn timed_specs(config: &Config, route: &Route, upstreams: &Upstreams) -> Vec<Arc<UpstreamSpec>> {
    if route.upstream_time.is_empty() {
        return Vec::new();
    }
    let own = route.action.upstreams();
    let of_listeners = config
        .listeners
        .iter()
        .flat_map(|listener| &listener.limits);
    let lesser = of_listeners
        .chain(&route.limits)
        .filter_map(|used| used.limit.on_limit.upstream());
    let mut specs: Vec<Arc<UpstreamSpec>> = Vec::new();
    for upstream in own
        .into_iter()
        .chain(lesser)
        .filter_map(|name| upstreams.get(name))
    {
        if specs.iter().all(|spec| spec.name != upstream.spec().name) {
            specs.push(Arc::new(
                upstream.spec().with_time_limits(&route.upstream_time),
            ));
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

fn authenticators(config: &Config, before: Option<&Gateway>) -> Authenticators {
    let of = |spec: &Arc<AuthenticatorSpec>| {
        let running = before.and_then(|before| before.authenticators.get(&spec.name));
        let same = running.filter(|running| *running.spec == **spec);
        let new = || {
            Arc::new(NamedAuthenticator::new(
                spec.clone(),
                running.map(|running| &**running),
            ))
        };
        same.cloned().unwrap_or_else(new)
    };
    config
        .authenticators
        .iter()
        .map(|spec| (spec.name.clone(), of(spec)))
        .collect()
}

fn upstreams(config: &Config, before: Option<&Gateway>) -> Upstreams {
    let of = |spec: &Arc<UpstreamSpec>| {
        let running = before.and_then(|before| before.upstreams.get(&spec.name));
        let same = running.filter(|running| **running.spec() == **spec);
        same.cloned().unwrap_or_else(|| {
            Arc::new(Upstream::new(
                spec.clone(),
                running.map(|running| &**running),
            ))
        })
    };
    config
        .upstreams
        .iter()
        .map(|spec| (spec.name.clone(), of(spec)))
        .collect()
}
