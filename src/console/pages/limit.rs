//! `/console/limits/{limit}`: a limit, its decisions, and whom it denies now.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use tollgate_limiter::limit::definition::Consistency;
use tollgate_limiter::limit::key::{KeyPart, OnMissing};
use tollgate_limiter::limit::rollout::Rollout;
use tollgate_limiter::request::catalog::CatalogEntry;
use tollgate_limiter::request::explanation::part_name;

use super::charts::{Charts, DecisionMinutes};
use super::limits::{counts_by, policy};
use super::list::encode;
use crate::admin::pages::buckets::find;
use crate::admin::problem_details::ProblemDetails;
use crate::admin::views::bucket::show;
use crate::admin::views::explain::over;
use crate::admin::views::words::{show_policy, show_settled};
use crate::console::live::LiveData;
use crate::console::live::totals::{DECIDERS, VERDICTS};
use crate::console::live::track::LimitTrack;
use crate::console::numbers;
use crate::console::shell::{Shell, Visitor, page};
use crate::console::state::ConsoleState;

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

/// Whom the limit denies now.
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
    match LimitParts::of(&console, &visitor, &name) {
        Ok((listed, parts)) => {
            let shell = visitor
                .shell(&console, "Limits", &name)
                .live(&format!("view=limit&name={}", encode(&name)));
            let lookup = BucketLookup::of(&listed, &shell);
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
    /// The limit called so, and what changes on its page.
    pub fn of(
        console: &ConsoleState,
        visitor: &Visitor,
        name: &str,
    ) -> Result<(CatalogEntry, Self), ProblemDetails> {
        let listed = find(&console.admin.gateway.load(), name)?;
        let live = console.live.lock();
        let none = LimitTrack::default();
        let track = live.limits.get(name).unwrap_or(&none);
        let parts = Self {
            denied: DeniedPart::of(console, visitor, name),
            decisions: DecisionTable::of(track),
            summary: LiveData::decision_summary(&live, track),
            minutes: live.decision_minutes(track),
            charts: live.decision_charts(track),
        };
        Ok((listed, parts))
    }
}

impl DeniedPart {
    fn of(console: &ConsoleState, visitor: &Visitor, limit: &str) -> Self {
        let gateway = console.admin.gateway.load_full();
        let watched = gateway
            .limit_states
            .denials
            .as_ref()
            .and_then(|denials| denials.find(limit));
        let top = watched.map(|keys| keys.top(MOST_KEYS)).unwrap_or_default();
        // They name clients. Without accounts, only this machine reaches the port.
        let shows_keys = visitor.may_look_at(limit).is_ok();
        let row = |hitter: &tollgate_limiter::request::heavy_hitters::HeavyHitter| {
            let about = if hitter.error > 0 { "about " } else { "" };
            let count = format!("{about}{}", numbers::count(hitter.count));
            match shows_keys {
                true => {
                    let key = show(&hitter.key);
                    let href = format!(
                        "/console/limits/{}/bucket?key={}",
                        encode(limit),
                        encode(&key)
                    );
                    DeniedRow { key, href, count }
                }
                false => {
                    let key = format!("client {}", console.tokens.pseudonym(hitter.key.as_bytes()));
                    DeniedRow {
                        key,
                        href: String::new(),
                        count,
                    }
                }
            }
        };
        Self {
            rows: top.iter().map(row).collect(),
            shows_keys,
        }
    }
}

impl DecisionTable {
    fn of(track: &LimitTrack) -> Self {
        let rows = VERDICTS
            .iter()
            .zip(track.totals.0)
            .filter(|(verdict, counts)| {
                ["allowed", "denied"].contains(verdict) || counts.iter().any(|count| *count > 0)
            });
        let rows = rows.map(|(verdict, counts)| DecisionRow {
            verdict: match *verdict {
                "allowed" => "Allowed",
                "denied" => "Denied",
                "degraded" => "Degraded",
                "exempt" => "Exempt",
                "shadow_allowed" => "Would be allowed",
                _ => "Would be denied",
            },
            counts: counts.iter().map(|count| numbers::count(*count)).collect(),
            sum: numbers::count(counts.iter().sum()),
        });
        Self {
            deciders: ["Redis", "Lease", "Remembered denial", "This node"],
            rows: rows.collect(),
        }
    }
}

impl BucketLookup {
    pub fn of(listed: &CatalogEntry, shell: &Shell) -> Self {
        let limit = listed.limit();
        let parts = limit
            .key
            .parts
            .iter()
            .filter(|part| !matches!(part, KeyPart::Constant(_)));
        let fields: Vec<_> = parts.map(|part| (part_name(part), hint(part))).collect();
        let plans_by = listed
            .plans_by()
            .filter(|by| fields.iter().all(|(name, _)| name != by));
        Self {
            action: format!("/console/limits/{}/bucket", encode(&limit.name)),
            token: shell.token.clone(),
            fields,
            plans_by: plans_by.unwrap_or_default(),
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
    let (limit, policy) = (listed.limit(), policy(listed));
    let missing = match limit.key.on_missing {
        OnMissing::Share => "all requests that lack it share a bucket",
        OnMissing::Skip => "does not apply without it",
        OnMissing::Refuse => "refuses requests without it",
    };
    let acts = match limit.rollout {
        Rollout::ALL => None,
        Rollout::NONE => Some("on no request: it only counts".to_owned()),
        _ => Some("on a part of its keys, while it is rolled out".to_owned()),
    };
    let leased =
        (limit.consistency == Consistency::Leased).then(|| "nodes take tokens ahead".to_owned());
    let plans = listed
        .plans_by()
        .map(|by| format!("by {by}: clients with a plan have other numbers"));
    let hidden = limit
        .hidden
        .then(|| "clients are not told of it".to_owned());
    let facts = [
        ("Rate", Some(show_policy(&policy))),
        ("Algorithm", Some(policy.algorithm.replace('_', " "))),
        (
            "Cost",
            Some(format!(
                "{} of a usual request",
                numbers::plural(policy.cost as usize, "token", "tokens")
            )),
        ),
        ("Settled", policy.settled.as_ref().map(show_settled)),
        (
            "Counted",
            policy
                .counted
                .as_ref()
                .map(|counted| format!("responses with {counted}")),
        ),
        ("Counts by", Some(counts_by(listed))),
        ("Without it", Some(missing.to_owned())),
        ("Plans", plans),
        ("Over the limit", Some(over(&limit.on_limit))),
        ("Store away", Some(policy.on_outage.clone())),
        ("Acts", acts),
        ("Leased", leased),
        ("Hidden", hidden),
    ];
    facts
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
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
