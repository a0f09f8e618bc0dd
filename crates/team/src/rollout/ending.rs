//! The end of a candidate as a revision.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tollgate_policies::database::CommitError;
use tollgate_policies::model::{Draft, Expected, Object, ObjectEdit, Revision};
use tollgate_policies::people::ROLLOUT_AUTHOR;

use crate::policies::candidate::CandidateEnd;
use crate::policies::service::PolicyService;
use tollgate_config::Mistakes;

/// Ends the candidate of `strategy`, unless that has changed since: of several nodes, one does it.
/// A state without a candidate that was good with it is good: only a promotion is checked. `None`:
/// there is no candidate, or the process ends.
///
/// # Errors
/// When the strategy has changed, the state does not fit this node's file, or the database is away.
pub async fn commit(
    service: Arc<PolicyService>,
    strategy: &Object,
    end: CandidateEnd,
    reason: String,
) -> Result<Option<Revision>, CommitError<Mistakes>> {
    let Some(body) = end.of(&strategy.body) else {
        return Ok(None);
    };
    let edit = ObjectEdit {
        id: strategy.id.clone(),
        expected: Expected::Revision(strategy.since),
        body: Some(body),
    };
    let draft = Draft {
        edits: vec![edit],
        author: ROLLOUT_AUTHOR.to_owned(),
        reason,
    };
    // The check reads the whole configuration: the control plane goes on meanwhile.
    let runtime = Handle::current();
    let committing = spawn_blocking(move || {
        runtime.block_on(service.database.commit(&draft, |state| match end {
            CandidateEnd::Promoted => service.check(state),
            CandidateEnd::Aborted => Ok(()),
        }))
    });
    match committing.await {
        Ok(committed) => committed.map(Some),
        Err(_) => Ok(None),
    }
}
