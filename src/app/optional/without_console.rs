//! A stand-in for the console, in a build without the feature `console`: there is none.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;

use super::team::TeamControl;
use crate::app::shared::SharedState;
use tollgate_admin::AdminExtension;
use tollgate_admin::config_status::ConfigStatus;
use tollgate_admin::state::AdminState;
use tollgate_gateway::observe::recorder::MetricsHandle;

/// The parts of a gateway that a console shows.
#[expect(dead_code, reason = "nothing shows them")]
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
pub struct ConsoleControl(Infallible);

impl ConsoleControl {
    /// # Errors
    /// Never.
    pub fn new(_: &TcpListener, _: ShownParts<'_>) -> anyhow::Result<Option<Self>> {
        Ok(None)
    }

    pub fn add_to_index(&self, _: &mut AdminExtension) {
        match self.0 {}
    }

    pub fn with_pages(&self, _: Router) -> Router {
        match self.0 {}
    }

    pub async fn sample(&self) {
        match self.0 {}
    }
}
