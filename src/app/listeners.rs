//! Binds the listeners: one socket per address and worker.

use std::net::TcpListener as StdListener;
use std::sync::Arc;

use anyhow::Context;

use crate::config::{Config, ListenerConfig};
use crate::server::{self, ConnectionLimit, ListenerSpec};

/// A listener that is bound for one worker.
pub struct BoundListener {
    pub socket: StdListener,
    pub spec: Arc<ListenerSpec>,
    pub limit: ConnectionLimit,
}

/// Binds every address for every worker before any of them runs: an address that can't be bound stops the start. Returns a
/// list of listeners for each worker.
pub fn bind(config: &Config) -> anyhow::Result<Vec<Vec<BoundListener>>> {
    for ListenerConfig { server: spec, .. } in &config.listeners {
        server::check_free(spec).with_context(|| format!("cannot listen on {}", spec.address))?;
    }
    let mut workers: Vec<Vec<BoundListener>> = Vec::new();
    workers.resize_with(config.workers.get(), Vec::new);
    for listener in &config.listeners {
        let mut spec = listener.server.clone();
        let limit = ConnectionLimit::new(spec.max_connections);
        for listeners in &mut workers {
            let socket = server::bind(&spec).with_context(|| format!("cannot listen on {}", spec.address))?;
            // Port 0 is any free port, the same for all workers.
            spec.address = socket.local_addr()?;
            listeners.push(BoundListener { socket, spec: Arc::new(spec.clone()), limit: limit.clone() });
        }
        tracing::info!(address = %spec.address, "listening");
    }
    Ok(workers)
}
