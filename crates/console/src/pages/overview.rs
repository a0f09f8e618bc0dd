//! `/console`: how the gateway is, at a glance.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use tollgate_policies::people::Operation;

use super::charts::{Charts, TrafficMinutes, TrafficSummary};
use super::limits::LimitTable;
use super::routes::RouteTraffic;

use crate::live::LiveData;
use crate::numbers::{self, plural};
use crate::shell::{Shell, Visitor, page};
use crate::state::{ConsoleState, FleetParts};
use tollgate_admin::config_status::{FileReading, PolicyReading};
use tollgate_admin::state::LifecyclePhase;
use tollgate_gateway::Gateway;
use tollgate_limiter::clock;
use tollgate_proxy::upstream::watch::report::UpstreamReport;

/// Routes, and limits, on the overview.
const BUSIEST: usize = 10;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    shell: Shell,
    parts: OverviewParts,
}

/// The parts of the overview that change.
pub struct OverviewParts {
    pub health: HealthPart,
    pub traffic: TrafficPart,
    pub summary: TrafficSummary,
    pub minutes: TrafficMinutes,
    pub routes: RouteTraffic,
    pub limits: LimitTable,
    pub about: AboutPart,
    pub charts: Charts,
}

/// Whether all is well.
#[derive(Template)]
#[template(path = "parts/health.html")]
pub struct HealthPart {
    items: Vec<HealthItem>,
}

struct HealthItem {
    name: &'static str,
    /// `good`, `warn`, `bad` or `none`.
    state: &'static str,
    text: String,
    detail: String,
    /// Where there is more. Empty: nowhere.
    more: &'static str,
}

/// The numbers of requests as of now.
#[derive(Template)]
#[template(path = "parts/traffic.html")]
pub struct TrafficPart {
    requests: String,
    denied: String,
    errors: String,
    median: String,
    p99: String,
    in_flight: String,
    tunnels: String,
}

/// The process and its configuration.
#[derive(Template)]
#[template(path = "parts/about.html")]
pub struct AboutPart {
    version: &'static str,
    uptime: String,
    address: String,
    file: String,
    read_at: String,
    read_ago: String,
    applied_at: String,
    mistakes: Vec<String>,
    /// `None`: the gateway has no database of policies.
    policies: Option<PolicyReading>,
}

/// The text in place of mistakes, for visitors without a role in the fleet.
const HIDDEN: &str = "an operator finds in the log what is wrong";

/// `GET /console`
pub async fn show(State(console): State<ConsoleState>, visitor: Visitor) -> Response {
    let shell = visitor
        .shell(&console, "Overview", "Overview")
        .live("view=overview");
    page(&OverviewPage {
        shell,
        parts: OverviewParts::new(&console, &visitor),
    })
}

impl OverviewParts {
    pub fn new(console: &ConsoleState, visitor: &Visitor) -> Self {
        let gateway = console.admin.gateway.load_full();
        let live = console.live.lock();
        Self {
            health: HealthPart::new(console, &gateway),
            traffic: TrafficPart::new(console, &live),
            summary: live.traffic_summary(&live.whole),
            minutes: live.traffic_minutes(&live.whole),
            routes: RouteTraffic::busiest(&gateway, &live, BUSIEST),
            limits: LimitTable::busiest(&gateway, &live, BUSIEST),
            about: AboutPart::new(console, visitor),
            charts: live.traffic_charts(&live.whole),
        }
    }
}

impl HealthPart {
    fn new(console: &ConsoleState, gateway: &Gateway) -> Self {
        Self {
            items: vec![
                process(console),
                store(console.fleet.as_ref()),
                fleet(console.fleet.as_ref()),
                upstreams(gateway),
                configuration(&console.config.last()),
            ]
            .into_iter()
            .chain(console.config.policies().as_ref().map(policies))
            .collect(),
        }
    }
}

fn process(console: &ConsoleState) -> HealthItem {
    let (state, text) = match console.admin.readiness.phase() {
        LifecyclePhase::Starting => ("warn", "Starting"),
        LifecyclePhase::Serving => ("good", "Serving"),
        LifecyclePhase::Draining => ("warn", "Draining"),
    };
    HealthItem {
        name: "Gateway",
        state,
        text: text.to_owned(),
        detail: format!("up {}", uptime(console)),
        more: "",
    }
}

fn store(fleet: Option<&FleetParts>) -> HealthItem {
    let (state, text, detail) = match fleet {
        None => (
            "none",
            "None",
            "limits count in this process alone".to_owned(),
        ),
        Some(fleet) if fleet.breaker.is_open() => {
            ("bad", "Away", "limits follow on_outage".to_owned())
        }
        Some(fleet) => ("good", "Deciding", fleet.store.clone()),
    };
    HealthItem {
        name: "Store",
        state,
        text: text.to_owned(),
        detail,
        more: "/console/nodes",
    }
}

fn fleet(fleet: Option<&FleetParts>) -> HealthItem {
    let (state, text, detail) = match fleet {
        None => (
            "none",
            "One node".to_owned(),
            "no store, so no fleet".to_owned(),
        ),
        Some(fleet) if fleet.share.heartbeat_error().is_some() => (
            "bad",
            "Not heard of".to_owned(),
            "the other nodes do not hear of this one".to_owned(),
        ),
        Some(fleet) => {
            let nodes = fleet.share.get().nodes() as usize;
            let silent = fleet.share.silent_ranks().len();
            let held = match silent {
                0 => "all of them heard of".to_owned(),
                silent => format!(
                    "{}: their share is held back",
                    plural(silent, "is silent", "are silent")
                ),
            };
            (
                if silent == 0 { "good" } else { "warn" },
                capital(&plural(nodes, "node", "nodes")),
                held,
            )
        }
    };
    HealthItem {
        name: "Fleet",
        state,
        text,
        detail,
        more: "/console/nodes",
    }
}

fn upstreams(gateway: &Gateway) -> HealthItem {
    let reports: Vec<_> = gateway
        .upstreams
        .values()
        .map(|upstream| UpstreamReport::new(upstream))
        .collect();
    let mut all = 0;
    let mut out = 0;
    let mut has_helpless = false;
    for report in &reports {
        let endpoints = report.endpoints.iter();
        let fit = endpoints
            .filter(|endpoint| endpoint.state == "in_service")
            .count();
        all += report.endpoints.len();
        out += report.endpoints.len() - fit;
        has_helpless |= fit == 0;
    }
    let (state, text) = if reports.is_empty() {
        ("none", "None".to_owned())
    } else if has_helpless {
        ("bad", format!("{out} of {all} out of service"))
    } else if out > 0 {
        ("warn", format!("{out} of {all} out of service"))
    } else {
        ("good", "All in service".to_owned())
    };
    let count = capital(&plural(reports.len(), "upstream", "upstreams"));
    let detail = match reports.len() {
        0 => "nothing is forwarded".to_owned(),
        _ => format!("{count}, {}", plural(all, "endpoint", "endpoints")),
    };
    HealthItem {
        name: "Upstreams",
        state,
        text,
        detail,
        more: "/console/upstreams",
    }
}

fn configuration(last: &FileReading) -> HealthItem {
    let ago = numbers::span((clock::unix_micros() / 1_000_000).saturating_sub(last.at));
    let (state, text) = if last.mistakes.is_empty() {
        ("good", "Applied")
    } else {
        ("bad", "Refused")
    };
    HealthItem {
        name: "Configuration",
        state,
        text: text.to_owned(),
        detail: format!("read {ago} ago"),
        more: "#about",
    }
}

fn policies(last: &PolicyReading) -> HealthItem {
    let (state, text, detail) = match &last.refused {
        None => (
            "good",
            format!("Revision {}", last.running),
            "the newest that is known".to_owned(),
        ),
        Some((revision, _)) => {
            let detail = format!("revision {revision} does not fit the file of this node");
            ("bad", format!("Revision {}", last.running), detail)
        }
    };
    HealthItem {
        name: "Policies",
        state,
        text,
        detail,
        more: "#about",
    }
}

impl TrafficPart {
    fn new(console: &ConsoleState, live: &LiveData) -> Self {
        let now = live.traffic_now(&live.whole);
        let (in_flight, tunnels) = (console.in_flight)();
        Self {
            requests: numbers::rate(now.requests),
            denied: numbers::share(now.denied, now.requests),
            errors: numbers::share(now.errors, now.requests),
            median: numbers::latency(now.median),
            p99: numbers::latency(now.p99),
            in_flight: numbers::count(in_flight as u64),
            tunnels: if tunnels == 0 {
                String::new()
            } else {
                plural(tunnels, "tunnel", "tunnels")
            },
        }
    }
}

/// Hides what the mistakes are, and not that there are some.
fn hide(mistakes: &mut Vec<String>) {
    if !mistakes.is_empty() {
        *mistakes = vec![HIDDEN.to_owned()];
    }
}

impl AboutPart {
    fn new(console: &ConsoleState, visitor: &Visitor) -> Self {
        let FileReading {
            at,
            applied_at,
            mut mistakes,
        } = console.config.last();
        let mut policies = console.config.policies();
        // Mistakes tell of all applications, and of the file.
        if visitor.may(Operation::ViewFleet, "").is_err() {
            if let Some(policies) = &mut policies
                && let Some((_, mistakes)) = &mut policies.refused
            {
                hide(mistakes);
            }
            hide(&mut mistakes);
        }
        Self {
            version: env!("CARGO_PKG_VERSION"),
            uptime: uptime(console),
            address: console.address.to_string(),
            file: console.config.file.clone(),
            read_at: numbers::date(at),
            read_ago: numbers::span((clock::unix_micros() / 1_000_000).saturating_sub(at)),
            applied_at: numbers::date(applied_at),
            mistakes,
            policies,
        }
    }
}

fn uptime(console: &ConsoleState) -> String {
    numbers::span(
        clock::now()
            .saturating_duration_since(console.started)
            .as_secs(),
    )
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}
