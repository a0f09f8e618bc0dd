//! The policies of a running gateway, as its parts share them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};
use tollgate_limiter::store::inspect::Inspect;
use tollgate_policies::database::PolicyDatabase;
use tollgate_policies::model::PolicyState;

use super::copy::PolicyCopy;
use super::start::FirstPolicies;
use crate::admin::policy_service::{PolicyCheck, PolicyService};
use crate::clock;
use crate::config::Ground;
use crate::observe::policy_metrics::PolicyMetrics;

/// The policies of a running gateway, as its parts share them.
pub struct Policies {
    pub database: PolicyDatabase,
    pub copy: PolicyCopy,
    /// The newest state that the database had.
    pub newest: watch::Sender<PolicyState>,
    /// The state at work.
    pub running: watch::Sender<PolicyState>,
    /// The file at work, below any policies.
    pub ground: ArcSwap<Ground>,
    /// Wakes the follower.
    pub wake: Arc<Notify>,
    pub metrics: PolicyMetrics,
    /// When the database last answered, in microseconds.
    reached: AtomicU64,
    /// Whether the database was found with the tables of this version.
    pub is_current: AtomicBool,
}

impl Policies {
    /// Of a gateway that begins with `first`.
    pub fn new(first: FirstPolicies, ground: Ground) -> Self {
        let FirstPolicies { database, copy, newest, running, is_current } = first;
        let metrics = PolicyMetrics::new();
        metrics.running(running.revision());
        if newest.position() != running.position() {
            metrics.refused();
        }
        Self {
            database,
            copy,
            newest: watch::Sender::new(newest),
            running: watch::Sender::new(running),
            ground: ArcSwap::from_pointee(ground),
            wake: Arc::default(),
            metrics,
            reached: AtomicU64::new(clock::monotonic_micros()),
            is_current: AtomicBool::new(is_current),
        }
    }

    /// The database has answered.
    pub fn note_reached(&self) {
        self.reached.store(clock::monotonic_micros(), Ordering::Relaxed);
    }

    /// Shows how long ago the database answered, or this process began.
    pub fn show_age(&self) {
        let age_us = clock::monotonic_micros().saturating_sub(self.reached.load(Ordering::Relaxed));
        self.metrics.age(age_us as f64 / 1e6);
    }

    /// `state` is at work now.
    pub fn took_over(&self, state: PolicyState) {
        self.metrics.running(state.revision());
        self.metrics.applied();
        self.running.send_replace(state);
    }

    /// The states that a file is tried with: the newest, and the one at work should that not fit.
    pub fn candidates(&self) -> Vec<PolicyState> {
        let (newest, running) = (self.newest.borrow().clone(), self.running.borrow().clone());
        if newest.position() == running.position() { vec![running] } else { vec![newest, running] }
    }

    /// What admin pages need of them.
    pub fn service(self: &Arc<Self>, notices: Option<Arc<dyn Inspect>>) -> PolicyService {
        let policies = self.clone();
        let check: PolicyCheck = Arc::new(move |state| policies.ground.load().with_state(state).map(drop));
        PolicyService::new(self.database.clone(), check, self.running.subscribe(), self.wake.clone(), notices)
    }
}
