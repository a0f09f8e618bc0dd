//! The state that the pages of the console show and change.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::store::fleet_share::FleetShare;

use super::live::LiveData;
use super::live::history::STEP;
use super::tokens::FormTokens;
use tollgate_admin::config_status::ConfigStatus;
use tollgate_admin::state::AdminState;
use tollgate_gateway::observe::recorder::MetricsHandle;
use tollgate_limiter::clock::Instant;
use tollgate_team::Team;

/// The console of a gateway.
#[derive(Clone)]
pub struct ConsoleState(Arc<ConsoleParts>);

/// All that the console is made of.
pub struct ConsoleParts {
    pub admin: AdminState,
    pub team: Team,
    /// Where the admin port is bound to.
    pub address: SocketAddr,
    pub config: Arc<ConfigStatus>,
    pub metrics: MetricsHandle,
    /// Requests in flight, and tunnels among them.
    pub in_flight: Arc<dyn Fn() -> (usize, usize) + Send + Sync>,
    /// `None`: the gateway has no store.
    pub fleet: Option<FleetParts>,
    pub started: Instant,
    pub tokens: FormTokens,
    pub live: Mutex<LiveData>,
}

/// The shared store and the fleet, as this node knows them.
pub struct FleetParts {
    /// Where the store is, without credentials.
    pub store: String,
    pub breaker: Arc<Breaker>,
    pub share: Arc<FleetShare>,
}

impl ConsoleState {
    pub fn new(parts: ConsoleParts) -> Self {
        Self(Arc::new(parts))
    }

    /// Takes samples until dropped.
    pub async fn sample(&self) {
        let mut steps = tokio::time::interval(STEP);
        steps.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            steps.tick().await;
            let gateway = self.admin.gateway.load_full();
            self.live.lock().sample(&self.metrics, &gateway);
        }
    }
}

impl std::ops::Deref for ConsoleState {
    type Target = ConsoleParts;

    fn deref(&self) -> &ConsoleParts {
        &self.0
    }
}
