//! The console as a part of the control plane.

use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn;
use parking_lot::Mutex;

use super::team::TeamControl;
use crate::app::shared::SharedState;
use tollgate_admin::AdminExtension;
use tollgate_admin::config_status::ConfigStatus;
use tollgate_admin::state::AdminState;
use tollgate_console as console;
use tollgate_console::state::{ConsoleParts, ConsoleState, FleetParts};
use tollgate_console::tokens::FormTokens;
use tollgate_gateway::observe::recorder::MetricsHandle;
use tollgate_limiter::clock;

/// The parts of a gateway that its console shows.
pub struct ShownParts<'a> {
    pub admin: AdminState,
    pub team: &'a TeamControl,
    pub status: Arc<ConfigStatus>,
    pub metrics: MetricsHandle,
    /// Requests in flight, and tunnels among them.
    pub in_flight: Arc<dyn Fn() -> (usize, usize) + Send + Sync>,
    pub shared: &'a SharedState,
}

/// The console of a running gateway.
pub struct ConsoleControl(ConsoleState);

impl ConsoleControl {
    /// The console on the admin port that `listener` is.
    ///
    /// # Errors
    /// When the listener has no address, or the system no random numbers.
    pub fn new(listener: &TcpListener, shown: ShownParts<'_>) -> anyhow::Result<Option<Self>> {
        let Ok(tokens) = FormTokens::new() else {
            anyhow::bail!("the system has no random numbers");
        };
        Ok(Some(Self(ConsoleState::new(ConsoleParts {
            admin: shown.admin,
            team: shown.team.team.clone(),
            address: listener.local_addr()?,
            config: shown.status,
            metrics: shown.metrics,
            in_flight: shown.in_flight,
            fleet: fleet_parts(shown.shared),
            started: clock::now(),
            tokens,
            live: Mutex::default(),
        }))))
    }

    /// Names the console in the index of the admin port.
    pub fn add_to_index(&self, extension: &mut AdminExtension) {
        extension.index += console::INDEX;
    }

    /// The pages of the admin port and those of the console.
    pub fn with_pages(&self, pages: Router) -> Router {
        let pages = pages.merge(console::router(self.0.clone()));
        pages.layer(from_fn(console::lead_browsers))
    }

    /// Keeps what the console shows of the last minutes. Runs until dropped.
    pub async fn sample(&self) {
        self.0.sample().await;
    }
}

/// The store and the fleet, as the console shows them.
fn fleet_parts(shared: &SharedState) -> Option<FleetParts> {
    let fleet = shared.fleet.as_ref()?;
    Some(FleetParts {
        store: fleet.spec.redacted_url(),
        breaker: fleet.node.breaker.clone(),
        share: fleet.node.share.clone(),
    })
}
