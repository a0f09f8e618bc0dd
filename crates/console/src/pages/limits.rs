//! `/console/limits`: the limits with their numbers and decisions.

use std::cmp::Reverse;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use tollgate_limiter::limit::key::KeyPart;
use tollgate_limiter::limit::rollout::Rollout;
use tollgate_limiter::request::catalog::CatalogEntry;

use super::list::{ListQuery, Paging, encode};
use crate::live::LiveData;
use crate::live::track::LimitTrack;
use crate::numbers;
use crate::shell::{Shell, Visitor, page};
use crate::state::ConsoleState;
use tollgate_admin::views::policy::PolicyView;
use tollgate_admin::views::words::show_policy;
use tollgate_gateway::Gateway;

const PATH: &str = "/console/limits";

/// A table of limits.
#[derive(Template)]
#[template(path = "parts/limit_table.html")]
pub struct LimitTable {
    rows: Vec<LimitRow>,
}

struct LimitRow {
    name: String,
    href: String,
    policy: String,
    counts_by: String,
    /// The rate that the limit would deny, if it only counts. Empty: it is enforced.
    trial: String,
    allowed: String,
    denied: String,
    share: String,
    /// Denied since the process started.
    total: String,
}

#[derive(Template)]
#[template(path = "limits.html")]
struct LimitsPage {
    shell: Shell,
    table: LimitTable,
    paging: Paging,
}

/// `GET /console/limits`
pub async fn list(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    Query(query): Query<ListQuery>,
) -> Response {
    let (table, paging) = LimitTable::page(&console, &query);
    let view = format!("view=limits&{}", paging.query(&paging.page));
    let shell = visitor.shell(&console, "Limits", "Limits").live(&view);
    page(&LimitsPage {
        shell,
        table,
        paging,
    })
}

impl LimitTable {
    /// The limits of a page of the list.
    pub fn page(console: &ConsoleState, query: &ListQuery) -> (Self, Paging) {
        let gateway = console.admin.gateway.load_full();
        let (limits, paging) = query.select(PATH, gateway.limits.iter().collect(), |listed| {
            &listed.limit().name
        });
        let live = console.live.lock();
        (
            Self {
                rows: limits
                    .into_iter()
                    .map(|listed| LimitRow::new(listed, &live))
                    .collect(),
            },
            paging,
        )
    }

    /// The limits that deny most, and then those that allow most.
    pub fn busiest(gateway: &Gateway, live: &LiveData, most: usize) -> Self {
        let mut limits: Vec<_> = gateway.limits.iter().collect();
        // In thousandths, to be comparable. Stable: others stay in the file's order.
        limits.sort_by_cached_key(|listed| {
            let track = live.limits.get(&*listed.limit().name);
            let now = track
                .map(|track| live.decisions_now(track))
                .unwrap_or_default();
            let denied = (1e3 * (now.denied + now.shadow_denied)) as u64;
            Reverse((denied, (1e3 * now.allowed) as u64))
        });
        Self {
            rows: limits
                .into_iter()
                .take(most)
                .map(|listed| LimitRow::new(listed, live))
                .collect(),
        }
    }
}

impl LimitRow {
    fn new(listed: &CatalogEntry, live: &LiveData) -> Self {
        let limit = listed.limit();
        let none = LimitTrack::default();
        let track = live.limits.get(&*limit.name).unwrap_or(&none);
        let now = live.decisions_now(track);
        Self {
            name: limit.name.to_string(),
            href: format!("{PATH}/{}", encode(&limit.name)),
            policy: show_policy(&policy(listed)),
            counts_by: counts_by(listed),
            trial: match limit.rollout {
                Rollout::NONE => format!(
                    "only counts: would deny {}",
                    numbers::rate(now.shadow_denied)
                ),
                _ => String::new(),
            },
            allowed: numbers::rate(now.allowed),
            denied: numbers::rate(now.denied),
            share: numbers::share(now.denied, now.allowed + now.denied),
            total: numbers::count(track.totals.of("denied") + track.totals.of("degraded")),
        }
    }
}

/// The numbers of a limit for a client without a plan.
pub fn policy(listed: &CatalogEntry) -> PolicyView {
    let limit = listed.limit();
    PolicyView::with(
        limit,
        &limit.algorithm,
        limit.cost.typical(limit.algorithm.burst()).get(),
    )
}

/// The parts of a request that a limit counts by.
pub fn counts_by(listed: &CatalogEntry) -> String {
    listed
        .limit()
        .key
        .parts
        .iter()
        .map(KeyPart::name)
        .collect::<Vec<_>>()
        .join(", ")
}
