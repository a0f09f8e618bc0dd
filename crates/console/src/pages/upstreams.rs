//! `/console/upstreams`: the endpoints, whether they are in service, and why not.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;

use super::list::{ListQuery, Paging, encode};
use crate::live::LiveData;
use crate::numbers::{self, plural};
use crate::shell::{Shell, Visitor, page};
use crate::state::ConsoleState;
use tollgate_proxy::upstream::watch::report::{DiscoveryReport, EndpointReport, UpstreamReport};

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
        let mut upstreams = Vec::with_capacity(names.len());
        for name in &names {
            if let Some(upstream) = gateway.upstreams.get(name) {
                upstreams.push(UpstreamRows::new(UpstreamReport::new(upstream), &live));
            }
        }
        (Self { upstreams }, paging)
    }
}

impl UpstreamRows {
    fn new(report: UpstreamReport, live: &LiveData) -> Self {
        let totals = live
            .upstreams
            .get(&report.upstream)
            .copied()
            .unwrap_or_default();
        let mut notes = Vec::new();
        if let Some(discovery) = &report.discovery {
            notes.push(show_discovery(discovery));
        }
        if let Some(bound) = &report.concurrency {
            let waiting = numbers::count(bound.in_flight as u64);
            let limit = numbers::count(bound.limit as u64);
            notes.push(format!(
                "{waiting} of at most {limit} requests wait for an answer"
            ));
        }
        let name = report.upstream;
        let endpoints = report
            .endpoints
            .into_iter()
            .map(|endpoint| EndpointRow::new(&name, endpoint, live))
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
    let error = match &discovery.error {
        Some(error) => format!(": {error}"),
        None => String::new(),
    };
    format!(
        "Endpoints by {}, {}{error}",
        discovery.source,
        discovery.state.replace('_', " ")
    )
}

impl EndpointRow {
    fn new(upstream: &str, endpoint: EndpointReport, live: &LiveData) -> Self {
        let (state, text) = match endpoint.state {
            "in_service" => ("good", "In service"),
            "backing_off" => ("warn", "Refused a connection"),
            "ejected" => ("bad", "Ejected"),
            _ => ("bad", "Unhealthy"),
        };
        let mut why = String::new();
        if let Some(seconds) = endpoint.ejected_for {
            let because = endpoint.ejected_because.unwrap_or("failures");
            let back_in = numbers::span(seconds.ceil() as u64);
            why = format!("for its {because}; back in {back_in}");
        } else if let Some(probes) = &endpoint.probes
            && let Some(error) = &probes.error
            && state != "good"
        {
            why.clone_from(error);
        }
        let known = live
            .endpoints
            .get(&(upstream.to_owned(), endpoint.url.clone()));
        let since = match known {
            Some(known) if known.state == endpoint.state => known.since,
            Some(_) | None => None,
        };
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
            why,
            since: match since {
                Some(since) => numbers::date(since),
                None => "the start".to_owned(),
            },
            in_flight: numbers::count(endpoint.in_flight as u64),
            failures: numbers::count(endpoint.consecutive_failures.into()),
            ejections: numbers::count(endpoint.ejections),
            latency: match endpoint.median_latency {
                Some(seconds) => numbers::latency(seconds as f32),
                None => "–".to_owned(),
            },
            probes: match endpoint.probes {
                Some(probes) => format!(
                    "{} passed, {} failed",
                    numbers::count(probes.passed),
                    numbers::count(probes.failed)
                ),
                None => "–".to_owned(),
            },
            url: endpoint.url,
        }
    }
}

impl UpstreamRows {
    /// The number of endpoints, for the heading of the table.
    fn size(&self) -> String {
        plural(self.endpoints.len(), "endpoint", "endpoints")
    }
}
