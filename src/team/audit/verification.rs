//! Looks whether the audit log is as it was written.
//!
//! Guarantees that one looks at a time: it reads all of the log, over a connection of its own.
//! Hashes are not made on the control plane's thread, which sends heartbeats.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tollgate_policies::people::{AuditVerdict, People};

use crate::admin::problem_details::ProblemDetails;

/// The place of whoever looks.
pub struct AuditVerification(Arc<Semaphore>);

impl Default for AuditVerification {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl AuditVerification {
    /// Looks at the log of `people`. Goes on without its client, and keeps its place meanwhile.
    ///
    /// # Errors
    /// When another looks, or the database is away.
    pub async fn run(&self, people: &People) -> Result<AuditVerdict, ProblemDetails> {
        let place = self
            .0
            .clone()
            .try_acquire_owned()
            .map_err(|_| ProblemDetails::verification_under_way())?;
        let (people, runtime) = (people.clone(), Handle::current());
        let verified = spawn_blocking(move || {
            let verdict = runtime.block_on(people.verify_audit());
            drop(place);
            verdict
        });
        let verdict = verified
            .await
            .map_err(|_| ProblemDetails::policies_away("the look at the log broke off"))?;
        Ok(verdict?)
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
        let (people, verification) = (database.people(), AuditVerification::default());
        let (first, second) = tokio::join!(verification.run(&people), verification.run(&people));
        assert!(matches!(first, Ok(AuditVerdict::Intact { .. })));
        assert_eq!(second.err().map(|problem| problem.status), Some(503));
        assert!(verification.run(&people).await.is_ok());
    }
}
