//! The report of this node about itself, for the fleet and for operators.

use std::sync::Arc;

use tollgate_limiter::node::breaker::Breaker;

use super::shared::SharedState;
use tollgate_admin::config_status::ConfigStatus;
use tollgate_admin::fleet_nodes::OwnReport;
use tollgate_admin::views::node::NodeReport;
use tollgate_limiter::clock;
use tollgate_proxy::upstream::Upstream;

/// Names of upstreams in a report: it goes to the store with each heartbeat.
const MOST_NAMES: usize = 8;

/// The reports of this node, which is called `name`.
pub fn of_node(name: Arc<str>, shared: &SharedState, status: Arc<ConfigStatus>) -> OwnReport {
    let gateway = shared.gateway.clone();
    let fleet = shared.fleet.as_ref();
    let breaker: Option<Arc<Breaker>> = fleet.map(|fleet| fleet.node.breaker.clone());
    let share = fleet.map(|fleet| fleet.node.share.clone());
    let started_at = clock::unix_micros() / 1_000_000;
    Arc::new(move || {
        let last = status.last();
        let policies = status.policies();
        let mut report = NodeReport {
            name: name.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at,
            configured_at: last.applied_at,
            file_refused: !last.mistakes.is_empty(),
            revision: policies.as_ref().map(|reading| reading.running),
            refused_revision: policies.and_then(|reading| Some(reading.refused?.0)),
            store_up: breaker.as_ref().map(|breaker| !breaker.is_open()),
            heartbeat_error: share
                .as_ref()
                .and_then(|share| Some(share.heartbeat_error()?.to_string())),
            ..NodeReport::default()
        };
        for upstream in gateway.load().upstreams.values() {
            add(upstream, &mut report);
        }
        report.troubled_upstreams.sort();
        report.troubled_upstreams.truncate(MOST_NAMES);
        report
    })
}

fn add(upstream: &Upstream, report: &mut NodeReport) {
    let endpoints = upstream.endpoints();
    let in_service = endpoints
        .iter()
        .filter(|endpoint| endpoint.condition().is_in_service())
        .count();
    report.endpoints = report.endpoints.saturating_add(count(endpoints.len()));
    report.endpoints_in_service = report
        .endpoints_in_service
        .saturating_add(count(in_service));
    if in_service < endpoints.len() || endpoints.is_empty() {
        report
            .troubled_upstreams
            .push(upstream.spec().name.to_string());
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
