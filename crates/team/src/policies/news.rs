//! News of policies, for the reload.

use futures_util::future::pending;
use tokio::sync::watch;
use tollgate_policies::model::PolicyState;

use super::handle::Policies;
use super::local::CandidateKnowledge;

/// Tells of newer policies, and of candidates that act no longer or again.
pub struct PolicyNews {
    newest: watch::Receiver<PolicyState>,
    candidates: watch::Receiver<CandidateKnowledge>,
}

impl PolicyNews {
    pub fn of(policies: &Policies) -> Self {
        Self {
            newest: policies.newest.subscribe(),
            candidates: policies.candidates.subscribe(),
        }
    }

    /// Waits for newer policies.
    pub async fn changed(&mut self) {
        tokio::select! {
            Ok(()) = self.newest.changed() => {}
            Ok(()) = self.candidates.changed() => {}
            else => pending().await,
        }
    }
}
