//! `/console/nodes`: the fleet and its store, as this node's heartbeat knows them.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use crate::console::numbers;
use crate::console::shell::{Shell, Visitor, page};
use crate::console::state::{ConsoleState, FleetParts};
use crate::observe::series::label;

#[derive(Template)]
#[template(path = "nodes.html")]
struct NodesPage {
    shell: Shell,
    parts: NodesPart,
}

/// What changes on the page.
#[derive(Template)]
#[template(path = "parts/nodes.html")]
pub struct NodesPart {
    /// Of a gateway with a store.
    fleet: Option<ShownFleet>,
}

struct ShownFleet {
    store: String,
    is_up: bool,
    servers_away: usize,
    held_back: String,
    nodes: Vec<NodeRow>,
    /// Nodes that are not in the table.
    more_nodes: usize,
    /// Outcomes of calls, and how many there were.
    calls: Vec<(String, String)>,
}

struct NodeRow {
    rank: u32,
    is_here: bool,
    is_silent: bool,
}

/// Nodes in the table.
const MOST_NODES: u32 = 256;

/// `GET /console/nodes`
pub async fn show(State(console): State<ConsoleState>, visitor: Visitor) -> Response {
    let shell = visitor.shell(&console, "Nodes", "Nodes").live("view=nodes");
    page(&NodesPage { shell, parts: NodesPart::of(&console) })
}

impl NodesPart {
    pub fn of(console: &ConsoleState) -> Self {
        let mut calls = BTreeMap::new();
        console.metrics.visit_counters("tollgate_store_calls_total", |key, count| {
            calls.insert(label(key, "outcome").replace('_', " "), numbers::count(count));
        });
        Self { fleet: console.fleet.as_ref().map(|fleet| ShownFleet::of(fleet, calls.into_iter().collect())) }
    }
}

impl ShownFleet {
    fn of(fleet: &FleetParts, calls: Vec<(String, String)>) -> Self {
        let (share, silent) = (fleet.share.get(), fleet.share.silent_ranks());
        let row = |rank| NodeRow { rank, is_here: share.rank() == Some(rank), is_silent: silent.contains(&rank) };
        let count = u32::try_from(silent.len()).unwrap_or(u32::MAX);
        Self {
            store: fleet.store.clone(),
            is_up: !fleet.breaker.is_open(),
            servers_away: fleet.breaker.open_servers().len(),
            held_back: numbers::share(share.held_back_ratio(count), 1.0),
            nodes: (0..share.nodes().min(MOST_NODES)).map(row).collect(),
            more_nodes: share.nodes().saturating_sub(MOST_NODES) as usize,
            calls,
        }
    }
}
