//! `/limits` and `/buckets`: what limits there are, and single buckets of theirs, looked at and changed.
//!
//! Guarantees that every change leaves a line in the log and a count, with who asked. Keys are shown as buckets have them,
//! with secrets hashed; the log has only a hash of the key.

use std::fmt::Write as _;
use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tollgate_limiter::algorithm::concurrency::Scope;
use tollgate_limiter::algorithm::level::Level;
use tollgate_limiter::decide::plans::cache::Holds;
use tollgate_limiter::limit::algorithm_kind::{Algorithm, WindowLength};
use tollgate_limiter::limit::cost::{ByResponse, Field};
use tollgate_limiter::limit::key::{Key, OnMissing};
use tollgate_limiter::limit::spec::{Consistency, Limit, OnOutage};
use tollgate_limiter::limit::units::show_rate;
use tollgate_limiter::request::catalog::Listed;
use tollgate_limiter::request::explanation::{AppliedLimit, BucketUse, PlanOrigin, part_name};
use tollgate_limiter::store::inspect::TokenGrant;

use super::Panel;
use super::describe::{BucketQuery, Pairs};
use super::desk::{Given, Source};
use super::guard::{OPERATOR, REASON};
use super::problem::{Json, Problem};
use crate::config::nearest;
use crate::gateway::Gateway;

/// A limit's numbers, or a plan's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyView {
    /// `token_bucket`, `fixed_window`, `sliding_window` or `concurrency`.
    pub algorithm: String,
    /// As in the file; of a fixed window with its time zone.
    pub rate: String,
    /// Tokens in a full bucket, or of a window.
    pub burst: u64,
    /// Tokens that a request takes; where the response settles it, those that are reserved.
    pub cost: u64,
    /// How it is settled after the response; none: it is known before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<SettledView>,
    pub on_outage: String,
    /// Microseconds for which a node may hold tokens that it took ahead; none: the store is asked for each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_us: Option<u64>,
    /// The client's plan, which these numbers are of; none: they are the limit's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Where the plan is from, or was looked for; none: the limit has no plans, or nothing tells which one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_from: Option<String>,
}

/// Where a response says what its request cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledView {
    /// As in the file: `response_header x-tokens-used`.
    pub by: String,
    /// Tokens at most.
    pub max: u64,
}

/// How full a bucket is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelView {
    /// Whole tokens.
    pub remaining: u64,
    /// Seconds until a request of the policy's cost would pass; 0 when it would now.
    pub retry_after: f64,
    /// Seconds until it is full.
    pub reset_after: f64,
    pub full: bool,
}

/// A bucket that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BucketView {
    pub limit: String,
    pub key: String,
    pub policy: PolicyView,
    #[serde(flatten)]
    pub level: LevelView,
    pub source: Source,
    /// Why Redis did not say it, where it should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// What the numbers go by, where that is a guess.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A bucket that was changed, or would have been.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeView {
    /// `reset` or `grant`.
    pub action: String,
    pub dry_run: bool,
    pub limit: String,
    pub key: String,
    /// How the log calls the key.
    pub logged_as: String,
    pub before: LevelView,
    pub after: LevelView,
    pub source: Source,
    /// Why other nodes may go by what they held, until time has taken it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_told: Option<String>,
}

/// A limit in the list.
#[derive(Debug, Serialize)]
pub struct LimitView {
    limit: String,
    policy: PolicyView,
    /// What it counts by, in the words of a bucket's query.
    key: Vec<String>,
    on_missing: &'static str,
    /// What tells a client's plan, for whom other numbers hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    plans_by: Option<String>,
    consistency: &'static str,
    buckets: String,
}

/// `GET /limits`
pub async fn list(State(panel): State<Panel>) -> Json<Vec<LimitView>> {
    Json(panel.gateway.load().limits.iter().map(LimitView::of).collect())
}

/// `GET /buckets/{limit}`
pub async fn peek(
    State(panel): State<Panel>,
    Path(limit): Path<String>,
    Query(pairs): Query<Pairs>,
) -> Result<Json<BucketView>, Problem> {
    let query = BucketQuery::read(&pairs)?;
    if query.tokens.is_some() || query.dry_run {
        return Err(Problem::bad_request("looking at a bucket takes neither tokens nor dry_run"));
    }
    let listed = find(&panel.gateway.load(), &limit)?;
    let (taken, applied) = meet(&panel, &query, &listed).await?;
    let look = if query.local { panel.desk.peek_local(&taken) } else { panel.desk.peek(&taken).await };
    Ok(Json(BucketView {
        limit: applied.limit.name.to_string(),
        key: show(taken.key()),
        policy: PolicyView::of(&applied),
        level: look.level.into(),
        source: look.source,
        store: look.away,
        note: query.lacks_plan(&listed).map(|by| format!("as without a plan: plans go by {by}")),
    }))
}

/// `DELETE /buckets/{limit}`
pub async fn reset(
    State(panel): State<Panel>,
    Path(limit): Path<String>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Query(pairs): Query<Pairs>,
) -> Result<Json<ChangeView>, Problem> {
    let query = BucketQuery::read(&pairs)?;
    if query.tokens.is_some() {
        return Err(Problem::bad_request("a reset gives all tokens back")
            .hint(format!("to give some back: POST /buckets/{limit}/grant?tokens=…")));
    }
    change(&panel, &limit, &query, TokenGrant::All, &Asker::of(peer, &headers)?).await
}

/// `POST /buckets/{limit}/grant`
pub async fn grant(
    State(panel): State<Panel>,
    Path(limit): Path<String>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Query(pairs): Query<Pairs>,
) -> Result<Json<ChangeView>, Problem> {
    let query = BucketQuery::read(&pairs)?;
    let tokens = query.tokens.as_deref().unwrap_or_default().parse().unwrap_or(0);
    if tokens == 0 {
        return Err(Problem::bad_request("tokens is a whole number of at least 1").hint("add tokens=5"));
    }
    change(&panel, &limit, &query, TokenGrant::Tokens(tokens), &Asker::of(peer, &headers)?).await
}

async fn change(
    panel: &Panel,
    limit: &str,
    query: &BucketQuery,
    gift: TokenGrant,
    asker: &Asker,
) -> Result<Json<ChangeView>, Problem> {
    if query.local {
        return Err(Problem::bad_request("a change is one of the whole fleet: leave local out"));
    }
    let listed = find(&panel.gateway.load(), limit)?;
    // Tokens of a bucket that is thought to be smaller than it is would be more than they should.
    if let (TokenGrant::Tokens(_), Some(by)) = (gift, query.lacks_plan(&listed)) {
        return Err(Problem::bad_request(format!("the limit \"{limit}\" has plans, by {by}"))
            .hint(format!("add {by}=…, with nothing after it for a client without a plan")));
    }
    let (taken, _) = meet(panel, query, &listed).await?;
    let Some(charge) = taken.tokens() else {
        return Err(Problem::bad_request(format!("the limit \"{limit}\" counts requests in flight"))
            .hint("slots come back when their requests have ended, or their node has: there is nothing to give back"));
    };
    let done =
        if query.dry_run { panel.desk.rehearse(charge, gift).await } else { panel.desk.give(charge, gift).await };
    let given = done.map_err(|error| Problem::store_away(&error))?;
    let view = ChangeView::of(listed.limit(), &charge.key, gift, query.dry_run, &given);
    if !query.dry_run {
        asker.log(&view, gift);
    }
    Ok(Json(view))
}

/// By the client's plan, read for the occasion if this node does not have it.
async fn meet(panel: &Panel, query: &BucketQuery, listed: &Listed) -> Result<(BucketUse, AppliedLimit), Problem> {
    let met = query.meet(listed)?;
    if panel.desk.read_plans(met.1.lookup.as_slice()).await { query.meet(listed) } else { Ok(met) }
}

fn find(gateway: &Gateway, limit: &str) -> Result<Listed, Problem> {
    gateway.limits.find(limit).cloned().ok_or_else(|| {
        let problem = Problem::unknown_limit(format!("no limit is called \"{}\"", limit.escape_debug()));
        let names = gateway.limits.iter().map(|listed| &*listed.limit().name);
        match nearest(limit, names) {
            Some(likely) => problem.hint(format!("did you mean \"{likely}\"?")),
            None => problem.hint("GET /limits lists them"),
        }
    })
}

/// Who asks for a change, for the log.
struct Asker {
    peer: SocketAddr,
    operator: String,
    reason: String,
}

impl Asker {
    fn of(peer: SocketAddr, headers: &HeaderMap) -> Result<Self, Problem> {
        const LONGEST: usize = 200;
        let text = |name: &str| {
            let text = headers.get(name).map_or(Ok(""), |value| value.to_str()).ok();
            let text = text.filter(|text| text.len() <= LONGEST).map(|text| text.trim().to_owned());
            text.ok_or_else(|| Problem::bad_request(format!("{name} is up to {LONGEST} characters of ASCII")))
        };
        Ok(Self { peer, operator: text(OPERATOR)?, reason: text(REASON)? })
    }

    fn log(&self, view: &ChangeView, gift: TokenGrant) {
        let tokens = match gift {
            TokenGrant::All => None,
            TokenGrant::Tokens(tokens) => Some(tokens),
        };
        tracing::info!(
            action = view.action, limit = view.limit, bucket = view.logged_as, tokens,
            before = view.before.remaining, after = view.after.remaining, not_told = view.not_told,
            peer = %self.peer, operator = self.operator, reason = self.reason,
            "an operator changed a bucket"
        );
    }
}

impl PolicyView {
    pub fn of(applied: &AppliedLimit) -> Self {
        let AppliedLimit { limit, plan, algorithm, counting, cost, later, .. } = applied;
        let leased_us = Some(counting.lease_us()).filter(|lease_us| *lease_us > 0);
        let plan_from = applied.origin.as_ref().and_then(|origin| from(origin, plan.is_some()));
        let settled = later.as_deref().map(SettledView::of);
        Self { leased_us, plan: plan.clone(), plan_from, settled, ..Self::with(limit, algorithm, cost.get()) }
    }

    fn with(limit: &Limit, algorithm: &Algorithm, cost: u64) -> Self {
        let on_outage = match limit.on_outage {
            OnOutage::Local => "local",
            OnOutage::Allow => "allow",
            OnOutage::Deny => "deny",
        };
        let settled = limit.cost.later().map(|later| SettledView::of(later));
        Self {
            algorithm: algorithm.manner().name().to_owned(),
            rate: show_algorithm(algorithm),
            burst: algorithm.burst().get(),
            cost,
            settled,
            on_outage: on_outage.to_owned(),
            leased_us: None,
            plan: None,
            plan_from: None,
        }
    }
}

impl SettledView {
    fn of(later: &ByResponse) -> Self {
        let by = match &later.field {
            Field::Header(name) => format!("response_header {name}"),
            Field::Json(path) => format!("response_json {path}"),
        };
        Self { by, max: later.max.get() }
    }
}

fn show_algorithm(algorithm: &Algorithm) -> String {
    match algorithm {
        Algorithm::TokenBucket { rate, .. } | Algorithm::SlidingWindow { rate } => {
            show_rate(rate.tokens, rate.period_us)
        }
        Algorithm::FixedWindow { rate, zone } => {
            let place = zone.as_ref().map_or_else(String::new, |zone| format!(" in {zone}"));
            match rate.per {
                WindowLength::Micros(period_us) => show_rate(rate.tokens, period_us) + &place,
                WindowLength::Month => format!("{}/month{place}", rate.tokens),
            }
        }
        Algorithm::Concurrency { most, scope: Scope::Fleet } => format!("{most} in flight"),
        Algorithm::Concurrency { most, scope: Scope::Node } => format!("{most} in flight on each node"),
    }
}

/// Where a plan is from, in words. `planned`: there is one.
fn from(origin: &PlanOrigin, planned: bool) -> Option<String> {
    let (hash, reading) = match origin {
        PlanOrigin::File => return planned.then(|| "the file".to_owned()),
        PlanOrigin::Hash { hash, reading } => (hash, reading),
    };
    let said = match reading.as_ref().map(|reading| &reading.holds) {
        None => return Some(format!("the hash {hash}, which was not read: the limit's own rate holds")),
        Some(Holds::Plan) => String::new(),
        Some(Holds::Nothing) => ", which has none".to_owned(),
        Some(Holds::Other(why)) => format!(", which has none that can be read: {why}"),
    };
    let age = reading.as_ref().map_or(0, |reading| reading.age_us) as f64 / 1_000_000.0;
    Some(format!("the hash {hash}{said}; read {age:.1}s ago"))
}

impl From<Level> for LevelView {
    fn from(level: Level) -> Self {
        let seconds = |us: u64| us as f64 / 1_000_000.0;
        Self {
            remaining: level.remaining,
            retry_after: seconds(level.retry_after_us),
            reset_after: seconds(level.reset_after_us),
            full: level.reset_after_us == 0,
        }
    }
}

impl ChangeView {
    fn of(limit: &Limit, key: &Key, gift: TokenGrant, dry_run: bool, given: &Given) -> Self {
        let action = if gift == TokenGrant::All { "reset" } else { "grant" };
        Self {
            action: action.to_owned(),
            dry_run,
            limit: limit.name.to_string(),
            key: show(key),
            logged_as: redacted(&limit.name, key),
            before: given.before.into(),
            after: given.after.into(),
            source: given.source,
            not_told: given.untold.as_ref().map(|error| format!("other nodes may not have been told: {error}")),
        }
    }
}

impl LimitView {
    fn of(listed: &Listed) -> Self {
        let limit = listed.limit();
        let on_missing = match limit.key.on_missing {
            OnMissing::Share => "share",
            OnMissing::Skip => "skip",
            OnMissing::Refuse => "refuse",
        };
        Self {
            limit: limit.name.to_string(),
            policy: PolicyView::with(limit, &limit.algorithm, limit.cost.usual(limit.algorithm.burst()).get()),
            key: limit.key.parts.iter().map(part_name).collect(),
            on_missing,
            plans_by: listed.plans_by(),
            consistency: match limit.consistency {
                Consistency::Exact => "exact",
                Consistency::Leased => "leased",
            },
            buckets: format!("/buckets/{}", limit.name),
        }
    }
}

/// A key as text; its bytes are ASCII, whatever a client sent.
pub fn show(key: &Key) -> String {
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}

/// Tells buckets apart without saying whose they are.
fn redacted(limit: &str, key: &Key) -> String {
    let mut text = format!("{limit}:#");
    for byte in &Sha256::digest(key.as_bytes())[..8] {
        // Writing to memory cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
