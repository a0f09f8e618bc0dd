//! `/console/nodes`: the fleet and its store, as this node's heartbeat knows them.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use crate::numbers;
use crate::shell::{Shell, Visitor, page};
use crate::state::{ConsoleState, FleetParts};
use tollgate_admin::views::node::{NodeList, NodeReport, NodeView};
use tollgate_gateway::observe::series::label;
use tollgate_limiter::clock;

#[derive(Template)]
#[template(path = "nodes.html")]
struct NodesPage {
    shell: Shell,
    parts: NodesPart,
}

/// The part of the page that changes.
#[derive(Template)]
#[template(path = "parts/nodes.html")]
pub struct NodesPart {
    nodes: Vec<NodeRow>,
    /// Nodes that are not in the table.
    more_nodes: usize,
    /// Why other nodes are not in the table. Empty: they are.
    store_error: String,
    has_policies: bool,
    /// `None`: the gateway has no store.
    fleet: Option<ShownFleet>,
}

struct ShownFleet {
    store: String,
    is_up: bool,
    servers_away: usize,
    /// Why the fleet does not hear of this node. Empty: it does.
    heartbeat_error: String,
    held_back: String,
    /// Outcomes of calls, and how many there were.
    calls: Vec<(String, String)>,
}

struct NodeRow {
    /// Empty: it says nothing of itself.
    name: String,
    rank: String,
    is_here: bool,
    is_silent: bool,
    /// Whether its policies are not those of most.
    is_behind: bool,
    report: NodeReport,
    running_for: String,
    configured_for: String,
}

/// Nodes in the table.
const MOST_NODES: usize = 256;

/// `GET /console/nodes`
pub async fn show(State(console): State<ConsoleState>, visitor: Visitor) -> Response {
    let shell = visitor.shell(&console, "Nodes", "Nodes").live("view=nodes");
    page(&NodesPage {
        shell,
        parts: NodesPart::new(&console).await,
    })
}

impl NodesPart {
    pub async fn new(console: &ConsoleState) -> Self {
        let NodeList { nodes, store_error } = console.admin.nodes.list().await;
        let mut newest = None;
        for node in &nodes {
            if let Some(report) = &node.report {
                newest = newest.max(report.revision);
            }
        }
        let more_nodes = nodes.len().saturating_sub(MOST_NODES);
        let mut calls = BTreeMap::new();
        console
            .metrics
            .visit_counters("tollgate_store_calls_total", |key, count| {
                if count > 0 {
                    calls.insert(
                        label(key, "outcome").replace('_', " "),
                        numbers::count(count),
                    );
                }
            });
        let mut silent = Vec::new();
        let mut fleet = None;
        if let Some(parts) = &console.fleet {
            silent = parts.share.silent_ranks();
            fleet = Some(ShownFleet::new(parts, calls.into_iter().collect()));
        }
        let mut rows = Vec::new();
        for node in nodes.into_iter().take(MOST_NODES) {
            rows.push(NodeRow::new(node, &silent, newest));
        }
        Self {
            nodes: rows,
            more_nodes,
            store_error: store_error.unwrap_or_default(),
            has_policies: newest.is_some(),
            fleet,
        }
    }
}

impl ShownFleet {
    fn new(fleet: &FleetParts, calls: Vec<(String, String)>) -> Self {
        let share = fleet.share.get();
        let silent = fleet.share.silent_ranks().len();
        let count = u32::try_from(silent).unwrap_or(u32::MAX);
        Self {
            store: fleet.store.clone(),
            is_up: !fleet.breaker.is_open(),
            servers_away: fleet.breaker.open_servers().len(),
            heartbeat_error: fleet
                .share
                .heartbeat_error()
                .map(|error| error.to_string())
                .unwrap_or_default(),
            held_back: numbers::share(share.held_back_ratio(count), 1.0),
            calls,
        }
    }
}

impl NodeRow {
    fn new(node: NodeView, silent: &[u32], newest: Option<u64>) -> Self {
        let now = clock::unix_micros() / 1_000_000;
        let report = node.report.unwrap_or_default();
        Self {
            rank: node.rank.map(|rank| rank.to_string()).unwrap_or_default(),
            is_here: node.answering,
            is_silent: node.rank.is_some_and(|rank| silent.contains(&rank)),
            is_behind: report.revision.is_some() && report.revision != newest,
            running_for: numbers::span(now.saturating_sub(report.started_at)),
            configured_for: numbers::span(now.saturating_sub(report.configured_at)),
            name: report.name.clone(),
            report,
        }
    }
}
