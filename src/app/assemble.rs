//! From a configuration to a [`Gateway`] at work.

use std::sync::Arc;

use metrics::counter;
use tollgate_limiter::limit::algorithm_kind::QuotaError;
use tollgate_limiter::limit::spec::{LimitUse, OnLimit};
use tollgate_limiter::request::catalog::Catalog;
use tollgate_limiter::request::rule_set::{LargestCosts, RuleSet};

use crate::config::Config;
use crate::gateway::account::RouteMetrics;
use crate::gateway::queue::{Queue, Queues};
use crate::gateway::route::{Action, Route};
use crate::gateway::table::RouteTable;
use crate::gateway::{Gateway, Guard, Guarded, UNROUTED, Upstreams};
use crate::telemetry::AccessLog;
use crate::upstream::{Upstream, UpstreamSpec};

/// Puts `config` to work. Upstreams that are the same as `before` keep their state.
///
/// # Errors
/// When a limit's rate or burst is out of bounds, which a checked configuration's are not.
pub fn gateway(
    config: &Config,
    access_log: Option<AccessLog>,
    before: Option<&Gateway>,
) -> Result<Gateway, QuotaError> {
    let upstreams = upstreams(config, before);
    let uses = config.listeners.iter().flat_map(|listener| &listener.limits);
    let uses = uses.chain(config.routes.iter().flat_map(|route| &route.limits));
    let costs = LargestCosts::over(uses);
    let plans = before.map_or_else(Arc::default, |before| before.plans.clone());
    let guard = |name: Arc<str>, limits: &[LimitUse]| {
        let rules = config
            .listeners
            .iter()
            .map(|listener| RuleSet::new(listener.limits.iter().chain(limits), &costs, &plans, config.legacy_headers));
        let rules = rules.collect::<Result<_, QuotaError>>()?;
        Ok::<_, QuotaError>(Guard { rules, metrics: Arc::new(RouteMetrics::of(name)) })
    };
    let guarded = |route: &Arc<Route>| {
        let upstream = match &route.action {
            Action::Forward(forward) => upstreams.get(&forward.upstream).cloned(),
            Action::Respond(_) | Action::Echo => None,
        };
        Ok::<_, QuotaError>(Guarded {
            route: route.clone(),
            guard: guard(route.name.clone(), &route.limits)?,
            upstream,
        })
    };
    Ok(Gateway {
        table: RouteTable::build(&config.routes),
        routes: config.routes.iter().map(guarded).collect::<Result<_, _>>()?,
        upstreams,
        limits: Catalog::of(&config.limits, &costs, &plans)?,
        queues: queues(config, before),
        trusted_proxies: config.trusted_proxies.clone().into(),
        max_requests: config.max_requests,
        access_log,
        unrouted: guard(UNROUTED.into(), &[])?,
        plans,
        panics: counter!("tollgate_panics_total"),
    })
}

/// Those who wait when a reload comes go on waiting, and those who come then stand behind them.
fn queues(config: &Config, before: Option<&Gateway>) -> Queues {
    let waited_for = config.limits.iter().filter(|limit| matches!(limit.on_limit, OnLimit::Queue(_)));
    let kept = |name: &Arc<str>| before?.queues.get(name).cloned();
    let of = |name: &Arc<str>| kept(name).unwrap_or_else(|| Arc::new(Queue::of(name)));
    waited_for.map(|limit| (limit.name.clone(), of(&limit.name))).collect()
}

fn upstreams(config: &Config, before: Option<&Gateway>) -> Upstreams {
    let kept = |spec: &Arc<UpstreamSpec>| {
        let running = before?.upstreams.get(&spec.name)?;
        (**running.spec() == **spec).then(|| running.clone())
    };
    let of = |spec: &Arc<UpstreamSpec>| kept(spec).unwrap_or_else(|| Arc::new(Upstream::new(spec.clone())));
    config.upstreams.iter().map(|spec| (spec.name.clone(), of(spec))).collect()
}
