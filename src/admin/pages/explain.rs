//! `GET /explain`: the way of a request through the gateway, with the present level of each bucket.

use axum::extract::{Query, State};

use crate::admin::problem_details::{PrettyJson, ProblemDetails};
use crate::admin::query::{self, Pairs, check_listener};
use crate::admin::state::AdminState;
use crate::admin::views::explain::ExplainView;
use crate::gateway::explain::explain;

/// `GET /explain`
pub async fn show(
    State(state): State<AdminState>,
    Query(pairs): Query<Pairs>,
) -> Result<PrettyJson<ExplainView>, ProblemDetails> {
    find_out(&state, &pairs).await.map(PrettyJson)
}

/// The explanation of the request that `pairs` describe.
///
/// # Errors
/// When they describe none.
pub async fn find_out(state: &AdminState, pairs: &Pairs) -> Result<ExplainView, ProblemDetails> {
    let described = query::request(pairs)?;
    let gateway = state.gateway.load_full();
    check_listener(gateway.listeners(), &described)?;
    let mut explanation = explain(&gateway, &described);
    let lookups: Vec<_> = explanation.limits.limits.iter().filter_map(|limit| limit.lookup.clone()).collect();
    if state.buckets.read_plans(&lookups).await {
        explanation = explain(&gateway, &described);
    }
    let mut view = ExplainView::of(&described, &explanation);
    for (limit, applied) in view.limits.iter_mut().zip(&explanation.limits.limits) {
        if let Some(ask) = applied.ask() {
            limit.set_level(state.buckets.peek(&ask, applied.limit.on_outage).await);
        }
    }
    Ok(view)
}
