//! The nodes of the fleet, each with what it says of itself.

use std::sync::Arc;

use tollgate_limiter::store::inspect::{FleetNode, Inspect};

use super::views::node::{NodeList, NodeReport, NodeView};

/// Makes the report of this node, as of now.
pub type OwnReport = Arc<dyn Fn() -> NodeReport + Send + Sync>;

/// The nodes of the fleet.
pub struct FleetNodes {
    own: OwnReport,
    /// Of a gateway with a store: the way to ask it, and what this node is announced by.
    fleet: Option<(Arc<dyn Inspect>, Arc<str>)>,
}

impl FleetNodes {
    pub fn new(own: OwnReport, fleet: Option<(Arc<dyn Inspect>, Arc<str>)>) -> Self {
        Self { own, fleet }
    }

    /// All nodes that the store knows. This one is always there, and says what it says now.
    pub async fn list(&self) -> NodeList {
        let Some((inspector, own_id)) = &self.fleet else {
            return NodeList {
                nodes: vec![self.own_view(None)],
                store_error: None,
            };
        };
        match inspector.nodes().await {
            Ok(seen) => {
                let view = |(rank, node): (u32, &FleetNode)| match *node.id == **own_id {
                    true => self.own_view(Some(rank)),
                    false => NodeView {
                        rank: Some(rank),
                        answering: false,
                        heard_of: node.heard_of.as_secs_f64(),
                        report: NodeReport::read(&node.statement),
                    },
                };
                let mut nodes: Vec<_> = (0..).zip(&seen).map(view).collect();
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
