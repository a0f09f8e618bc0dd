//! `/console/limits/{limit}`: a limit, its decisions, and the clients that it denies now.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use tollgate_limiter::limit::definition::Consistency;
use tollgate_limiter::limit::key::{KeyPart, OnMissing};
use tollgate_limiter::limit::rollout::Rollout;
use tollgate_limiter::request::catalog::CatalogEntry;

use super::charts::{Charts, DecisionMinutes};
use super::limits::{counts_by, policy};
use super::list::encode;
use crate::live::LiveData;
use crate::live::totals::{DECIDERS, VERDICTS};
use crate::live::track::LimitTrack;
use crate::numbers;
use crate::shell::{Shell, Visitor, page};
use crate::state::ConsoleState;
use tollgate_admin::pages::buckets::find;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_admin::views::bucket::show;
use tollgate_admin::views::explain::over;
use tollgate_admin::views::words::{show_policy, show_settled};

/// Keys that are shown.
const MOST_KEYS: usize = 15;

#[derive(Template)]
#[template(path = "limit.html")]
struct LimitPage {
    shell: Shell,
    name: String,
    /// The facts about the limit: the name of each, and its value.
    facts: Vec<(&'static str, String)>,
    /// Name and path.
    routes: Vec<(String, String)>,
    lookup: BucketLookup,
    parts: LimitParts,
}

/// The parts of the page of a limit that change.
pub struct LimitParts {
    pub denied: DeniedPart,
    pub decisions: DecisionTable,
    pub summary: String,
    pub minutes: DecisionMinutes,
    pub charts: Charts,
}

/// The clients that the limit denies now.
#[derive(Template)]
#[template(path = "parts/denied_keys.html")]
pub struct DeniedPart {
    rows: Vec<DeniedRow>,
    /// Whether the keys themselves are shown.
    shows_keys: bool,
}

struct DeniedRow {
    key: String,
    /// Empty: the key is not shown.
    href: String,
    count: String,
}

/// The decisions since the process started.
#[derive(Template)]
#[template(path = "parts/decision_table.html")]
pub struct DecisionTable {
    deciders: [&'static str; DECIDERS.len()],
    rows: Vec<DecisionRow>,
}

struct DecisionRow {
    verdict: &'static str,
    counts: Vec<String>,
    sum: String,
}

/// The form that looks up a bucket: by what its limit counts by, or by its key.
#[derive(Template)]
#[template(path = "parts/bucket_lookup.html")]
pub struct BucketLookup {
    action: String,
    token: String,
    /// A name, and what to enter.
    fields: Vec<(String, &'static str)>,
    /// The part that tells the client's plan, unless the key has it.
    plans_by: String,
    example: String,
}

/// `GET /console/limits/{limit}`
pub async fn view(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Response {
    match LimitParts::new(&console, &visitor, &name) {
        Ok((listed, parts)) => {
            let shell = visitor
                .shell(&console, "Limits", &name)
                .live(&format!("view=limit&name={}", encode(&name)));
            let lookup = BucketLookup::new(&listed, &shell);
            page(&LimitPage {
                facts: facts(&listed),
                routes: routes(&console, &name),
                shell,
                name,
                lookup,
                parts,
            })
        }
        Err(problem) => console.refuse(&visitor, &problem),
    }
}

impl LimitParts {
    /// The limit called `name`, and the parts of its page that change.
    pub fn new(
        console: &ConsoleState,
        visitor: &Visitor,
        name: &str,
    ) -> Result<(CatalogEntry, Self), ProblemDetails> {
        let listed = find(&console.admin.gateway.load(), name)?;
        let live = console.live.lock();
        let none = LimitTrack::default();
        let track = live.limits.get(name).unwrap_or(&none);
        let parts = Self {
            denied: DeniedPart::new(console, visitor, name),
            decisions: DecisionTable::new(track),
            summary: LiveData::decision_summary(&live, track),
            minutes: live.decision_minutes(track),
            charts: live.decision_charts(track),
        };
        Ok((listed, parts))
    }
}

impl DeniedPart {
    fn new(console: &ConsoleState, visitor: &Visitor, limit: &str) -> Self {
        let gateway = console.admin.gateway.load_full();
        let mut top = Vec::new();
        if let Some(denials) = &gateway.limit_states.denials
            && let Some(keys) = denials.find(limit)
        {
            top = keys.top(MOST_KEYS);
        }
        // Keys name clients. Without accounts, only this machine reaches the port.
        let shows_keys = visitor.may_look_at(limit).is_ok();
        let mut rows = Vec::with_capacity(top.len());
        for hitter in top {
            let about = if hitter.error > 0 { "about " } else { "" };
            let count = format!("{about}{}", numbers::count(hitter.count));
            rows.push(if shows_keys {
                let key = show(&hitter.key);
                let path = format!("/console/limits/{}/bucket", encode(limit));
                let href = format!("{path}?key={}", encode(&key));
                DeniedRow { key, href, count }
            } else {
                let pseudonym = console.tokens.pseudonym(hitter.key.as_bytes());
                DeniedRow {
                    key: format!("client {pseudonym}"),
                    href: String::new(),
                    count,
                }
            });
        }
        Self { rows, shows_keys }
    }
}

impl DecisionTable {
    fn new(track: &LimitTrack) -> Self {
        let mut rows = Vec::new();
        for (verdict, counts) in VERDICTS.into_iter().zip(track.totals.0) {
            let sum: u64 = counts.iter().sum();
            if sum == 0 && !["allowed", "denied"].contains(&verdict) {
                continue;
            }
            rows.push(DecisionRow {
                verdict: match verdict {
                    "allowed" => "Allowed",
                    "denied" => "Denied",
                    "degraded" => "Degraded",
                    "exempt" => "Exempt",
                    "shadow_allowed" => "Would be allowed",
                    _ => "Would be denied",
                },
                counts: counts.iter().map(|count| numbers::count(*count)).collect(),
                sum: numbers::count(sum),
            });
        }
        Self {
            deciders: ["Redis", "Lease", "Remembered denial", "This node"],
            rows,
        }
    }
}

impl BucketLookup {
    pub fn new(listed: &CatalogEntry, shell: &Shell) -> Self {
        let limit = listed.limit();
        let mut fields = Vec::new();
        for part in &limit.key.parts {
            if !matches!(part, KeyPart::Constant(_)) {
                fields.push((part.name(), hint(part)));
            }
        }
        let mut plans_by = listed.plans_by().unwrap_or_default();
        if fields.iter().any(|(name, _)| *name == plans_by) {
            plans_by.clear();
        }
        Self {
            action: format!("/console/limits/{}/bucket", encode(&limit.name)),
            token: shell.token.clone(),
            fields,
            plans_by,
            example: format!("{}:…", limit.name),
        }
    }
}

/// A hint on what to enter for a part of a key.
fn hint(part: &KeyPart) -> &'static str {
    match part {
        KeyPart::ClientIp { .. } => "an address, such as 203.0.113.9",
        KeyPart::Identity(_) => "as the authenticator says it, such as partners/ada",
        KeyPart::Method => "such as GET",
        KeyPart::Host => "such as api.example.com",
        KeyPart::Route => "the name of a route",
        part if part.is_secret() => "its value; it is hashed and shown nowhere",
        _ => "its value",
    }
}

/// The facts about a limit, in words.
fn facts(listed: &CatalogEntry) -> Vec<(&'static str, String)> {
    let limit = listed.limit();
    let policy = policy(listed);
    let missing = match limit.key.on_missing {
        OnMissing::Share => "all requests that lack it share a bucket",
        OnMissing::Skip => "does not apply without it",
        OnMissing::Refuse => "refuses requests without it",
    };
    let mut facts = vec![
        ("Rate", show_policy(&policy)),
        ("Algorithm", policy.algorithm.replace('_', " ")),
        (
            "Cost",
            format!(
                "{} of a usual request",
                numbers::plural(policy.cost as usize, "token", "tokens")
            ),
        ),
    ];
    if let Some(settled) = &policy.settled {
        facts.push(("Settled", show_settled(settled)));
    }
    if let Some(counted) = &policy.counted {
        facts.push(("Counted", format!("responses with {counted}")));
    }
    facts.push(("Counts by", counts_by(listed)));
    facts.push(("Without it", missing.to_owned()));
    if let Some(by) = listed.plans_by() {
        let plans = format!("by {by}: clients with a plan have other numbers");
        facts.push(("Plans", plans));
    }
    facts.push(("Over the limit", over(&limit.on_limit)));
    facts.push(("Store away", policy.on_outage));
    if limit.rollout == Rollout::NONE {
        facts.push(("Acts", "on no request: it only counts".to_owned()));
    } else if limit.rollout != Rollout::ALL {
        let acts = "on a part of its keys, while it is rolled out";
        facts.push(("Acts", acts.to_owned()));
    }
    if limit.consistency == Consistency::Leased {
        facts.push(("Leased", "nodes take tokens ahead".to_owned()));
    }
    if limit.hidden {
        facts.push(("Hidden", "clients are not told of it".to_owned()));
    }
    facts
}

/// The routes that use a limit.
fn routes(console: &ConsoleState, limit: &str) -> Vec<(String, String)> {
    let gateway = console.admin.gateway.load_full();
    let routes = gateway.routes.iter().map(|route| &route.target.route);
    let using = routes.filter(|route| route.limits.iter().any(|used| *used.limit.name == *limit));
    using
        .map(|route| {
            (
                route.name.to_string(),
                format!("/console/routes/{}", encode(&route.name)),
            )
        })
        .collect()
}
