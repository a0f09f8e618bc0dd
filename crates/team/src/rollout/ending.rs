//! The end of a candidate as a revision.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tollgate_policies::database::CommitError;
use tollgate_policies::model::{Draft, Expected, Object, ObjectEdit, Revision};
use tollgate_policies::people::ROLLOUT_AUTHOR;

use crate::policies::candidate::CandidateEnd;
use crate::policies::handle::Policies;
use crate::policies::local::StrategyVersion;
use crate::policies::service::PolicyService;
use tollgate_config::Mistakes;

/// Why a candidate is not promoted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PromotionRefused {
    #[error(transparent)]
    Unfit(#[from] Mistakes),
    #[error("this node has stopped the candidate")]
    Stopped,
}

/// Ends the candidate of `strategy`, unless that has changed since: of several nodes, one does it.
/// A state without a candidate that was good with it is good: only a promotion is checked. `None`:
/// there is no candidate, or the process ends.
///
/// # Errors
/// When the strategy has changed, the state does not fit this node's file, the database is away, or
/// a candidate that is to be promoted was stopped meanwhile.
pub async fn commit(
    policies: &Arc<Policies>,
    service: Arc<PolicyService>,
    strategy: &Object,
    end: CandidateEnd,
    reason: String,
) -> Result<Option<Revision>, CommitError<PromotionRefused>> {
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
    let version = StrategyVersion::new(strategy);
    let judged = policies.clone();
    // The check takes a while for many policies: the control plane goes on meanwhile, and may stop
    // the candidate.
    let runtime = Handle::current();
    let committing = spawn_blocking(move || {
        runtime.block_on(service.database.commit(&draft, |state| {
            if end == CandidateEnd::Aborted {
                return Ok(());
            }
            service.check(state)?;
            if judged.begin_promotion(&version) {
                Ok(())
            } else {
                Err(PromotionRefused::Stopped)
            }
        }))
    });
    let committed = match committing.await {
        Ok(committed) => committed.map(Some),
        Err(_) => Ok(None),
    };
    if end == CandidateEnd::Promoted && !matches!(committed, Ok(Some(_))) {
        policies.give_promotion_up();
    }
    committed
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;
    use tollgate_policies::database::PolicyDatabase;
    use tollgate_policies::model::{ObjectId, ObjectKind, PolicyState};

    use super::*;
    use crate::policies::copy::PolicyCopy;
    use crate::policies::local::{CandidateKnowledge, StoppedCandidate};
    use crate::policies::start::FirstPolicies;

    /// The policies of a gateway whose database has a strategy with a candidate.
    async fn policies(folder: &Path) -> (Arc<Policies>, Arc<Object>) {
        let url = format!("sqlite://{}", folder.join("policies.db").display());
        let database = PolicyDatabase::open(&url).unwrap();
        database.migrate().await.unwrap();
        let id = ObjectId::new(ObjectKind::Strategy, "shop", "tried").unwrap();
        let limit = json!({"key": "client_ip", "rate": "1/s"});
        let body = json!({"resources": ["all"], "candidate": {"limit": limit, "on": "shadow"}});
        let draft = Draft {
            edits: vec![ObjectEdit {
                id: id.clone(),
                expected: Expected::Absent,
                body: Some(body),
            }],
            author: "ada".into(),
            reason: "a test".into(),
        };
        let committed = database.commit(&draft, |_| Ok::<_, String>(())).await;
        committed.unwrap();
        let state = database.state(None).await.unwrap();
        let strategy = state.get(&id).unwrap().clone();
        let file = folder.join("routes.yaml");
        let text = "listeners: [{address: '127.0.0.1:0'}]\nroutes: [{name: all, echo: true}]\n";
        std::fs::write(&file, text).unwrap();
        let ground = tollgate_config::read_ground(&file).0.unwrap();
        let config = ground.with(None).unwrap().config;
        let first = FirstPolicies {
            copy: PolicyCopy::new(folder.join("copy.json"), database.place()),
            database,
            newest: state.clone(),
            running: state,
            candidates: CandidateKnowledge::new(Vec::new(), true),
            node: "edge-1".into(),
        };
        (Arc::new(Policies::new(first, ground, &config)), strategy)
    }

    fn stopped(strategy: &Object) -> StoppedCandidate {
        StoppedCandidate {
            version: StrategyVersion::new(strategy),
            reason: "a test".into(),
        }
    }

    /// Promotes the candidate, while `check` judges the state that would come of it.
    async fn promote(
        policies: &Arc<Policies>,
        strategy: &Object,
        check: impl Fn() -> Result<(), Mistakes> + Send + Sync + 'static,
    ) -> Result<Option<Revision>, CommitError<PromotionRefused>> {
        let service = PolicyService::new(
            policies.database.apart(),
            Arc::new(move |_: &PolicyState| check()),
            policies.running.subscribe(),
            policies.wake.clone(),
            None,
        );
        let end = CandidateEnd::Promoted;
        commit(policies, Arc::new(service), strategy, end, "a test".into()).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_candidate_that_is_stopped_while_its_promotion_is_checked_is_not_promoted() {
        let folder = tempfile::tempdir().unwrap();
        let (policies, strategy) = policies(folder.path()).await;
        let judged = policies.clone();
        let stop = stopped(&strategy);
        let check = move || {
            assert!(judged.stop(stop.clone()));
            Ok(())
        };
        let promoted = promote(&policies, &strategy, check).await;
        assert_eq!(
            promoted,
            Err(CommitError::Refused(PromotionRefused::Stopped))
        );
        let newest = policies.database.state(None).await.unwrap();
        assert_eq!(newest.revision(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_candidate_whose_promotion_was_written_is_not_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let (policies, strategy) = policies(folder.path()).await;
        let refused = Mistakes::unreadable("routes.yaml", "a test".into(), None);
        let unfit = refused.clone();
        let promoted = promote(&policies, &strategy, move || Err(unfit.clone())).await;
        assert_eq!(
            promoted,
            Err(CommitError::Refused(PromotionRefused::Unfit(refused)))
        );
        let promoted = promote(&policies, &strategy, || Ok(())).await;
        assert_eq!(promoted.unwrap().map(|revision| revision.number), Some(2));
        assert!(!policies.stop(stopped(&strategy)));
    }
}
