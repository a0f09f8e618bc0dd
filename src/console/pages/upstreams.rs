//! `/console/upstreams`: the endpoints, whether they are in service, and why not.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;

use super::list::{ListQuery, Paging, encode};
use crate::console::live::LiveData;
use crate::console::numbers::{self, plural};
use crate::console::shell::{Shell, Visitor, page};
use crate::console::state::ConsoleState;
use crate::upstream::watch::report::{DiscoveryReport, EndpointReport, UpstreamReport};

#[derive(Template)]
#[template(path = "upstreams.html")]
struct UpstreamsPage {
    shell: Shell,
    table: UpstreamTables,
    paging: Paging,
}

/// A table of endpoints for each upstream.
#[derive(Template)]
#[template(path = "parts/upstream_tables.html")]
pub struct UpstreamTables {
    upstreams: Vec<UpstreamRows>,
}

struct UpstreamRows {
    name: String,
    id: String,
    /// The notes on all endpoints of the upstream.
    notes: Vec<String>,
    is_panicking: bool,
    requests: String,
    failures: String,
    endpoints: Vec<EndpointRow>,
}

struct EndpointRow {
    url: String,
    role: String,
    /// `good`, `warn` or `bad`.
    state: &'static str,
    text: &'static str,
    why: String,
    since: String,
    in_flight: String,
    failures: String,
    ejections: String,
    latency: String,
    probes: String,
}

/// `GET /console/upstreams`
pub async fn show(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    Query(query): Query<ListQuery>,
) -> Response {
    let (table, paging) = UpstreamTables::page(&console, &query);
    let view = format!("view=upstreams&{}", paging.query(&paging.page));
    let shell = visitor
        .shell(&console, "Upstreams", "Upstreams")
        .live(&view);
    page(&UpstreamsPage {
        shell,
        table,
        paging,
    })
}

impl UpstreamTables {
    /// The upstreams of a page of the list, by name.
    pub fn page(console: &ConsoleState, query: &ListQuery) -> (Self, Paging) {
        let gateway = console.admin.gateway.load_full();
        let mut names: Vec<_> = gateway.upstreams.keys().cloned().collect();
        names.sort();
        let (names, paging) = query.select("/console/upstreams", names, |name| name);
        let live = console.live.lock();
        let reports = names
            .iter()
            .filter_map(|name| Some(UpstreamReport::of(gateway.upstreams.get(name)?)));
        (
            Self {
                upstreams: reports
                    .map(|report| UpstreamRows::of(report, &live))
                    .collect(),
            },
            paging,
        )
    }
}

impl UpstreamRows {
    fn of(report: UpstreamReport, live: &LiveData) -> Self {
        let totals = live
            .upstreams
            .get(&report.upstream)
            .copied()
            .unwrap_or_default();
        let concurrency = report.concurrency.as_ref().map(|bound| {
            let waiting = numbers::count(bound.in_flight as u64);
            format!(
                "{waiting} of at most {} requests wait for an answer",
                numbers::count(bound.limit as u64)
            )
        });
        let notes = report
            .discovery
            .as_ref()
            .map(show_discovery)
            .into_iter()
            .chain(concurrency)
            .collect();
        let name = report.upstream;
        let endpoints = report
            .endpoints
            .into_iter()
            .map(|endpoint| EndpointRow::of(&name, endpoint, live))
            .collect();
        Self {
            id: encode(&name).replace('%', "-"),
            notes,
            is_panicking: report.panicking,
            requests: numbers::count(totals.requests),
            failures: numbers::count(totals.failures),
            endpoints,
            name,
        }
    }
}

fn show_discovery(discovery: &DiscoveryReport) -> String {
    let error = discovery
        .error
        .as_ref()
        .map_or_else(String::new, |error| format!(": {error}"));
    format!(
        "Endpoints by {}, {}{error}",
        discovery.source,
        discovery.state.replace('_', " ")
    )
}

impl EndpointRow {
    fn of(upstream: &str, endpoint: EndpointReport, live: &LiveData) -> Self {
        let (state, text) = match endpoint.state {
            "in_service" => ("good", "In service"),
            "backing_off" => ("warn", "Refused a connection"),
            "ejected" => ("bad", "Ejected"),
            _ => ("bad", "Unhealthy"),
        };
        let ejected = endpoint.ejected_for.map(|seconds| {
            let because = endpoint.ejected_because.unwrap_or("failures");
            format!(
                "for its {because}; back in {}",
                numbers::span(seconds.ceil() as u64)
            )
        });
        let probed = endpoint
            .probes
            .as_ref()
            .and_then(|probes| probes.error.clone());
        let known = live
            .endpoints
            .get(&(upstream.to_owned(), endpoint.url.clone()));
        let since = known
            .filter(|known| known.state == endpoint.state)
            .and_then(|known| known.since);
        let role = match (endpoint.weight, endpoint.backup) {
            (1, false) => String::new(),
            (weight, false) => format!("weight {weight}"),
            (1, true) => "backup".to_owned(),
            (weight, true) => format!("backup, weight {weight}"),
        };
        Self {
            role,
            state,
            text,
            why: ejected
                .or(probed.filter(|_| state != "good"))
                .unwrap_or_default(),
            since: since.map_or_else(|| "the start".to_owned(), numbers::date),
            in_flight: numbers::count(endpoint.in_flight as u64),
            failures: numbers::count(endpoint.consecutive_failures.into()),
            ejections: numbers::count(endpoint.ejections),
            latency: endpoint.median_latency.map_or_else(
                || "–".to_owned(),
                |seconds| numbers::latency(seconds as f32),
            ),
            probes: endpoint.probes.map_or_else(
                || "–".to_owned(),
                |probes| {
                    format!(
                        "{} passed, {} failed",
                        numbers::count(probes.passed),
                        numbers::count(probes.failed)
                    )
                },
            ),
            url: endpoint.url,
        }
    }
}

impl UpstreamRows {
    /// For the heading of its table.
    fn size(&self) -> String {
        plural(self.endpoints.len(), "endpoint", "endpoints")
    }
}
