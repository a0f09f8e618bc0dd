//! Changes and revisions as all pages of policies show them.

use std::sync::Arc;

use askama::Template;
use tollgate_policies::model::ObjectChange;

use crate::numbers::short_time;
use crate::state::ConsoleState;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_team::policies::service::PolicyService;
use tollgate_team::views::policies::{PolicyChangeView, RevisionView};

/// Objects, and lines of each, that a page shows: an import may change a hundred thousand.
const MOST_SHOWN: usize = 200;

/// The differences, object by object.
#[derive(Template)]
#[template(path = "parts/changes.html")]
pub struct ShownChanges {
    changes: Vec<ShownObjectChange>,
    /// Objects that are not among them.
    more: usize,
}

struct ShownObjectChange {
    title: String,
    fate: &'static str,
    /// Whether it is new, and the line.
    lines: Vec<(bool, String)>,
    /// Lines that are not among them.
    more: usize,
}

/// A revision in a list.
pub struct ShownRevision {
    pub number: u64,
    pub author: String,
    pub at: String,
    pub reason: String,
    pub objects: String,
}

impl From<&[ObjectChange]> for ShownChanges {
    fn from(changes: &[ObjectChange]) -> Self {
        let shown = changes
            .iter()
            .take(MOST_SHOWN)
            .map(|change| ShownObjectChange::from(PolicyChangeView::new(change)));
        Self {
            changes: shown.collect(),
            more: changes.len().saturating_sub(MOST_SHOWN),
        }
    }
}

impl From<PolicyChangeView> for ShownObjectChange {
    fn from(change: PolicyChangeView) -> Self {
        let lines = change
            .lines
            .iter()
            .take(MOST_SHOWN)
            .map(|line| (line.added, line.text.clone()));
        Self {
            title: match change.kind.as_str() {
                "application" => format!("application {}", change.name),
                kind => format!(
                    "{} {}/{}",
                    kind.replace('_', " "),
                    change.application,
                    change.name
                ),
            },
            fate: match (&change.before, &change.after) {
                (None, _) => "new",
                (_, None) => "deleted",
                _ => "changed",
            },
            lines: lines.collect(),
            more: change.lines.len().saturating_sub(MOST_SHOWN),
        }
    }
}

impl From<&RevisionView> for ShownRevision {
    fn from(revision: &RevisionView) -> Self {
        let RevisionView {
            revision,
            author,
            at,
            reason,
            edits,
        } = revision;
        let objects = if *edits == 1 {
            "one object".to_owned()
        } else {
            format!("{edits} objects")
        };
        Self {
            number: *revision,
            author: author.clone(),
            at: short_time(at),
            reason: reason.clone(),
            objects,
        }
    }
}

/// The policies of this gateway.
///
/// # Errors
/// When it has none.
pub fn service(console: &ConsoleState) -> Result<&Arc<PolicyService>, ProblemDetails> {
    console
        .team
        .policies
        .as_ref()
        .ok_or_else(ProblemDetails::no_policies)
}
