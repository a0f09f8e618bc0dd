//! Leases connections to upstreams: an idle one from the pool, or a new one.
//!
//! Guarantees that no connection is leased that is known to be closed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;

use super::exchange::{UpstreamConnection, timeouts_of};
use super::exhaustion::{Exhaustion, MakeRoom};
use super::pool::{self, Pool};
use crate::clock;
use crate::http::deadline::{UpstreamWait, Wait as _};
use crate::transport::tls::client::HttpOffer;
use crate::upstream::Upstream;
use crate::upstream::bounds::{ConnectionBound, ConnectionSlot, Entry, Vacancy};
use crate::upstream::endpoints::{PickedEndpoint, UpstreamConnectError};

/// The upstream connections of a worker.
#[derive(Default)]
pub struct Client {
    pool: Arc<Pool<Box<UpstreamConnection>>>,
    exhaustion: Exhaustion,
}

impl Client {
    /// `clients` give way when there is no descriptor left.
    pub fn new(clients: MakeRoom) -> Self {
        Self { pool: Arc::default(), exhaustion: Exhaustion::new(clients) }
    }

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
        let (mut connection, now) = match upstream.connection_bound() {
            // Boxed: rare, and large.
            Some(bound) => (Box::pin(self.wait(upstream, bound, &endpoint, fresh)).await?, clock::now()),
            None => match if fresh { None } else { self.pool.take(endpoint.key(), now) } {
                Some(connection) => (connection, now),
                None => {
                    let patience = UpstreamWait::Connect.limit(&timeouts_of(upstream.spec()));
                    (Box::pin(self.open(upstream, &endpoint, patience, None)).await?, clock::now())
                }
            },
        };
        connection.lease(upstream.spec(), endpoint, now);
        Ok(connection)
    }

    /// A connection of an upstream that has only so many. Waits for one within the time that connecting may take.
    async fn wait(
        &self,
        upstream: &Upstream,
        bound: &Arc<ConnectionBound>,
        endpoint: &PickedEndpoint,
        fresh: bool,
    ) -> Result<Box<UpstreamConnection>, UpstreamConnectError> {
        let deadline = clock::now() + UpstreamWait::Connect.limit(&timeouts_of(upstream.spec()));
        let take = || if fresh { None } else { self.pool.take(endpoint.key(), clock::now()) };
        let open = |slot| {
            let patience = deadline.saturating_duration_since(clock::now());
            self.open(upstream, endpoint, patience, Some(slot))
        };
        let mut in_front = false;
        loop {
            // An idle connection is for those who wait already.
            let idle = if in_front || !bound.is_crowded() { take() } else { None };
            if let Some(connection) = idle {
                return Ok(connection);
            }
            bound.watch(&self.pool);
            let mut pending = match bound.enter(pool::place(&self.pool, endpoint.key()), in_front) {
                Entry::Slot(slot) => return open(slot).await,
                Entry::Full => return Err(UpstreamConnectError::Overloaded),
                Entry::Pending(pending) => pending,
            };
            bound.close_an_idle_one(upstream.endpoints().iter().map(|endpoint| &**endpoint.key()));
            match timeout_at(deadline, pending.turn()).await {
                Ok(Vacancy::Slot(slot)) => return open(slot).await,
                Ok(Vacancy::Idle) => in_front = true,
                Err(_) => return Err(UpstreamConnectError::Overloaded),
            }
        }
    }

    async fn open(
        &self,
        upstream: &Upstream,
        endpoint: &PickedEndpoint,
        patience: Duration,
        slot: Option<ConnectionSlot>,
    ) -> Result<Box<UpstreamConnection>, UpstreamConnectError> {
        let name = &upstream.spec().name;
        let mut connected = endpoint.connect(patience, HttpOffer::Http1).await;
        if let Err(UpstreamConnectError::Exhausted(error)) = &connected {
            self.exhaustion.make_room(error, || self.pool.close_any()).await;
            connected = endpoint.connect(patience, HttpOffer::Http1).await;
        }
        let stream = match connected {
            Ok(stream) => stream,
            Err(error) => {
                upstream.metrics().connect_failed(&error);
                if !matches!(error, UpstreamConnectError::Exhausted(_)) && endpoint.record_refused() {
                    let endpoint = endpoint.url();
                    tracing::warn!(upstream = %name, endpoint, %error, "an endpoint accepts no connection");
                }
                return Err(error);
            }
        };
        if endpoint.record_connected() {
            tracing::info!(upstream = %name, endpoint = endpoint.url(), "an endpoint accepts connections again");
        }
        let open = upstream.metrics().connected(slot);
        Ok(Box::new(UpstreamConnection::new(stream, &self.pool, endpoint.key(), upstream.spec(), open)))
    }
}
