//! The policies of a running gateway, as its parts share them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};
use tollgate_limiter::store::inspect::Inspect;
use tollgate_policies::database::PolicyDatabase;
use tollgate_policies::model::PolicyState;

use super::copy::PolicyCopy;
use super::local::{CandidateKnowledge, NodePolicies, StoppedCandidate, StrategyVersion};
use super::start::FirstPolicies;
use crate::policies::service::{PolicyCheck, PolicyService};
use tollgate_config::{Candidate, Config, Ground};
use tollgate_gateway::observe::policy_metrics::PolicyMetrics;
use tollgate_limiter::clock;

/// The policies of a running gateway, as its parts share them.
pub struct Policies {
    pub database: PolicyDatabase,
    pub copy: PolicyCopy,
    /// The newest state that the database had.
    pub newest: watch::Sender<PolicyState>,
    /// The state at work.
    pub running: watch::Sender<PolicyState>,
    /// The knowledge of candidates.
    pub candidates: watch::Sender<CandidateKnowledge>,
    /// The candidates that act on this node.
    pub acting: watch::Sender<Vec<Candidate>>,
    /// The name of this node.
    node: Arc<str>,
    ground: ArcSwap<Ground>,
    /// Wakes the follower.
    pub wake: Arc<Notify>,
    metrics: PolicyMetrics,
    /// When the database last answered, in microseconds.
    reached: AtomicU64,
    /// Whether the database was found with the tables of this version.
    pub is_current: AtomicBool,
}

impl Policies {
    /// The policies of a gateway that begins with `first`, which came to `config`.
    pub fn new(first: FirstPolicies, ground: Ground, config: &Config) -> Self {
        let FirstPolicies {
            database,
            copy,
            newest,
            running,
            candidates,
            node,
        } = first;
        let metrics = PolicyMetrics::new();
        metrics.running(running.revision());
        let is_current = candidates.has_heard;
        if newest.position() != running.position() {
            metrics.refused();
        }
        Self {
            database,
            copy,
            newest: watch::Sender::new(newest),
            running: watch::Sender::new(running),
            candidates: watch::Sender::new(candidates),
            acting: watch::Sender::new(config.candidates.clone()),
            node,
            ground: ArcSwap::from_pointee(ground),
            wake: Arc::default(),
            metrics,
            reached: AtomicU64::new(clock::monotonic_micros()),
            is_current: AtomicBool::new(is_current),
        }
    }

    /// The database has answered.
    pub fn note_reached(&self) {
        self.reached
            .store(clock::monotonic_micros(), Ordering::Relaxed);
    }

    /// Shows how long ago the database answered, or this process began.
    pub fn show_age(&self) {
        let age_us = clock::monotonic_micros().saturating_sub(self.reached.load(Ordering::Relaxed));
        self.metrics.age(age_us as f64 / 1e6);
    }

    /// `policies` are at work now.
    pub fn took_over(&self, policies: NodePolicies) {
        self.metrics.running(policies.revision());
        self.metrics.applied();
        self.running.send_replace(policies.state);
    }

    /// Whether `policies` are at work.
    pub fn runs(&self, policies: &NodePolicies) -> bool {
        self.running.borrow().position() == policies.state.position()
    }

    /// The revision at work.
    pub fn running_revision(&self) -> u64 {
        self.running.borrow().revision()
    }

    /// The file at work, below any policies.
    pub fn ground(&self) -> Arc<Ground> {
        self.ground.load_full()
    }

    pub fn set_ground(&self, ground: Ground) {
        self.ground.store(Arc::new(ground));
    }

    /// Says which candidates act on this node.
    pub fn set_acting(&self, candidates: Vec<Candidate>) {
        self.acting.send_replace(candidates);
    }

    /// Counts that a revision does not fit the file.
    pub fn note_refused(&self) {
        self.metrics.refused();
    }

    /// The name of this node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Makes this node stop acting on a candidate. Returns whether it had not done so yet, and does
    /// not promote it.
    pub fn stop(&self, stopped: StoppedCandidate) -> bool {
        self.candidates
            .send_if_modified(|known| known.stop(stopped))
    }

    /// Begins to promote a candidate, which is not stopped from then on. Returns whether it may be
    /// promoted: not if it was stopped.
    pub fn begin_promotion(&self, version: &StrategyVersion) -> bool {
        let mut may = false;
        self.candidates.send_if_modified(|known| {
            may = known.promote(version);
            // Nobody waits for it.
            false
        });
        may
    }

    /// The promotion of a candidate has failed: it is judged as before.
    pub fn give_promotion_up(&self) {
        self.candidates.send_if_modified(|known| {
            known.promoted = None;
            false
        });
    }

    /// Forgets the stopped candidates that the database does not have any more.
    pub fn forget_stopped(&self) {
        let newest = self.newest.borrow().clone();
        self.candidates.send_if_modified(|known| {
            let before = known.stopped.len();
            let mut stopped = known.stopped.to_vec();
            stopped.retain(|stopped| stopped.version.stands_in(&newest));
            known.stopped = stopped.into();
            known.stopped.len() != before
        });
    }

    /// The database has answered, and what it has is known.
    pub fn note_heard(&self) {
        self.candidates
            .send_if_modified(|known| !std::mem::replace(&mut known.has_heard, true));
    }

    /// The policies that a file is tried with: the newest, and those at work should these not fit.
    pub fn choices(&self) -> Vec<NodePolicies> {
        let newest = self.newest.borrow().clone();
        let running = self.running.borrow().clone();
        let known = self.candidates.borrow().clone();
        let mut states = vec![newest.clone()];
        if newest.position() != running.position() {
            states.push(running);
        }
        states
            .into_iter()
            .map(|state| NodePolicies::new(self.node.clone(), state, &newest, &known))
            .collect()
    }

    /// The service that admin pages need for these policies.
    pub fn service(self: &Arc<Self>, notices: Option<Arc<dyn Inspect>>) -> PolicyService {
        let policies = self.clone();
        let check: PolicyCheck = Arc::new(move |state| policies.ground.load().fits(state));
        PolicyService::new(
            self.database.apart(),
            check,
            self.running.subscribe(),
            self.wake.clone(),
            notices,
        )
    }
}
