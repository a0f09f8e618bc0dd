//! The state that the workers and the control plane share.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::node::permits::PermitTable;
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::redis::spec::RedisSpec;

use tollgate_gateway::Gateway;
use tollgate_server::{Drain, ProcessLimit};

/// How often idle connections are closed and full buckets dropped.
pub const UPKEEP: Duration = Duration::from_secs(2);

/// Time for the requests of the admin port to end, after those of the listeners. Strangers may hold
/// up a stop for so long.
pub const ADMIN_DRAIN: Duration = Duration::from_secs(5);

/// The length of a window in which denied keys are counted. Five windows are shown.
pub const DENIAL_WINDOW: Duration = Duration::from_secs(60);

/// The state of the process that all threads share.
#[derive(Clone)]
pub struct SharedState {
    pub gateway: Arc<ArcSwap<Gateway>>,
    pub memory: Arc<MemoryStore>,
    pub permits: Arc<PermitTable>,
    /// This node's place in the fleet. `None`: there is no store.
    pub fleet: Option<FleetMember>,
    pub drain: Drain,
    pub process: ProcessLimit,
}

/// This node as one of those that share a store.
#[derive(Clone)]
pub struct FleetMember {
    pub spec: RedisSpec,
    pub node: Arc<Node>,
}

impl FleetMember {
    /// A node that decides locally in `memory` while the store of `spec` is away.
    pub fn new(spec: RedisSpec, memory: Arc<MemoryStore>) -> Self {
        let share = Arc::new(FleetShare::expecting(spec.expected_nodes));
        Self {
            spec,
            node: Arc::new(Node::new(memory, Arc::new(Breaker::new()), share)),
        }
    }
}
