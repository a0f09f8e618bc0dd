//! Leases connections to upstreams: an idle one from the pool, or a new one.
//!
//! Guarantees that no connection is leased that is known to be closed.

use std::sync::Arc;

use super::exchange::{UpstreamConnection, timeouts_of};
use super::pool::Pool;
use crate::clock;
use crate::http::deadline::{UpstreamWait, Wait as _};
use crate::upstream::Upstream;
use crate::upstream::endpoints::{PickedEndpoint, UpstreamConnectError};

/// The upstream connections of a worker.
#[derive(Default)]
pub struct Client {
    pool: Arc<Pool<Box<UpstreamConnection>>>,
}

impl Client {
    /// Drops connections that were idle for too long. Cheap; to be called every few seconds.
    pub fn sweep(&self) {
        self.pool.sweep(clock::now());
    }

    /// The number of idle connections.
    pub fn idle(&self) -> usize {
        self.pool.len()
    }

    /// A connection to the endpoint: an idle one, or a new one where there is none or a `fresh` one is asked for.
    pub async fn lease(
        &self,
        upstream: &Upstream,
        endpoint: PickedEndpoint,
        fresh: bool,
    ) -> Result<Box<UpstreamConnection>, UpstreamConnectError> {
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
    ) -> Result<Box<UpstreamConnection>, UpstreamConnectError> {
        let stream = match endpoint.connect(UpstreamWait::Connect.limit(&timeouts_of(upstream.spec()))).await {
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
        Ok(Box::new(UpstreamConnection::new(stream.into(), &self.pool, endpoint.key(), upstream.spec(), open)))
    }
}
