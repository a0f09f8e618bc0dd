//! `GET /explain`: the way of a request through the gateway, with the present level of each bucket.

use axum::extract::{Query, State};

use crate::caller::{AdminCaller, AdminOperation};
use crate::problem_details::{PrettyJson, ProblemDetails};
use crate::query::{self, Pairs, check_listener};
use crate::state::AdminState;
use crate::views::explain::ExplainView;
use tollgate_gateway::explain::explain;

/// `GET /explain`: what becomes of a request, and why
#[utoipa::path(
    get, path = "/explain", operation_id = "explain", tag = "limits",
    params(
        ("url" = String, Query, description = "The URL that the client asks for"),
        ("method" = Option<String>, Query, description = "GET if left out"),
        ("client_ip" = Option<String>, Query, format = "ip", description = "127.0.0.1 if left out"),
        ("listener" = Option<usize>, Query, description = "The listener that it comes through, from 0, in the order of the file"),
        ("by" = Option<std::collections::BTreeMap<String, String>>, Query, style = Form, explode, description = "Further parts of the request, each a parameter of its own: header.NAME, client_certificate.PART, identity.id, identity.plan, identity.label.NAME, claim.NAME, body.NAME")
    ),
    responses((status = 200, body = ExplainView, description = "Its way through the gateway, with the present level of each bucket"))
)]
pub async fn show(
    State(state): State<AdminState>,
    caller: AdminCaller,
    Query(pairs): Query<Pairs>,
) -> Result<PrettyJson<ExplainView>, ProblemDetails> {
    caller.authorize(AdminOperation::Explain)?;
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
    let limits = explanation.limits.limits.iter();
    let lookups: Vec<_> = limits.filter_map(|limit| limit.lookup.clone()).collect();
    if state.buckets.read_plans(&lookups).await {
        explanation = explain(&gateway, &described);
    }
    let mut view = ExplainView::new(&described, &explanation);
    for (limit, applied) in view.limits.iter_mut().zip(&explanation.limits.limits) {
        if let Some(ask) = applied.ask() {
            limit.set_level(state.buckets.peek(&ask, applied.limit.on_outage).await);
        }
    }
    Ok(view)
}
