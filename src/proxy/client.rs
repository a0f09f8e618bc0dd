//! Connections to upstreams: opened, lent, kept.
//!
//! Guarantees that none is lent that is known to be closed. Knows nothing of what goes over them.

use std::sync::Arc;

use super::connection::Connection;
use super::pool::Pool;
use crate::clock;
use crate::upstream::Upstream;
use crate::upstream::endpoints::{PickedEndpoint, UpstreamConnectError};

/// One worker's connections.
#[derive(Default)]
pub struct Client {
    pool: Arc<Pool<Box<Connection>>>,
}

impl Client {
    /// Drops connections that were idle for too long. Cheap; to be called every few seconds.
    pub fn sweep(&self) {
        self.pool.sweep(clock::now());
    }

    /// Connections without work.
    pub fn idle(&self) -> usize {
        self.pool.len()
    }

    /// An idle connection to the endpoint, unless a `fresh` one is wanted or there is none.
    pub async fn lease(
        &self,
        upstream: &Upstream,
        endpoint: PickedEndpoint,
        fresh: bool,
    ) -> Result<Box<Connection>, UpstreamConnectError> {
        let now = clock::now();
        let kept = if fresh { None } else { self.pool.take(endpoint.key(), now) };
        let (mut connection, now) = match kept {
            Some(connection) => (connection, now),
            // Boxed: rare, and large.
            None => (Box::pin(self.open(upstream, &endpoint)).await?, clock::now()),
        };
        connection.lease(upstream.spec(), endpoint, now);
        Ok(connection)
    }

    async fn open(
        &self,
        upstream: &Upstream,
        endpoint: &PickedEndpoint,
    ) -> Result<Box<Connection>, UpstreamConnectError> {
        let stream = match endpoint.connect(upstream.spec().connect_timeout).await {
            Ok(stream) => stream,
            Err(error) => {
                upstream.metrics().connect_failed(&error);
                if endpoint.record_refused() {
                    tracing::warn!(endpoint = %endpoint.key(), %error, "an endpoint accepts no connection");
                }
                return Err(error);
            }
        };
        if endpoint.record_connected() {
            tracing::info!(endpoint = %endpoint.key(), "an endpoint accepts connections again");
        }
        let open = upstream.metrics().connected();
        Ok(Box::new(Connection::new(stream, &self.pool, endpoint.key(), upstream.spec(), open)))
    }
}
