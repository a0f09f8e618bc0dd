//! `/console/audit`: what was done, and what was refused. Nobody changes it.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use tollgate_policies::database::Page;
use tollgate_policies::people::{AuditEntry, AuditOutcome, AuditVerdict, Operation};
use tollgate_team::database_problem::database_problem;

use crate::numbers::exact_time;
use crate::shell::{Shell, Visitor, page};
use crate::state::ConsoleState;
use tollgate_admin::problem_details::ProblemDetails;

/// Entries of a page.
const ON_PAGE: u32 = 50;

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    shell: Shell,
    rows: Vec<AuditRow>,
    /// The number before which the next page begins. 0: there is none.
    before: u64,
    /// The verdict on the chain of hashes. Empty: it was not looked at.
    verdict: String,
    is_damaged: bool,
}

struct AuditRow {
    at: String,
    account: String,
    action: String,
    object: String,
    address: String,
    outcome: &'static str,
    state: &'static str,
    detail: String,
}

/// Which part of the log is asked for.
#[derive(Deserialize)]
pub struct AuditQuery {
    before: Option<u64>,
    #[serde(default)]
    verify: bool,
}

/// `GET /console/audit`
pub async fn show(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    Query(query): Query<AuditQuery>,
) -> Response {
    match AuditPage::new(&console, &visitor, query).await {
        Ok(shown) => page(&shown),
        Err(problem) => console.refuse(&visitor, &problem),
    }
}

impl AuditPage {
    async fn new(
        console: &ConsoleState,
        visitor: &Visitor,
        query: AuditQuery,
    ) -> Result<Self, ProblemDetails> {
        let people = &console.accounts()?.people;
        visitor.may(Operation::ViewFleet, "")?;
        let entries = people
            .audit(Page {
                before: query.before,
                limit: ON_PAGE,
            })
            .await
            .map_err(database_problem)?;
        let mut verdict = String::new();
        let mut is_damaged = false;
        if query.verify {
            verdict = match console.accounts()?.verify_audit().await? {
                AuditVerdict::Intact { entries, hash } => format!(
                    "All {entries} entries are as they were written. The hash of the last: {hash}"
                ),
                AuditVerdict::Damaged { number, what } => {
                    is_damaged = true;
                    format!("Entry {number} is damaged: {what}")
                }
            };
        }
        let before = match entries.last() {
            Some(entry) if entry.number > 1 => entry.number,
            Some(_) | None => 0,
        };
        let shell = visitor.shell(console, "Audit log", "Audit log");
        Ok(Self {
            shell,
            rows: entries.into_iter().map(AuditRow::new).collect(),
            before,
            verdict,
            is_damaged,
        })
    }
}

impl AuditRow {
    fn new(entry: AuditEntry) -> Self {
        let (outcome, state) = match entry.record.outcome {
            AuditOutcome::Done => ("done", "good"),
            AuditOutcome::Refused => ("refused", "warn"),
            AuditOutcome::Failed => ("failed", "bad"),
        };
        let record = entry.record;
        Self {
            at: exact_time(&entry.at.to_string()),
            account: record.account,
            action: record.action.replace(['_', '.'], " "),
            object: record.object,
            address: record.address,
            outcome,
            state,
            detail: record.detail,
        }
    }
}
