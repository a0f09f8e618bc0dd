//! Failures of the database of policies, as the refusals of pages.

use tollgate_admin::problem_details::ProblemDetails;
use tollgate_policies::database::DatabaseError;

/// Why the database did not answer.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes it so")]
pub fn database_problem(error: DatabaseError) -> ProblemDetails {
    match error {
        DatabaseError::UnknownRevision { .. } => ProblemDetails::unknown_policy(error.to_string()),
        _ => ProblemDetails::database_away(error.to_string()),
    }
}
