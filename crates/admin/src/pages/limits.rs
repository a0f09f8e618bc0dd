//! `GET /limits`: the limits, and the parts of a request that each counts by.

use axum::extract::State;
use serde::Serialize;
use tollgate_limiter::limit::definition::Consistency;
use tollgate_limiter::limit::key::{KeyPart, OnMissing};
use tollgate_limiter::request::catalog::CatalogEntry;

use crate::problem_details::PrettyJson;
use crate::state::AdminState;
use crate::views::policy::PolicyView;

/// A limit in the list.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct LimitSummary {
    limit: String,
    policy: PolicyView,
    /// The parts that it counts by, in the words of a bucket's query.
    key: Vec<String>,
    on_missing: &'static str,
    /// The part of a request that tells a client's plan, which has other numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    plans_by: Option<String>,
    consistency: &'static str,
    /// Whether clients are not told of it.
    hidden: bool,
    buckets: String,
}

/// `GET /limits`: the limits, and what each counts by
#[utoipa::path(get, path = "/limits", operation_id = "listLimits", tag = "limits", responses((status = 200, body = Vec<LimitSummary>, description = "In the order of their names")))]
pub async fn list(State(state): State<AdminState>) -> PrettyJson<Vec<LimitSummary>> {
    PrettyJson(
        state
            .gateway
            .load()
            .limits
            .iter()
            .map(LimitSummary::new)
            .collect(),
    )
}

impl LimitSummary {
    fn new(listed: &CatalogEntry) -> Self {
        let limit = listed.limit();
        let on_missing = match limit.key.on_missing {
            OnMissing::Share => "share",
            OnMissing::Skip => "skip",
            OnMissing::Refuse => "refuse",
        };
        Self {
            limit: limit.name.to_string(),
            policy: PolicyView::with(
                limit,
                &limit.algorithm,
                limit.cost.typical(limit.algorithm.burst()).get(),
            ),
            key: limit.key.parts.iter().map(KeyPart::name).collect(),
            on_missing,
            plans_by: listed.plans_by(),
            consistency: match limit.consistency {
                Consistency::Exact => "exact",
                Consistency::Leased => "leased",
            },
            hidden: limit.hidden,
            buckets: format!("/buckets/{}", limit.name),
        }
    }
}
