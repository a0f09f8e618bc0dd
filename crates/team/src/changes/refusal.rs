//! Why a change of policies is refused, for programs and for people: each mistake and each conflict
//! by itself.

use tollgate_policies::database::CommitError;
use tollgate_policies::model::{Conflict, DraftProblem};
use tollgate_policies::people::Operation;

use crate::caller::Caller;
use crate::database_problem::database_problem;
use tollgate_admin::problem_details::{ConflictView, MistakeView, ProblemDetails};
use tollgate_config::{Mistake, Mistakes};

/// A mistake in the shape of a refusal.
pub fn mistake_view(mistake: &Mistake) -> MistakeView {
    MistakeView {
        file: mistake.file.to_string(),
        path: mistake.path.clone(),
        message: mistake.message.clone(),
        hint: mistake.hint.clone(),
    }
}

/// A conflict in the shape of a refusal.
fn conflict_view(conflict: &Conflict) -> ConflictView {
    let mut view = ConflictView {
        kind: conflict.id.kind().word().to_owned(),
        application: conflict.id.belongs_to().to_owned(),
        name: conflict.id.name().to_owned(),
        found: conflict.found,
        by: None,
        revision: None,
        at: None,
        message: conflict.to_string(),
    };
    if let Some(last) = &conflict.last {
        view.by = Some(last.by.to_string());
        view.revision = Some(last.revision);
        view.at = Some(last.at.to_string());
    }
    view
}

/// Why a draft is none that could be committed.
pub fn draft_problem(problem: &DraftProblem) -> ProblemDetails {
    let refusal = ProblemDetails::bad_request(problem.to_string());
    match problem {
        DraftProblem::NoReason => {
            refusal.hint("add reason=… to the query, or the header X-Tollgate-Reason")
        }
        DraftProblem::NoAuthor => refusal.hint("send the header X-Tollgate-Operator: your-name"),
        _ => refusal,
    }
}

/// Why policies would not work: each mistake in what the caller may look at, and that there are
/// others.
pub fn mistakes_problem(mistakes: &Mistakes, caller: &Caller) -> ProblemDetails {
    let all = mistakes.all();
    let mut shown = Vec::new();
    for mistake in all {
        let is_hidden = match application_of(&mistake.path) {
            Some(application) => caller.may(Operation::View, application).is_err(),
            None => false,
        };
        if !is_hidden {
            shown.push(mistake_view(mistake));
        }
    }
    let has_hidden = shown.len() < all.len();
    let mut detail = match shown.as_slice() {
        [] => String::new(),
        [only] if !has_hidden => format!("{}: {}", only.path, only.message),
        several => format!("the policies would have {} mistakes", several.len()),
    };
    if has_hidden {
        let also = if detail.is_empty() {
            "the policies would have"
        } else {
            "; and"
        };
        detail += &format!(
            "{also} mistakes in applications that {} may not look at: ask an admin",
            caller.name
        );
    }
    ProblemDetails {
        mistakes: shown.into(),
        ..ProblemDetails::unusable_policies(detail)
    }
}

/// The application that the place of a mistake is in, which is quoted there if it has a point.
fn application_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("applications.")?;
    match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split(['.', '[']).next(),
    }
}

fn conflicts_problem(conflicts: &[Conflict]) -> ProblemDetails {
    let messages: Vec<_> = conflicts.iter().map(Conflict::to_string).collect();
    ProblemDetails {
        conflicts: conflicts.iter().map(conflict_view).collect(),
        ..ProblemDetails::conflicting(messages.join("; "))
    }
}

/// Why a draft was not committed.
pub fn commit_problem(error: CommitError<ProblemDetails>) -> ProblemDetails {
    match error {
        CommitError::Draft(problem) => draft_problem(&problem),
        CommitError::Revoked(id) => {
            let what = format!("{id} has a key that was taken away before: it is not taken again");
            ProblemDetails::unusable_policies(what).hint("make a new key, or leave this one out")
        }
        CommitError::Conflict(conflicts) => conflicts_problem(&conflicts),
        CommitError::Refused(problem) => problem,
        CommitError::Database(error) => database_problem(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_mistake_tells_its_application() {
        for (path, application) in [
            (
                "applications.shop.strategies.per-client.limit.rate",
                Some("shop"),
            ),
            ("applications.shop", Some("shop")),
            ("applications.shop[0]", Some("shop")),
            ("applications.\"shop.x\".strategies", Some("shop.x")),
            ("applications.\"shop.x\"", Some("shop.x")),
            ("applications", None),
            ("routes[0].limits", None),
            ("", None),
        ] {
            assert_eq!(application_of(path), application, "{path}");
        }
    }
}
