//! The check that the audit log is as it was written.
//!
//! Guarantees that one check runs at a time: each reads all of the log, over a connection of its
//! own. Hashes are not made on the control plane's thread, which sends heartbeats.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tollgate_policies::people::{AuditVerdict, People};

use crate::apart::apart;
use crate::database_problem::database_problem;
use tollgate_admin::problem_details::ProblemDetails;

/// The permit of the one check that runs.
pub struct AuditVerification(Arc<Semaphore>);

impl Default for AuditVerification {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl AuditVerification {
    /// Checks the log of `people`. The check goes on if its client goes away.
    ///
    /// # Errors
    /// When another check runs, or the database is away.
    pub async fn run(&self, people: &People) -> Result<AuditVerdict, ProblemDetails> {
        let Ok(place) = Arc::clone(&self.0).try_acquire_owned() else {
            return Err(ProblemDetails::verification_under_way());
        };
        let people = people.clone();
        apart("the look at the log", async move || {
            let _place = place;
            people.verify_audit().await.map_err(database_problem)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use tollgate_policies::database::PolicyDatabase;

    use super::*;

    #[tokio::test]
    async fn one_looks_at_the_log_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let database =
            PolicyDatabase::open(&format!("sqlite://{}/p.db", folder.path().display())).unwrap();
        database.migrate().await.unwrap();
        let people = database.people();
        let verification = AuditVerification::default();
        let (first, second) = tokio::join!(verification.run(&people), verification.run(&people));
        assert!(matches!(first, Ok(AuditVerdict::Intact { .. })));
        assert_eq!(second.err().map(|problem| problem.status), Some(503));
        assert!(verification.run(&people).await.is_ok());
    }
}
