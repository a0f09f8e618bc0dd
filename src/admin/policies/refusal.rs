//! Why a change of policies is refused, for programs and for people: each mistake and each conflict by itself.

use tollgate_policies::database::{CommitError, DatabaseError};
use tollgate_policies::model::{Conflict, DraftError, DraftProblem};

use crate::admin::problem_details::{ConflictView, MistakeView, ProblemDetails};
use crate::config::{Mistake, Mistakes};

impl From<&Mistake> for MistakeView {
    fn from(mistake: &Mistake) -> Self {
        let Mistake { file, path, message, hint, .. } = mistake;
        Self { file: file.to_string(), path: path.clone(), message: message.clone(), hint: hint.clone() }
    }
}

impl From<&Conflict> for ConflictView {
    fn from(conflict: &Conflict) -> Self {
        let last = conflict.last.as_ref();
        Self {
            kind: conflict.id.kind().word().to_owned(),
            application: conflict.id.belongs_to().to_owned(),
            name: conflict.id.name().to_owned(),
            found: conflict.found,
            by: last.map(|last| last.by.to_string()),
            revision: last.map(|last| last.revision),
            at: last.map(|last| last.at.to_string()),
            message: conflict.to_string(),
        }
    }
}

impl From<DatabaseError> for ProblemDetails {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::UnknownRevision { .. } => Self::unknown_policy(error.to_string()),
            _ => Self::database(&error),
        }
    }
}

impl From<DraftProblem> for ProblemDetails {
    fn from(problem: DraftProblem) -> Self {
        let text = problem.to_string();
        match problem {
            DraftProblem::NoReason => {
                Self::bad_request(text).hint("add reason=… to the query, or the header X-Tollgate-Reason")
            }
            DraftProblem::NoAuthor => Self::bad_request(text).hint("send the header X-Tollgate-Operator: your-name"),
            _ => Self::bad_request(text),
        }
    }
}

impl From<&Mistakes> for ProblemDetails {
    fn from(mistakes: &Mistakes) -> Self {
        let all: Vec<MistakeView> = mistakes.all().iter().map(MistakeView::from).collect();
        let detail = match all.as_slice() {
            [only] => format!("{}: {}", only.path, only.message),
            several => format!("the policies would have {} mistakes", several.len()),
        };
        Self { mistakes: all.into(), ..Self::unusable_policies(detail) }
    }
}

impl From<&[Conflict]> for ProblemDetails {
    fn from(conflicts: &[Conflict]) -> Self {
        let all: Vec<ConflictView> = conflicts.iter().map(ConflictView::from).collect();
        let detail = all.iter().map(|conflict| conflict.message.as_str()).collect::<Vec<_>>().join("; ");
        Self { conflicts: all.into(), ..Self::conflicting(detail) }
    }
}

impl From<DraftError> for ProblemDetails {
    fn from(error: DraftError) -> Self {
        match error {
            DraftError::Problem(problem) => problem.into(),
            DraftError::Conflict(conflicts) => conflicts.as_slice().into(),
        }
    }
}

impl From<CommitError<Mistakes>> for ProblemDetails {
    fn from(error: CommitError<Mistakes>) -> Self {
        match error {
            CommitError::Draft(problem) => problem.into(),
            CommitError::Conflict(conflicts) => conflicts.as_slice().into(),
            CommitError::Refused(mistakes) => (&mistakes).into(),
            CommitError::Database(error) => error.into(),
        }
    }
}
