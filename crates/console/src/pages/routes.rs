//! `/console/routes`: the routes with their traffic, and one of them with its charts.

use std::cmp::Reverse;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::response::Response;

use super::charts::{Charts, TrafficMinutes, TrafficSummary};
use super::list::{ListQuery, Paging, encode};
use crate::live::LiveData;
use crate::live::track::TrafficTrack;
use crate::numbers;
use crate::shell::{Shell, Visitor, page};
use crate::state::ConsoleState;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_admin::views::explain::conditions;
use tollgate_gateway::{Gateway, UNROUTED};
use tollgate_spec::route::{Action, Route};

const PATH: &str = "/console/routes";

/// A table of routes.
#[derive(Template)]
#[template(path = "parts/route_table.html")]
pub struct RouteTraffic {
    rows: Vec<RouteRow>,
}

struct RouteRow {
    name: String,
    /// Empty: of the requests that no route takes.
    href: String,
    takes: String,
    requests: String,
    denied: String,
    errors: String,
    median: String,
    p99: String,
    total: String,
}

#[derive(Template)]
#[template(path = "routes.html")]
struct RoutesPage {
    shell: Shell,
    table: RouteTraffic,
    paging: Paging,
}

#[derive(Template)]
#[template(path = "route.html")]
struct RoutePage {
    shell: Shell,
    name: String,
    takes: String,
    action: String,
    /// Name and path.
    limits: Vec<(String, String)>,
    parts: RouteParts,
}

/// The parts of the page of a route that change.
pub struct RouteParts {
    pub table: RouteTraffic,
    pub summary: TrafficSummary,
    pub minutes: TrafficMinutes,
    pub charts: Charts,
}

/// A route, or the requests that no route takes.
enum Listed {
    Route(Arc<Route>),
    Unrouted,
}

/// `GET /console/routes`
pub async fn list(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    Query(query): Query<ListQuery>,
) -> Response {
    let (table, paging) = RouteTraffic::page(&console, &query);
    let view = format!("view=routes&{}", paging.query(&paging.page));
    let shell = visitor.shell(&console, "Routes", "Routes").live(&view);
    page(&RoutesPage {
        shell,
        table,
        paging,
    })
}

/// `GET /console/routes/{route}`
pub async fn show(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Response {
    let Some((route, parts)) = RouteParts::new(&console, &name) else {
        let problem =
            ProblemDetails::not_found(&format!("route \"{name}\"")).hint("Routes lists them");
        return console.refuse(&visitor, &problem);
    };
    let shell = visitor
        .shell(&console, "Routes", &name)
        .live(&format!("view=route&name={}", encode(&name)));
    let mut limits = Vec::new();
    for used in &route.limits {
        let limit = &used.limit.name;
        let path = format!("/console/limits/{}", encode(limit));
        limits.push((limit.to_string(), path));
    }
    page(&RoutePage {
        shell,
        name,
        takes: conditions(&route.matches),
        action: action(&route),
        limits,
        parts,
    })
}

impl RouteTraffic {
    /// The routes of a page of the list.
    pub fn page(console: &ConsoleState, query: &ListQuery) -> (Self, Paging) {
        let gateway = console.admin.gateway.load_full();
        let (routes, paging) = query.select(PATH, listed(&gateway), Listed::name);
        let live = console.live.lock();
        (Self::new(&routes, &live), paging)
    }

    fn new(routes: &[Listed], live: &LiveData) -> Self {
        let mut rows = Vec::new();
        for route in routes {
            rows.push(RouteRow::new(route, live));
        }
        Self { rows }
    }

    /// The routes with most requests, and those that no route takes if there are any.
    pub fn busiest(gateway: &Gateway, live: &LiveData, most: usize) -> Self {
        let mut routes = listed(gateway);
        // In thousandths, to be comparable. Stable: others stay in the file's order.
        routes.sort_by_cached_key(|route| match live.routes.get(route.name()) {
            Some(track) => Reverse((1e3 * live.traffic_now(track).requests) as u64),
            None => Reverse(0),
        });
        routes.truncate(most);
        Self::new(&routes, live)
    }
}

impl RouteRow {
    fn new(route: &Listed, live: &LiveData) -> Self {
        let none = TrafficTrack::default();
        let track = live.routes.get(route.name()).unwrap_or(&none);
        let now = live.traffic_now(track);
        let (name, href, takes) = match route {
            Listed::Route(route) => (
                route.name.to_string(),
                format!("{PATH}/{}", encode(&route.name)),
                conditions(&route.matches),
            ),
            Listed::Unrouted => (
                "no route".to_owned(),
                String::new(),
                "what no route takes".to_owned(),
            ),
        };
        Self {
            name,
            href,
            takes,
            requests: numbers::rate(now.requests),
            denied: numbers::share(now.denied, now.requests),
            errors: numbers::share(now.errors, now.requests),
            median: numbers::latency(now.median),
            p99: numbers::latency(now.p99),
            total: numbers::count(track.totals.requests),
        }
    }
}

impl RouteParts {
    /// The route called `name`, and the parts of its page that change.
    pub fn new(console: &ConsoleState, name: &str) -> Option<(Arc<Route>, Self)> {
        let gateway = console.admin.gateway.load_full();
        let route = gateway
            .routes
            .iter()
            .map(|route| &route.target.route)
            .find(|route| *route.name == *name)?
            .clone();
        let live = console.live.lock();
        let none = TrafficTrack::default();
        let track = live.routes.get(name).unwrap_or(&none);
        let parts = Self {
            table: RouteTraffic {
                rows: vec![RouteRow::new(&Listed::Route(route.clone()), &live)],
            },
            summary: live.traffic_summary(track),
            minutes: live.traffic_minutes(track),
            charts: live.traffic_charts(track),
        };
        Some((route, parts))
    }
}

impl Listed {
    fn name(&self) -> &str {
        match self {
            Self::Route(route) => &route.name,
            Self::Unrouted => UNROUTED,
        }
    }
}

/// The routes in the file's order, and then the requests that none of them takes.
fn listed(gateway: &Gateway) -> Vec<Listed> {
    let routes = gateway
        .routes
        .iter()
        .map(|route| Listed::Route(route.target.route.clone()));
    routes.chain([Listed::Unrouted]).collect()
}

/// The action of a route, in words.
fn action(route: &Route) -> String {
    match &route.action {
        Action::Respond(respond) => format!("answers {}", respond.status.as_u16()),
        Action::Redirect(redirect) => format!(
            "redirects to {} with {}",
            redirect.to,
            redirect.status.as_u16()
        ),
        Action::Forward(forward) => format!("forwards to {}", forward.upstream),
        Action::Distribute(distribution) => format!("forwards to {distribution}"),
        Action::Echo => "answers with a description of the request".to_owned(),
    }
}
