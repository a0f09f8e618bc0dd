//! Watches the candidates that act on this node, each second, and ends those that are out of their
//! bounds or have passed.
//!
//! Guarantees that this node stops acting on a candidate that is out of its bounds before it asks
//! the database for anything, and promotes none that it has stopped. A promotion that is written
//! already is not stopped any more: it stands, or the candidate is judged again.

use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::pending;
use tokio::sync::watch;
use tokio::time::sleep;
use tollgate_policies::database::CommitError;
use tollgate_policies::model::{ObjectId, ObjectKind};

use super::counters::CandidateReading;
use super::ending::{self, PromotionRefused};
use super::window::{CandidateVerdict, CandidateWindow};
use crate::policies::candidate::CandidateEnd;
use crate::policies::handle::Policies;
use crate::policies::local::{StoppedCandidate, StrategyVersion};
use crate::policies::service::PolicyService;
use tollgate_config::Candidate;
use tollgate_gateway::Gateway;
use tollgate_gateway::observe::policy_metrics::RolloutMetrics;
use tollgate_gateway::observe::recorder::MetricsHandle;
use tollgate_limiter::clock;

/// Between two judgements, and between two tries to commit.
const STEP: Duration = Duration::from_secs(1);

/// The parts of the gateway that the watch needs.
pub struct WatchedGateway {
    pub policies: Arc<Policies>,
    /// Checks what is promoted, and tells other nodes of what was committed.
    pub service: Arc<PolicyService>,
    pub metrics: MetricsHandle,
    pub gateway: Arc<ArcSwap<Gateway>>,
}

/// Watches the candidates of policies.
pub struct RolloutWatch {
    watched: WatchedGateway,
    windows: BTreeMap<StrategyVersion, CandidateWindow>,
    /// Candidates that have passed, and what speaks for them.
    passed: watch::Sender<Vec<(StrategyVersion, String)>>,
    rollouts: Arc<RolloutMetrics>,
}

/// Watches candidates. Runs until dropped, of a gateway without policies too.
pub async fn run(watched: Option<WatchedGateway>) {
    let Some(watched) = watched else {
        return pending().await;
    };
    let rollouts = Arc::new(RolloutMetrics::new());
    let passed = watch::Sender::new(Vec::new());
    let committer = RolloutCommitter {
        policies: watched.policies.clone(),
        service: watched.service.clone(),
        passed: passed.subscribe(),
        rollouts: rollouts.clone(),
        failed: None,
    };
    // A commit waits for the database, a judgement must not.
    tokio::join!(
        RolloutWatch {
            watched,
            windows: BTreeMap::new(),
            passed,
            rollouts
        }
        .run(),
        committer.run()
    );
}

impl RolloutWatch {
    async fn run(mut self) {
        let mut acting = self.watched.policies.acting.subscribe();
        acting.mark_changed();
        loop {
            // A candidate is counted from when it comes.
            tokio::select! {
                () = sleep(STEP) => {}
                Ok(()) = acting.changed() => {}
            }
            self.judge(&acting.borrow_and_update().clone());
        }
    }

    fn judge(&mut self, acting: &[Candidate]) {
        let now = clock::now();
        let WatchedGateway {
            policies,
            metrics,
            gateway,
            ..
        } = &self.watched;
        let state = policies.running.borrow().clone();
        let readings = if acting.is_empty() {
            Vec::new()
        } else {
            CandidateReading::read(metrics, &gateway.load(), acting)
        };
        let mut before = std::mem::take(&mut self.windows);
        let mut passed = Vec::new();
        for (candidate, reading) in acting.iter().zip(readings) {
            let id = ObjectId::new(
                ObjectKind::Strategy,
                &candidate.application,
                &candidate.strategy,
            );
            let Some(version) = id
                .ok()
                .and_then(|id| state.get(&id))
                .map(|strategy| StrategyVersion::new(strategy))
            else {
                continue;
            };
            let Some(mut window) = before.remove(&version) else {
                self.windows
                    .insert(version, CandidateWindow::new(candidate.terms, now, reading));
                continue;
            };
            match window.advance(now, reading) {
                CandidateVerdict::GoesOn => {}
                CandidateVerdict::Promote(why) => {
                    passed.push((
                        version.clone(),
                        format!(
                            "on node {}, {}, {why}",
                            policies.node(),
                            candidate.stage.shown()
                        ),
                    ));
                }
                CandidateVerdict::Abort(broken) => {
                    let reason = format!(
                        "on node {}, {}, {broken}",
                        policies.node(),
                        candidate.stage.shown()
                    );
                    let stopped = StoppedCandidate {
                        version: version.clone(),
                        reason: reason.clone(),
                    };
                    if policies.stop(stopped) {
                        let (application, strategy) =
                            (&*candidate.application, &*candidate.strategy);
                        tracing::warn!(
                            application,
                            strategy,
                            reason,
                            "candidate stopped: it is out of its bounds"
                        );
                        self.rollouts.stopped();
                    }
                }
            }
            self.windows.insert(version, window);
        }
        self.passed.send_replace(passed);
    }
}

/// Commits what becomes of candidates, as often as it takes.
struct RolloutCommitter {
    policies: Arc<Policies>,
    service: Arc<PolicyService>,
    passed: watch::Receiver<Vec<(StrategyVersion, String)>>,
    rollouts: Arc<RolloutMetrics>,
    /// How the last commit failed.
    failed: Option<Discriminant<CommitError<PromotionRefused>>>,
}

impl RolloutCommitter {
    async fn run(mut self) {
        let mut known = self.policies.candidates.subscribe();
        loop {
            tokio::select! {
                () = sleep(STEP) => {}
                Ok(()) = known.changed() => {}
            }
            self.policies.forget_stopped();
            let stopped = known.borrow_and_update().stopped.clone();
            for StoppedCandidate { version, reason } in &*stopped {
                self.end(CandidateEnd::Aborted, version, reason).await;
            }
            let passed = self.passed.borrow().clone();
            for (version, reason) in &passed {
                self.end(CandidateEnd::Promoted, version, reason).await;
            }
        }
    }

    async fn end(&mut self, end: CandidateEnd, version: &StrategyVersion, reason: &str) {
        let newest = self.policies.newest.borrow().clone();
        let Some(strategy) = newest
            .get(&version.id)
            .filter(|strategy| StrategyVersion::new(strategy) == *version)
        else {
            // Another node was faster, or somebody has changed the strategy.
            return;
        };
        let strategy = strategy.clone();
        let what = match end {
            CandidateEnd::Aborted => "candidate taken away",
            CandidateEnd::Promoted => "candidate promoted",
        };
        let reason = format!("{what}: {reason}");
        let service = self.service.clone();
        match ending::commit(&self.policies, service, &strategy, end, reason.clone()).await {
            Ok(Some(revision)) => {
                self.failed = None;
                self.rollouts.ended(end == CandidateEnd::Promoted);
                let revision = revision.number;
                tracing::info!(revision, strategy = %version.id, reason, "{what}");
                self.service.announce().await;
            }
            Ok(None) | Err(CommitError::Refused(PromotionRefused::Stopped)) => {}
            // The follower will find what was committed instead.
            Err(CommitError::Conflict(_)) => self.policies.wake.notify_one(),
            Err(error) => {
                let kind = Some(discriminant(&error));
                if self.failed != kind {
                    tracing::warn!(strategy = %version.id, %error, "cannot commit that a {what}: it is tried again each second");
                }
                self.failed = kind;
            }
        }
    }
}
