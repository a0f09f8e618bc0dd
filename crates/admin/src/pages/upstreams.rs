//! `GET /upstreams`: the upstreams with their endpoints, and what each is fit for.

use axum::extract::State;

use crate::problem_details::PrettyJson;
use crate::state::AdminState;
use tollgate_proxy::upstream::watch::report::UpstreamReport;

/// `GET /upstreams`: the endpoints of each upstream, and whether they are in service
#[utoipa::path(get, path = "/upstreams", operation_id = "listUpstreams", tag = "upstreams", responses((status = 200, body = Vec<UpstreamReport>, description = "In the order of their names")))]
pub async fn list(State(state): State<AdminState>) -> PrettyJson<Vec<UpstreamReport>> {
    let gateway = state.gateway.load();
    let mut upstreams: Vec<_> = gateway.upstreams.values().collect();
    upstreams.sort_by(|one, other| one.spec().name.cmp(&other.spec().name));
    PrettyJson(
        upstreams
            .into_iter()
            .map(|upstream| UpstreamReport::new(upstream))
            .collect(),
    )
}
