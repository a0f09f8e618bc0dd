//! The nodes of the fleet, each with its own report.

use std::sync::Arc;

use tollgate_limiter::store::inspect::{FleetNode, Inspect};

use super::views::node::{NodeList, NodeReport, NodeView};

/// Makes the report of this node, as of now.
pub type OwnReport = Arc<dyn Fn() -> NodeReport + Send + Sync>;

/// The nodes of the fleet.
pub struct FleetNodes {
    own: OwnReport,
    /// The other nodes. `None`: there is no store.
    fleet: Option<FleetConnection>,
}

/// The connection to the store, and the identifier that this node is announced by there.
pub struct FleetConnection {
    pub inspector: Arc<dyn Inspect>,
    pub own_id: Arc<str>,
}

impl FleetNodes {
    pub fn new(own: OwnReport, fleet: Option<FleetConnection>) -> Self {
        Self { own, fleet }
    }

    /// All nodes that the store knows. This one is always among them, with its report as of now.
    pub async fn list(&self) -> NodeList {
        let Some(fleet) = &self.fleet else {
            return NodeList {
                nodes: vec![self.own_view(None)],
                store_error: None,
            };
        };
        match fleet.inspector.nodes().await {
            Ok(seen) => {
                let mut nodes = Vec::with_capacity(seen.len());
                for (rank, node) in (0..).zip(&seen) {
                    nodes.push(if *node.id == *fleet.own_id {
                        self.own_view(Some(rank))
                    } else {
                        other_view(rank, node)
                    });
                }
                if nodes.iter().all(|node| !node.answering) {
                    nodes.insert(0, self.own_view(None));
                }
                NodeList {
                    nodes,
                    store_error: None,
                }
            }
            Err(error) => NodeList {
                nodes: vec![self.own_view(None)],
                store_error: Some(error.to_string()),
            },
        }
    }

    fn own_view(&self, rank: Option<u32>) -> NodeView {
        NodeView {
            rank,
            answering: true,
            heard_of: 0.0,
            report: Some((self.own)()),
        }
    }
}

fn other_view(rank: u32, node: &FleetNode) -> NodeView {
    NodeView {
        rank: Some(rank),
        answering: false,
        heard_of: node.heard_of.as_secs_f64(),
        report: NodeReport::read(&node.statement),
    }
}
