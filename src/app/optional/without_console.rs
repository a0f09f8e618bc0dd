//! A stand-in for the console, in a build without the feature `console`: there is none.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;

<<<<<<<< HEAD:src/app/console/without.rs
|||||||| 99406b6f:src/app/without_console.rs
use super::exporter::Exporter;
use super::shared::SharedState;
use super::team::TeamControl;
========
use super::team::TeamControl;
>>>>>>>> team:src/app/optional/without_console.rs
use crate::admin::AdminExtension;
use crate::admin::config_status::ConfigStatus;
use crate::admin::state::AdminState;
<<<<<<<< HEAD:src/app/console/without.rs
use crate::app::exporter::Exporter;
use crate::app::shared::SharedState;
use crate::app::team::TeamControl;
|||||||| 99406b6f:src/app/without_console.rs
========
use crate::app::shared::SharedState;
>>>>>>>> team:src/app/optional/without_console.rs
use crate::observe::recorder::MetricsHandle;

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
