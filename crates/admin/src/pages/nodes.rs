//! `GET /nodes`: the nodes of the fleet, and what each runs.

use axum::extract::State;

use crate::problem_details::PrettyJson;
use crate::state::AdminState;
use crate::views::node::NodeList;

/// `GET /nodes`: the nodes of the fleet, and what each runs
#[utoipa::path(get, path = "/nodes", operation_id = "listNodes", tag = "nodes", responses((status = 200, body = NodeList, description = "By rank. Without a store, or while it is away, only the node that answers")))]
pub async fn list(State(state): State<AdminState>) -> PrettyJson<NodeList> {
    PrettyJson(state.nodes.list().await)
}
