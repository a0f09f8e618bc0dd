//! `GET /upstreams`: the upstreams with their endpoints, and what each is fit for.

use axum::extract::State;

use crate::admin::problem_details::PrettyJson;
use crate::admin::state::AdminState;
use crate::upstream::watch::report::UpstreamReport;

/// `GET /upstreams`
pub async fn list(State(state): State<AdminState>) -> PrettyJson<Vec<UpstreamReport>> {
    let gateway = state.gateway.load();
    let mut upstreams: Vec<_> = gateway.upstreams.values().collect();
    upstreams.sort_by(|one, other| one.spec().name.cmp(&other.spec().name));
    PrettyJson(upstreams.into_iter().map(|upstream| UpstreamReport::of(upstream)).collect())
}
