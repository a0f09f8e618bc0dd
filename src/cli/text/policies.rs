//! Changes of policies as text for people.

use tollgate_team::views::policies::{
    ObjectHistoryView, PolicyChangeView, RevisionChangesView, RevisionView, RevisionsView,
};

/// A revision and its changes, or what would change.
pub fn show_outcome(outcome: &RevisionChangesView) -> String {
    let head = match &outcome.revision {
        Some(revision) => show_revision(revision),
        None if outcome.changes.is_empty() => String::new(),
        None => "this would change:\n".to_owned(),
    };
    head + &show_changes(&outcome.changes)
}

/// Each object that differs, with its lines.
pub fn show_changes(changes: &[PolicyChangeView]) -> String {
    if changes.is_empty() {
        return "nothing differs\n".to_owned();
    }
    changes.iter().map(show_object).collect()
}

/// A page of the history.
pub fn show_history(page: &RevisionsView) -> String {
    if page.revisions.is_empty() {
        return "there is no revision yet\n".to_owned();
    }
    let lines: String = page.revisions.iter().map(show_revision).collect();
    match page.before {
        Some(before) => format!("{lines}more: --before {before}\n"),
        None => lines,
    }
}

/// The history of one object.
pub fn show_object_history(history: &[ObjectHistoryView]) -> String {
    if history.is_empty() {
        return "there never was such an object\n".to_owned();
    }
    let mut text = String::new();
    for entry in history {
        text.push_str(&show_revision(&entry.revision));
        text.push_str(&show_lines(&entry.change));
    }
    text
}

fn show_revision(revision: &RevisionView) -> String {
    let RevisionView {
        revision,
        author,
        at,
        reason,
        edits,
    } = revision;
    let objects = if *edits == 1 { "object" } else { "objects" };
    format!(
        "revision {revision}  {at}  {author}  {edits} {objects}\n    {}\n",
        reason.replace("\r\n", "\n").replace('\n', "\n    ")
    )
}

fn show_object(change: &PolicyChangeView) -> String {
    let PolicyChangeView {
        kind,
        application,
        name,
        before,
        after,
        ..
    } = change;
    let name = if kind == "application" {
        name.clone()
    } else {
        format!("{application}/{name}")
    };
    let fate = match (before, after) {
        (None, _) => "  (new)",
        (_, None) => "  (deleted)",
        _ => "",
    };
    format!("{kind} {name}{fate}\n{}", show_lines(change))
}

fn show_lines(change: &PolicyChangeView) -> String {
    let mut text = String::new();
    for line in &change.lines {
        let sign = if line.added { '+' } else { '-' };
        text.push_str(&format!("  {sign} {}\n", line.text));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use tollgate_team::views::comparison::compare;

    #[test]
    fn a_change_is_shown_as_lines_that_come_and_go() {
        let before = Some(json!({"limit": {"rate": "10/s"}}));
        let after = Some(json!({"limit": {"rate": "20/s"}}));
        let change = PolicyChangeView {
            kind: "strategy".to_owned(),
            application: "shop".to_owned(),
            name: "per-client".to_owned(),
            lines: compare(before.as_ref(), after.as_ref()),
            before,
            after,
        };
        let revision = RevisionView {
            revision: 12,
            author: "ada".to_owned(),
            at: "2026-11-23T03:00:00.000Z".to_owned(),
            reason: "more\nfor all".to_owned(),
            edits: 1,
        };
        let made = RevisionChangesView {
            revision: Some(revision),
            changes: vec![change.clone()],
        };
        assert_eq!(
            show_outcome(&made),
            "revision 12  2026-11-23T03:00:00.000Z  ada  1 object\n    more\n    for all\nstrategy shop/per-client\n  - limit.rate: 10/s\n  + limit.rate: 20/s\n"
        );
        let trial = RevisionChangesView {
            revision: None,
            changes: vec![PolicyChangeView {
                after: None,
                ..change
            }],
        };
        assert!(
            show_outcome(&trial)
                .starts_with("this would change:\nstrategy shop/per-client  (deleted)\n")
        );
        assert_eq!(
            show_outcome(&RevisionChangesView {
                revision: None,
                changes: Vec::new()
            }),
            "nothing differs\n"
        );
    }
}
