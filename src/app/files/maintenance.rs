//! The files that put routes under maintenance while they exist.
//!
//! Guarantees that a route is under maintenance, or not, before its first request. If a file cannot
//! be looked up, its route keeps its state, also over a reload. A new route then starts under
//! maintenance, since its operator may want it closed.

use std::fs;
use std::io;
use std::sync::Arc;

use tollgate_gateway::Gateway;
use tollgate_gateway::maintenance::RouteMaintenance;

/// The routes of the running configuration that can be under maintenance.
#[derive(Default)]
pub struct MaintenanceFiles(Vec<WatchedRoute>);

struct WatchedRoute {
    maintenance: Arc<RouteMaintenance>,
    /// The last look at its file has failed.
    is_unknown: bool,
}

impl MaintenanceFiles {
    /// The routes of `gateway`, each as its file has it now.
    pub fn new(gateway: &Gateway) -> Self {
        let mut files = Vec::new();
        for runtime in &gateway.routes {
            if let Some(maintenance) = &runtime.guard.maintenance {
                let mut watched = WatchedRoute {
                    maintenance: maintenance.clone(),
                    is_unknown: false,
                };
                watched.look();
                files.push(watched);
            }
        }
        Self(files)
    }

    /// Shows by log and metrics which routes are under maintenance, in place of those of `before`.
    pub fn follow(self, before: &Self) -> Self {
        for gone in &before.0 {
            gone.maintenance.show_gone();
        }
        for WatchedRoute { maintenance, .. } in &self.0 {
            maintenance.show();
            if maintenance.is_on() {
                tracing::info!(
                    route = &*maintenance.route,
                    "the route is under maintenance"
                );
            }
        }
        self
    }

    /// Looks whether files have come or gone.
    pub fn check(&mut self) {
        for watched in &mut self.0 {
            if !watched.look() {
                continue;
            }
            let maintenance = &watched.maintenance;
            maintenance.show();
            let route = &*maintenance.route;
            let file = maintenance.file().unwrap_or("".as_ref()).display();
            if maintenance.is_on() {
                tracing::info!(route, %file, "maintenance begins: the file is there");
            } else {
                tracing::info!(route, %file, "maintenance has ended: the file is gone");
            }
        }
    }
}

impl WatchedRoute {
    /// Puts the route under maintenance if its file exists, and back into service if not. Returns
    /// whether that changed.
    fn look(&mut self) -> bool {
        let Some(file) = self.maintenance.file() else {
            return false;
        };
        let found = exists(file);
        if let Err(error) = &found
            && !self.is_unknown
        {
            let route = &*self.maintenance.route;
            let file = file.display();
            if self.maintenance.is_on() {
                tracing::warn!(route, %file, %error, "cannot look for the file of a maintenance: the route stays under maintenance");
            } else {
                tracing::warn!(route, %file, %error, "cannot look for the file of a maintenance: the route stays in service");
            }
        }
        self.is_unknown = found.is_err();
        found.is_ok_and(|on| self.maintenance.switch(on))
    }
}

/// Whether there is such a file, or anything else of that name: a link that leads nowhere, too.
fn exists(file: &std::path::Path) -> io::Result<bool> {
    match fs::symlink_metadata(file) {
        Ok(_) => Ok(true),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
