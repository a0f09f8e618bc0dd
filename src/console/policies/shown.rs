//! Changes and revisions as all pages of policies show them.

use std::sync::Arc;

use askama::Template;

use crate::admin::policy_service::PolicyService;
use crate::admin::problem_details::ProblemDetails;
use crate::admin::views::policies::{PolicyChangeView, RevisionView};
use crate::console::numbers::short_time;
use crate::console::state::ConsoleState;

/// The differences, object by object.
#[derive(Template)]
#[template(path = "parts/changes.html")]
pub struct ShownChanges {
    changes: Vec<ShownObjectChange>,
}

struct ShownObjectChange {
    title: String,
    fate: &'static str,
    /// Whether it is new, and the line.
    lines: Vec<(bool, String)>,
}

/// A revision in a list.
pub struct ShownRevision {
    pub number: u64,
    pub author: String,
    pub at: String,
    pub reason: String,
    pub objects: String,
}

impl From<&[PolicyChangeView]> for ShownChanges {
    fn from(changes: &[PolicyChangeView]) -> Self {
        let shown = changes.iter().map(|change| ShownObjectChange {
            title: match change.kind.as_str() {
                "application" => format!("application {}", change.name),
                kind => format!("{} {}/{}", kind.replace('_', " "), change.application, change.name),
            },
            fate: match (&change.before, &change.after) {
                (None, _) => "new",
                (_, None) => "deleted",
                _ => "changed",
            },
            lines: change.lines.iter().map(|line| (line.added, line.text.clone())).collect(),
        });
        Self { changes: shown.collect() }
    }
}

impl From<&RevisionView> for ShownRevision {
    fn from(revision: &RevisionView) -> Self {
        let RevisionView { revision, author, at, reason, edits } = revision;
        let objects = if *edits == 1 { "one object".to_owned() } else { format!("{edits} objects") };
        Self { number: *revision, author: author.clone(), at: short_time(at), reason: reason.clone(), objects }
    }
}

/// The policies of this gateway.
///
/// # Errors
/// When it has none.
pub fn service(console: &ConsoleState) -> Result<&Arc<PolicyService>, ProblemDetails> {
    console.admin.policies.as_ref().ok_or_else(ProblemDetails::no_policies)
}
