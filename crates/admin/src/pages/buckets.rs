//! `/buckets`: reads a bucket of a limit, makes it full, or gives tokens back.
//!
//! Every change leaves a line in the log and a count, with the operator who asked for it. The log
//! has only a hash of the key.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, FromRequestParts, Path, Query, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use tollgate_limiter::request::catalog::CatalogEntry;
use tollgate_limiter::request::explanation::{AppliedLimit, BucketUse};
use tollgate_limiter::store::inspect::TokenGrant;

use crate::browser_guard::{OPERATOR, REASON};
use crate::caller::{AdminCaller, AdminOperation, AdminRecord};
use crate::problem_details::{PrettyJson, ProblemDetails};
use crate::query::{BucketQuery, Pairs};
use crate::state::AdminState;
use crate::views::bucket::{BucketView, ChangeView, show};
use crate::views::policy::PolicyView;
use tollgate_gateway::Gateway;
use tollgate_spec::spelling::nearest;

/// `GET /buckets/{limit}`: the level of a bucket; changes nothing
#[utoipa::path(
    get, path = "/buckets/{limit}", operation_id = "peekBucket", tag = "buckets",
    params(
        ("limit" = String, Path, description = "The limit's name"),
        ("key" = Option<String>, Query, description = "The whole key, as /explain shows it"),
        ("by" = Option<std::collections::BTreeMap<String, String>>, Query, style = Form, explode, description = "Parts of a request, each a parameter of its own: client_ip, method, host, route, header.NAME, cookie.NAME, query.NAME, path.NAME, body.NAME, identity.id, identity.plan, identity.label.NAME, claim.NAME"),
        ("local" = Option<bool>, Query, description = "What this node holds, not the store")
    ),
    responses(
        (status = 200, body = BucketView, description = "Its level"),
        (status = 404, body = ProblemDetails, content_type = "application/problem+json", description = "No such limit")
    )
)]
pub async fn peek(
    State(state): State<AdminState>,
    caller: AdminCaller,
    Path(limit): Path<String>,
    Query(pairs): Query<Pairs>,
) -> Result<PrettyJson<BucketView>, ProblemDetails> {
    caller.authorize(AdminOperation::ViewBuckets(&limit))?;
    look(&state, &limit, &pairs).await.map(PrettyJson)
}

/// The bucket of `limit` that `pairs` describe.
///
/// # Errors
/// When there is no such limit, or no such bucket.
pub async fn look(
    state: &AdminState,
    limit: &str,
    pairs: &Pairs,
) -> Result<BucketView, ProblemDetails> {
    let query = BucketQuery::read(pairs)?;
    if query.tokens.is_some() || query.dry_run {
        return Err(ProblemDetails::bad_request(
            "looking at a bucket takes neither tokens nor dry_run",
        ));
    }
    let listed = find(&state.gateway.load(), limit)?;
    let (bucket, applied) = resolve(state, &query, &listed).await?;
    let reading = if query.local {
        state.buckets.peek_local(&bucket)
    } else {
        state.buckets.peek(&bucket, applied.limit.on_outage).await
    };
    Ok(BucketView {
        limit: applied.limit.name.to_string(),
        key: show(bucket.key()),
        logged_as: bucket.key().redacted(&applied.limit.name),
        policy: PolicyView::new(&applied),
        level: reading.level.into(),
        source: reading.source,
        store: reading.away,
        note: query
            .lacks_plan(&listed)
            .map(|by| format!("as without a plan: plans go by {by}")),
    })
}

/// `DELETE /buckets/{limit}`: makes a bucket full, in the whole fleet
#[utoipa::path(
    delete, path = "/buckets/{limit}", operation_id = "resetBucket", tag = "buckets",
    params(
        ("limit" = String, Path, description = "The limit's name"),
        ("key" = Option<String>, Query, description = "The whole key, as /explain shows it"),
        ("by" = Option<std::collections::BTreeMap<String, String>>, Query, style = Form, explode, description = "Parts of a request, each a parameter of its own: client_ip, method, host, route, header.NAME, cookie.NAME, query.NAME, path.NAME, body.NAME, identity.id, identity.plan, identity.label.NAME, claim.NAME"),
        ("dry_run" = Option<bool>, Query, description = "Says what would change, and changes nothing"),
        ("X-Tollgate-Operator" = String, Header, description = "Who asks for the change, for the log"),
        ("X-Tollgate-Reason" = Option<String>, Header, description = "Why, for the log")
    ),
    responses(
        (status = 200, body = ChangeView, description = "Its level before and after"),
        (status = 404, body = ProblemDetails, content_type = "application/problem+json", description = "No such limit"),
        (status = 503, body = ProblemDetails, content_type = "application/problem+json", description = "The store is away")
    )
)]
pub async fn reset(
    State(state): State<AdminState>,
    Path(limit): Path<String>,
    author: ChangeAuthor,
    Query(pairs): Query<Pairs>,
) -> Result<PrettyJson<ChangeView>, ProblemDetails> {
    let query = BucketQuery::read(&pairs)?;
    if query.tokens.is_some() {
        return Err(
            ProblemDetails::bad_request("a reset gives all tokens back").hint(format!(
                "to give some back: POST /buckets/{limit}/grant?tokens=…"
            )),
        );
    }
    change(&state, &limit, &query, TokenGrant::All, &author)
        .await
        .map(PrettyJson)
}

/// `POST /buckets/{limit}/grant`: gives tokens back to a bucket, at most until it is full
#[utoipa::path(
    post, path = "/buckets/{limit}/grant", operation_id = "grantTokens", tag = "buckets",
    params(
        ("limit" = String, Path, description = "The limit's name"),
        ("tokens" = u64, Query, minimum = 1, description = "How many"),
        ("key" = Option<String>, Query, description = "The whole key, as /explain shows it"),
        ("by" = Option<std::collections::BTreeMap<String, String>>, Query, style = Form, explode, description = "Parts of a request, each a parameter of its own: client_ip, method, host, route, header.NAME, cookie.NAME, query.NAME, path.NAME, body.NAME, identity.id, identity.plan, identity.label.NAME, claim.NAME"),
        ("dry_run" = Option<bool>, Query, description = "Says what would change, and changes nothing"),
        ("X-Tollgate-Operator" = String, Header, description = "Who asks for the change, for the log"),
        ("X-Tollgate-Reason" = Option<String>, Header, description = "Why, for the log")
    ),
    responses(
        (status = 200, body = ChangeView, description = "Its level before and after"),
        (status = 404, body = ProblemDetails, content_type = "application/problem+json", description = "No such limit"),
        (status = 503, body = ProblemDetails, content_type = "application/problem+json", description = "The store is away")
    )
)]
pub async fn grant(
    State(state): State<AdminState>,
    Path(limit): Path<String>,
    author: ChangeAuthor,
    Query(pairs): Query<Pairs>,
) -> Result<PrettyJson<ChangeView>, ProblemDetails> {
    let query = BucketQuery::read(&pairs)?;
    let tokens = query
        .tokens
        .as_deref()
        .unwrap_or_default()
        .parse()
        .unwrap_or(0);
    if tokens == 0 {
        return Err(
            ProblemDetails::bad_request("tokens is a whole number of at least 1")
                .hint("add tokens=5"),
        );
    }
    change(&state, &limit, &query, TokenGrant::Tokens(tokens), &author)
        .await
        .map(PrettyJson)
}

/// Gives `gift` to the bucket that `query` describes, or says what that would do.
///
/// # Errors
/// When there is no such bucket, or the store is away: then nothing has changed.
pub async fn change(
    state: &AdminState,
    limit: &str,
    query: &BucketQuery,
    gift: TokenGrant,
    author: &ChangeAuthor,
) -> Result<ChangeView, ProblemDetails> {
    author
        .caller
        .authorize(AdminOperation::ChangeBuckets(limit))?;
    if query.local {
        return Err(ProblemDetails::bad_request(
            "a change is made in the whole fleet: leave local out",
        ));
    }
    let listed = find(&state.gateway.load(), limit)?;
    // Tokens of a bucket that is thought to be smaller than it is would be more than they should.
    if let (TokenGrant::Tokens(_), Some(by)) = (gift, query.lacks_plan(&listed)) {
        return Err(ProblemDetails::bad_request(format!(
            "the limit \"{limit}\" has plans, by {by}"
        ))
        .hint(format!(
            "add {by}=…, with nothing after it for a client without a plan"
        )));
    }
    let (bucket, _) = resolve(state, query, &listed).await?;
    let Some(charge) = bucket.tokens() else {
        return Err(ProblemDetails::bad_request(format!("the limit \"{limit}\" counts requests in flight")).hint(
            "permits come back when their requests have ended, or their node has: there is nothing to give back",
        ));
    };
    let done = if query.dry_run {
        state.buckets.preview(charge, gift).await
    } else {
        state.buckets.apply(charge, gift).await
    };
    let change = done.map_err(|error| ProblemDetails::store_away(&error))?;
    let view = ChangeView::new(listed.limit(), &charge.key, gift, query.dry_run, &change);
    if !query.dry_run {
        author.log(&view, gift).await;
    }
    Ok(view)
}

/// The bucket that is meant, with the client's plan: it is read if this node does not have it.
async fn resolve(
    state: &AdminState,
    query: &BucketQuery,
    listed: &CatalogEntry,
) -> Result<(BucketUse, AppliedLimit), ProblemDetails> {
    let resolved = query.resolve(listed)?;
    if state.buckets.read_plans(resolved.1.lookup.as_slice()).await {
        query.resolve(listed)
    } else {
        Ok(resolved)
    }
}

/// The limit called so.
///
/// # Errors
/// When there is none.
pub fn find(gateway: &Gateway, limit: &str) -> Result<CatalogEntry, ProblemDetails> {
    gateway.limits.find(limit).cloned().ok_or_else(|| {
        let problem = ProblemDetails::unknown_limit(format!(
            "no limit is called \"{}\"",
            limit.escape_debug()
        ));
        let names = gateway.limits.iter().map(|listed| &*listed.limit().name);
        match nearest(limit, names) {
            Some(likely) => problem.hint(format!("did you mean \"{likely}\"?")),
            None => problem.hint("GET /limits lists them"),
        }
    })
}

/// The operator who asks for a change, for the log.
pub struct ChangeAuthor {
    caller: AdminCaller,
    peer: SocketAddr,
    operator: String,
    reason: String,
}

/// The longest name of an operator, and the longest reason.
const LONGEST: usize = 200;

/// The author of a request by a program, as its fields say. An account counts more than a field.
impl FromRequestParts<AdminState> for ChangeAuthor {
    type Rejection = ProblemDetails;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &AdminState,
    ) -> Result<Self, ProblemDetails> {
        let caller = AdminCaller::from_request_parts(parts, state).await?;
        let peer = parts
            .extensions
            .get::<ConnectInfo<SocketAddr>>()
            .map(|ConnectInfo(peer)| *peer);
        let peer =
            peer.ok_or_else(|| ProblemDetails::bad_request("the connection has no address"))?;
        Self::new(caller, peer, &parts.headers)
    }
}

impl ChangeAuthor {
    fn new(
        caller: AdminCaller,
        peer: SocketAddr,
        headers: &HeaderMap,
    ) -> Result<Self, ProblemDetails> {
        Ok(Self {
            peer,
            operator: caller.account_or(field(headers, OPERATOR)?),
            reason: field(headers, REASON)?,
            caller,
        })
    }

    /// An operator who has filled in a form: the reason is needed, and without accounts the name.
    ///
    /// # Errors
    /// When one is missing, or no line of text.
    pub fn named(
        caller: AdminCaller,
        peer: SocketAddr,
        operator: &str,
        reason: &str,
    ) -> Result<Self, ProblemDetails> {
        let operator = caller.account_or(operator.to_owned());
        Ok(Self {
            caller,
            peer,
            operator: line("your name", &operator)?,
            reason: line("the reason", reason)?,
        })
    }

    async fn log(&self, view: &ChangeView, gift: TokenGrant) {
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
        let before_and_after = format!(
            "{} → {}: {}",
            view.before.remaining, view.after.remaining, self.reason
        );
        self.caller
            .record_change(AdminRecord {
                action: &view.action,
                object: &format!("bucket {}", view.logged_as),
                detail: &before_and_after,
            })
            .await;
    }
}

/// The text of a header field, which may be missing.
fn field(headers: &HeaderMap, name: &str) -> Result<String, ProblemDetails> {
    let Some(value) = headers.get(name) else {
        return Ok(String::new());
    };
    match value.to_str() {
        Ok(text) if text.len() <= LONGEST => Ok(text.trim().to_owned()),
        Ok(_) | Err(_) => Err(ProblemDetails::bad_request(format!(
            "{name} is up to {LONGEST} characters of ASCII"
        ))),
    }
}

/// A line of text that must not be empty.
fn line(name: &str, text: &str) -> Result<String, ProblemDetails> {
    let line = text.trim();
    if line.is_empty() || line.len() > LONGEST || text.contains(char::is_control) {
        return Err(ProblemDetails::bad_request(format!(
            "{name} is a line of up to {LONGEST} bytes"
        )));
    }
    Ok(line.to_owned())
}
