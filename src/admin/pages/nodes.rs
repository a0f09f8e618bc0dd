//! `GET /nodes`: the nodes of the fleet, and what each runs.

use axum::extract::State;

use crate::admin::problem_details::PrettyJson;
use crate::admin::state::AdminState;
use crate::admin::views::node::NodeList;

/// `GET /nodes`: the nodes of the fleet, and what each runs
#[utoipa::path(get, path = "/nodes", operation_id = "listNodes", tag = "nodes", responses((status = 200, body = NodeList, description = "By rank. Without a store, or while it is away, only the node that answers")))]
pub async fn list(State(state): State<AdminState>) -> PrettyJson<NodeList> {
    PrettyJson(state.nodes.list().await)
}
