//! `/console/limits/{limit}/bucket`: a bucket, its level, and the forms that change it.
//!
//! A change takes two steps: what it would do, and then that it is done. The URL of a bucket has
//! its key as it is shown, so no secret stands in the browser's history.

use std::net::SocketAddr;
use std::sync::Arc;

use askama::Template;
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use tollgate_limiter::request::catalog::CatalogEntry;
use tollgate_limiter::store::inspect::TokenGrant;

use super::limit::BucketLookup;
use super::list::encode;
use crate::forms::ConsoleForm;
use crate::shell::{Shell, Visitor, page_with};
use crate::state::ConsoleState;
use tollgate_admin::bucket_service::LevelSource;
use tollgate_admin::caller::AdminCaller;
use tollgate_admin::pages::buckets::{ChangeAuthor, change, find, look};
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_admin::query::{BucketQuery, Pairs};
use tollgate_admin::views::bucket::{BucketView, ChangeView};
use tollgate_admin::views::words::{show_level, show_policy, show_seconds, show_wait};

#[derive(Template)]
#[template(path = "bucket.html")]
struct BucketPage {
    shell: Shell,
    limit: String,
    limit_path: String,
    lookup: BucketLookup,
    /// Why something was not done.
    problem: Option<ProblemDetails>,
    change: Option<ShownChange>,
    bucket: Option<ShownBucket>,
    /// Whether the visitor may change it.
    may_change: bool,
}

/// A bucket in words.
struct ShownBucket {
    key: String,
    logged_as: String,
    remaining: u64,
    burst: u64,
    level: String,
    wait: String,
    full: String,
    policy: String,
    source: &'static str,
    /// The store does not say it, and why.
    store: String,
    note: String,
    action: String,
    /// The fields that name the bucket.
    named_by: Pairs,
    can_change: bool,
}

/// A change in words: one that would be made, or that was.
struct ShownChange {
    is_dry_run: bool,
    what: String,
    before: String,
    after: String,
    source: &'static str,
    logged_as: String,
    not_told: String,
    /// The fields of the form that makes it.
    fields: Pairs,
    action: String,
}

/// The change that a form asks for.
struct RequestedChange {
    gift: TokenGrant,
    author: ChangeAuthor,
    is_dry_run: bool,
}

/// `GET /console/limits/{limit}/bucket`
pub async fn show(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    Path(limit): Path<String>,
    Query(pairs): Query<Pairs>,
) -> Response {
    if let Err(problem) = visitor.may_look_at(&limit) {
        return console.refuse(&visitor, &problem);
    }
    let listed = match find(&console.admin.gateway.load(), &limit) {
        Ok(listed) => listed,
        Err(problem) => return console.refuse(&visitor, &problem),
    };
    let mut page = BucketPage::new(&console, &visitor, &listed);
    if !pairs.is_empty() {
        page.look(&console, &limit, &pairs).await;
    }
    page.into_response()
}

/// `POST /console/limits/{limit}/bucket`
pub async fn submit(
    State(console): State<ConsoleState>,
    Path(limit): Path<String>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    form: ConsoleForm,
) -> Response {
    if let Err(problem) = form.visitor.may_look_at(&limit) {
        return console.refuse(&form.visitor, &problem);
    }
    let listed = match find(&console.admin.gateway.load(), &limit) {
        Ok(listed) => listed,
        Err(problem) => return console.refuse(&form.visitor, &problem),
    };
    let named_by = match form.field("step") {
        "look" => return look_up(&console, &listed, &form).await,
        _ => form.below("bucket."),
    };
    let mut page = BucketPage::new(&console, &form.visitor, &listed);
    match carry_out(&console, &limit, &form, peer, &named_by).await {
        Ok(done) => page.change = Some(done),
        Err(problem) => page.problem = Some(problem),
    }
    page.look(&console, &limit, &named_by).await;
    page.into_response()
}

/// Goes on to the bucket that is described.
async fn look_up(console: &ConsoleState, listed: &CatalogEntry, form: &ConsoleForm) -> Response {
    let limit = &listed.limit().name;
    let by = listed.plans_by().unwrap_or_default();
    let mut described = form.below("part.");
    // A part of the key that is left out is lacking. A client without a known plan has none.
    described.retain(|(name, value)| !value.is_empty() || *name == by);
    match look(&console.admin, limit, &described).await {
        Ok(bucket) => {
            let mut query = format!("key={}", encode(&bucket.key));
            // A secret stands in no URL. Then the bucket is shown as that of a client without a
            // plan.
            let is_secret = listed
                .limit()
                .plans
                .as_ref()
                .is_some_and(|plans| plans.by.is_secret());
            if let Some((name, value)) =
                described.iter().find(|(name, _)| *name == by && !is_secret)
            {
                query += &format!("&{}={}", encode(name), encode(value));
            }
            Redirect::to(&format!("/console/limits/{}/bucket?{query}", encode(limit)))
                .into_response()
        }
        Err(problem) => {
            let mut page = BucketPage::new(console, &form.visitor, listed);
            page.problem = Some(problem);
            page.into_response()
        }
    }
}

/// Makes the change that a form asks for, or says what it would do.
async fn carry_out(
    console: &ConsoleState,
    limit: &str,
    form: &ConsoleForm,
    peer: SocketAddr,
    named_by: &Pairs,
) -> Result<ShownChange, ProblemDetails> {
    let requested = RequestedChange::read(form, peer)?;
    let mut query = BucketQuery::read(named_by)?;
    query.dry_run = requested.is_dry_run;
    if !requested.is_dry_run {
        console.tokens.spend(form.token)?;
    }
    let view = change(
        &console.admin,
        limit,
        &query,
        requested.gift,
        &requested.author,
    )
    .await?;
    Ok(ShownChange::new(view, form, limit))
}

impl RequestedChange {
    fn read(form: &ConsoleForm, peer: SocketAddr) -> Result<Self, ProblemDetails> {
        let gift = match form.field("action") {
            "reset" => TokenGrant::All,
            "grant" => {
                let tokens = form.field("tokens").parse().unwrap_or(0);
                if tokens == 0 {
                    return Err(ProblemDetails::bad_request(
                        "the tokens to give back are a whole number of at least 1",
                    ));
                }
                TokenGrant::Tokens(tokens)
            }
            _ => {
                return Err(ProblemDetails::bad_request(
                    "the form asks for neither a reset nor a grant",
                ));
            }
        };
        let caller = AdminCaller::new(Arc::new(form.visitor.caller()?.clone()));
        let author =
            ChangeAuthor::named(caller, peer, form.field("operator"), form.field("reason"))?;
        Ok(Self {
            gift,
            author,
            is_dry_run: form.field("step") != "apply",
        })
    }
}

impl BucketPage {
    fn new(console: &ConsoleState, visitor: &Visitor, listed: &CatalogEntry) -> Self {
        let limit = listed.limit().name.to_string();
        let shell = visitor.shell(console, "Limits", &format!("A bucket of {limit}"));
        Self {
            may_change: visitor.may_change(&limit),
            lookup: BucketLookup::new(listed, &shell),
            shell,
            limit_path: format!("/console/limits/{}", encode(&limit)),
            limit,
            problem: None,
            change: None,
            bucket: None,
        }
    }

    /// Looks at the bucket that `pairs` describe.
    async fn look(&mut self, console: &ConsoleState, limit: &str, pairs: &Pairs) {
        match look(&console.admin, limit, pairs).await {
            Ok(view) => self.bucket = Some(ShownBucket::new(view, limit, pairs)),
            Err(problem) => self.problem = Some(self.problem.take().unwrap_or(problem)),
        }
    }

    fn into_response(self) -> Response {
        page_with(&self, self.problem.as_ref().map(ProblemDetails::head))
    }
}

impl ShownBucket {
    fn new(view: BucketView, limit: &str, named_by: &Pairs) -> Self {
        let BucketView {
            key,
            logged_as,
            policy,
            level,
            source,
            store,
            note,
            ..
        } = view;
        Self {
            remaining: level.remaining.min(policy.burst),
            burst: policy.burst,
            level: show_level(&level, policy.burst),
            wait: show_wait(&level, policy.cost),
            full: if level.full {
                "now".to_owned()
            } else {
                format!("in {}", show_seconds(level.reset_after))
            },
            can_change: policy.algorithm != "concurrency",
            policy: format!(
                "{}, cost {}, on outage: {}",
                show_policy(&policy),
                policy.cost,
                policy.on_outage
            ),
            source: said_by(source),
            store: store.unwrap_or_default(),
            note: note.unwrap_or_default(),
            action: format!("/console/limits/{}/bucket", encode(limit)),
            named_by: named_by.clone(),
            key,
            logged_as,
        }
    }
}

impl ShownChange {
    fn new(view: ChangeView, form: &ConsoleForm, limit: &str) -> Self {
        let what = match (view.action.as_str(), view.dry_run) {
            ("reset", true) => "A reset would make the bucket full".to_owned(),
            ("reset", false) => "The bucket was made full".to_owned(),
            (_, true) => format!(
                "{} would be given back, at most until it is full",
                tokens(form.field("tokens"))
            ),
            (_, false) => format!(
                "{} were given back, at most until it was full",
                tokens(form.field("tokens"))
            ),
        };
        let mut fields = form.fields.clone();
        fields.retain(|(name, _)| name.starts_with("bucket.") || KEPT.contains(&&**name));
        Self {
            is_dry_run: view.dry_run,
            what,
            before: tokens(&view.before.remaining.to_string()),
            after: tokens(&view.after.remaining.to_string()),
            source: said_by(view.source),
            logged_as: view.logged_as,
            not_told: view.not_told.unwrap_or_default(),
            fields,
            action: format!("/console/limits/{}/bucket", encode(limit)),
        }
    }
}

/// The fields of a change that its second step has too, besides those that name the bucket.
const KEPT: [&str; 4] = ["action", "tokens", "operator", "reason"];

fn tokens(number: &str) -> String {
    if number == "1" {
        "one token".to_owned()
    } else {
        format!("{number} tokens")
    }
}

fn said_by(source: LevelSource) -> &'static str {
    match source {
        LevelSource::Redis => "the shared store",
        LevelSource::Local => "this node",
    }
}
