//! The state that the pages of the admin port share: what they show and change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use arc_swap::ArcSwap;

use super::browser_guard::OwnOrigins;
use super::bucket_service::BucketService;
use super::caller::Callers;
use super::fleet_nodes::FleetNodes;
use super::server::answers::AnswerBound;
use tollgate_gateway::Gateway;

/// All that the pages show and change.
#[derive(Clone)]
pub struct AdminState {
    pub readiness: Readiness,
    pub render: Render,
    /// Copies of the metrics in memory, those of both ports.
    pub renderings: Arc<AnswerBound>,
    /// The configuration at work.
    pub gateway: Arc<ArcSwap<Gateway>>,
    pub buckets: Arc<BucketService>,
    pub nodes: Arc<FleetNodes>,
    /// The names that browsers call the port by.
    pub origins: Arc<OwnOrigins>,
    /// The people and programs that may use the port.
    pub callers: Arc<dyn Callers>,
}

/// Renders the metrics, fresh.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// The phase of the gateway's life, shared.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicU8>);

/// A phase of the gateway's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecyclePhase {
    Starting,
    Serving,
    Draining,
}

impl Readiness {
    /// Moves on to `phase`.
    pub fn enter(&self, phase: LifecyclePhase) {
        self.0.store(phase as u8, Ordering::Release);
    }

    pub fn phase(&self) -> LifecyclePhase {
        match self.0.load(Ordering::Acquire) {
            0 => LifecyclePhase::Starting,
            1 => LifecyclePhase::Serving,
            _ => LifecyclePhase::Draining,
        }
    }
}
