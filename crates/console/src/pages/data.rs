//! `/console/data`: what changes on a page, for the script that puts it in place. Not for other
//! programs: it changes with the pages.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::charts::Charts;
use super::limit::LimitParts;
use super::limits::LimitTable;
use super::list::ListQuery;
use super::nodes::NodesPart;
use super::overview::OverviewParts;
use super::routes::{RouteParts, RouteTraffic};
use super::upstreams::UpstreamTables;
use crate::shell::Visitor;
use crate::state::ConsoleState;
use tollgate_admin::problem_details::{PrettyJson, ProblemDetails};

/// Which page asks.
#[derive(Deserialize)]
pub struct DataQuery {
    view: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    q: String,
    #[serde(default)]
    page: usize,
}

/// The parts of a page that have changed.
#[derive(Default, Serialize)]
struct LiveParts {
    /// HTML by the name of the element that it is the content of.
    parts: BTreeMap<&'static str, String>,
    charts: Charts,
}

/// A text without markup.
#[derive(Template)]
#[template(source = "{{ text }}", ext = "html")]
struct TextPart {
    text: String,
}

/// `GET /console/data`
pub async fn show(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    Query(query): Query<DataQuery>,
) -> Response {
    match LiveParts::new(&console, &visitor, query).await {
        Ok(parts) => PrettyJson(parts).into_response(),
        Err(problem) => problem.into_response(),
    }
}

impl LiveParts {
    async fn new(
        console: &ConsoleState,
        visitor: &Visitor,
        query: DataQuery,
    ) -> Result<Self, ProblemDetails> {
        let DataQuery {
            view,
            name,
            q,
            page,
        } = query;
        let list = ListQuery { q, page };
        let mut this = Self::default();
        match view.as_str() {
            "overview" => {
                let parts = OverviewParts::new(console, visitor);
                this.add("health", &parts.health)
                    .add("traffic", &parts.traffic)
                    .add("minutes", &parts.minutes);
                this.add("routes", &parts.routes)
                    .add("limits", &parts.limits)
                    .add("about", &parts.about);
                this.summary(parts.summary).charts = parts.charts;
            }
            "routes" => drop(this.add("routes", &RouteTraffic::page(console, &list).0)),
            "limits" => drop(this.add("limits", &LimitTable::page(console, &list).0)),
            "upstreams" => drop(this.add("upstreams", &UpstreamTables::page(console, &list).0)),
            "nodes" => drop(this.add("nodes", &NodesPart::new(console).await)),
            "route" => {
                let Some((_, parts)) = RouteParts::new(console, &name) else {
                    return Err(ProblemDetails::not_found(&format!("route \"{name}\"")));
                };
                this.add("routes", &parts.table)
                    .add("minutes", &parts.minutes);
                this.summary(parts.summary).charts = parts.charts;
            }
            "limit" => {
                let (_, parts) = LimitParts::new(console, visitor, &name)?;
                this.add("denied", &parts.denied)
                    .add("decisions", &parts.decisions)
                    .add("minutes", &parts.minutes);
                this.text("summary-decisions", parts.summary).charts = parts.charts;
            }
            _ => return Err(ProblemDetails::not_found("such view")),
        }
        Ok(this)
    }

    fn add(&mut self, name: &'static str, part: &impl Template) -> &mut Self {
        // Nothing that parts show can fail to be shown.
        self.parts.insert(name, part.render().unwrap_or_default());
        self
    }

    fn text(&mut self, name: &'static str, text: String) -> &mut Self {
        self.add(name, &TextPart { text })
    }

    fn summary(&mut self, summary: super::charts::TrafficSummary) -> &mut Self {
        self.text("summary-requests", summary.requests)
            .text("summary-shares", summary.shares);
        self.text("summary-latency", summary.latency)
    }
}
