//! Leases connections to upstreams, or streams of them: an idle one, or a new one.
//!
//! Guarantees that no connection is leased that is known to be closed.

mod lease;

use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_util::future::{Either, select};
pub use lease::{Lease, LeaseNeeds};
use tokio::sync::futures::Notified;
use tokio::time::timeout_at;

use super::exchange::{UpstreamConnection, timeouts_of};
use super::exhaustion::{Exhaustion, MakeRoom};
use super::h2::MultiplexedConnection;
use super::h2::exchange::Http2Exchange;
use super::h2::group::{ConnectionGroup, ConnectionGroups, StreamClaim, StreamLease};
use super::pool::{self, Pool};
use crate::gave_up::EndpointWait;
use crate::upstream::bounds::{
    BoundedPlace, ConnectionBound, ConnectionSlot, Entry, PendingConnect, Vacancy,
};
use crate::upstream::endpoints::{ConnectTerms, Http2Use, PickedEndpoint, UpstreamConnectError};
use crate::upstream::{Upstream, UpstreamSpec};
use tollgate_limiter::clock::{self, Instant};
use tollgate_wire::http::deadline::{UpstreamWait, Wait as _};
use tollgate_wire::transport::Stream;
use tollgate_wire::transport::tls::client::HttpOffer;

/// The upstream connections of a worker.
#[derive(Default)]
pub struct Client {
    pool: Arc<Pool<Box<UpstreamConnection>>>,
    groups: Arc<ConnectionGroups>,
    exhaustion: Exhaustion,
}

impl Client {
    /// `clients` give way when there is no descriptor left.
    pub fn new(clients: MakeRoom) -> Self {
        Self {
            exhaustion: Exhaustion::new(clients),
            ..Self::default()
        }
    }

    /// Drops connections that were idle for too long. Cheap; to be called every few seconds.
    pub fn sweep(&self) {
        let now = clock::now();
        self.pool.sweep(now);
        self.groups.sweep(now);
    }

    /// Closes idle connections to servers that are not `wanted` any more, by their keys.
    pub fn retain(&self, wanted: impl Fn(&str) -> bool) {
        self.pool.retain(&wanted);
        self.groups.retain(&wanted);
    }

    /// The number of idle connections.
    pub fn idle(&self) -> usize {
        self.pool.len() + self.groups.idle()
    }

    /// An idle connection to an endpoint of HTTP/1, without a wait. If there is none, the endpoint
    /// is returned as the error.
    #[inline]
    pub fn lease_idle(
        &self,
        upstream: &Upstream,
        endpoint: PickedEndpoint,
        needs: LeaseNeeds<'_>,
    ) -> Result<Lease, PickedEndpoint> {
        let must_wait = needs.fresh
            || endpoint.http2() != Http2Use::Never
            || upstream.connection_bound().is_some();
        if must_wait {
            return Err(endpoint);
        }
        match self.pool.take(endpoint.key(), needs.now) {
            Some(mut connection) => {
                connection.lease(needs.spec, endpoint, needs.now);
                Ok(Lease::Http1(connection))
            }
            None => Err(endpoint),
        }
    }

    /// A connection to the endpoint, or a stream of one: an idle one, or a new one where there is
    /// none.
    pub async fn lease(
        &self,
        upstream: &Upstream,
        endpoint: PickedEndpoint,
        needs: LeaseNeeds<'_>,
    ) -> Result<Lease, UpstreamConnectError> {
        match endpoint.http2() {
            Http2Use::Never => {}
            // HTTP/2 has no upgrades.
            Http2Use::Offered if needs.upgrade && !endpoint.has_declined_http1() => {}
            Http2Use::Offered | Http2Use::Always => {
                let deadline = deadline(needs.spec, needs.now);
                return Box::pin(self.lease_stream(upstream, endpoint, needs, deadline)).await;
            }
        }
        let now = needs.now;
        // Boxed: rare, and large.
        let opened = match upstream.connection_bound() {
            Some(bound) => Box::pin(self.wait(upstream, bound, &endpoint, needs)).await,
            None => {
                if let Some(mut connection) = self.take_idle(&endpoint, needs, now) {
                    connection.lease(needs.spec, endpoint, now);
                    return Ok(Lease::Http1(connection));
                }
                let deadline = deadline(needs.spec, now);
                Box::pin(self.open(upstream, &endpoint, needs, deadline, None)).await
            }
        };
        match opened {
            // An endpoint that speaks HTTP/2 alone may take a WebSocket too.
            Err(UpstreamConnectError::OfferRefused(_)) if endpoint.http2() == Http2Use::Offered => {
                endpoint.record_declined_http1();
                Box::pin(self.lease_stream(upstream, endpoint, needs, deadline(needs.spec, now)))
                    .await
            }
            opened => Ok(Self::http1(opened?, needs.spec, endpoint)),
        }
    }

    /// An idle connection to an endpoint of HTTP/1, if the request may have one.
    #[inline]
    fn take_idle(
        &self,
        endpoint: &PickedEndpoint,
        needs: LeaseNeeds<'_>,
        now: Instant,
    ) -> Option<Box<UpstreamConnection>> {
        if needs.fresh {
            None
        } else {
            self.pool.take(endpoint.key(), now)
        }
    }

    /// A connection of an upstream whose connections are bounded. Waits for one within the time
    /// that connecting may take.
    async fn wait(
        &self,
        upstream: &Upstream,
        bound: &Arc<ConnectionBound>,
        endpoint: &PickedEndpoint,
        needs: LeaseNeeds<'_>,
    ) -> Result<Box<UpstreamConnection>, UpstreamConnectError> {
        let deadline = deadline(needs.spec, clock::now());
        let mut in_front = false;
        loop {
            // An idle connection is for requests that wait already.
            if (in_front || !bound.is_crowded())
                && let Some(connection) = self.take_idle(endpoint, needs, clock::now())
            {
                return Ok(connection);
            }
            let slot = match self.enter(upstream, bound, endpoint, in_front)? {
                Entry::Slot(slot) => slot,
                Entry::Full => return Err(UpstreamConnectError::Overloaded),
                Entry::Pending(mut pending) => match timeout_at(deadline, pending.turn()).await {
                    Ok(Vacancy::Slot(slot)) => slot,
                    Ok(Vacancy::Idle) => {
                        in_front = true;
                        continue;
                    }
                    Err(_) => return Err(UpstreamConnectError::Overloaded),
                },
            };
            return self
                .open(upstream, endpoint, needs, deadline, Some(slot))
                .await;
        }
    }

    /// Asks for a connection of an upstream whose connections are bounded. Makes room for a request
    /// that has to wait.
    fn enter(
        &self,
        upstream: &Upstream,
        bound: &Arc<ConnectionBound>,
        endpoint: &PickedEndpoint,
        in_front: bool,
    ) -> Result<Entry, UpstreamConnectError> {
        bound.watch(&self.pool);
        bound.watch(&self.groups);
        let entry = bound.enter(pool::place(&self.pool, endpoint.key()), in_front);
        match entry {
            Entry::Full => return Err(UpstreamConnectError::Overloaded),
            Entry::Pending(_) => bound.close_an_idle_one(
                upstream
                    .endpoints()
                    .iter()
                    .map(|endpoint| &**endpoint.key()),
            ),
            Entry::Slot(_) => {}
        }
        Ok(entry)
    }

    /// A stream of a connection that has room, or of a new one. An endpoint that did not take
    /// HTTP/2 has a connection.
    async fn lease_stream(
        &self,
        upstream: &Upstream,
        endpoint: PickedEndpoint,
        needs: LeaseNeeds<'_>,
        deadline: Instant,
    ) -> Result<Lease, UpstreamConnectError> {
        let group = self.groups.group(endpoint.key());
        let mut in_front = false;
        loop {
            let mut freed = pin!(group.freed().notified());
            freed.as_mut().enable();
            // An idle connection is for requests that wait already.
            let is_crowded = !in_front
                && upstream
                    .connection_bound()
                    .is_some_and(|bound| bound.is_crowded());
            if endpoint.has_declined_http2()
                && !is_crowded
                && let Some(connection) = self.take_idle(&endpoint, needs, clock::now())
            {
                return Ok(Self::http1(connection, needs.spec, endpoint));
            }
            let mut opening = match group.claim(|connection| needs.allow(connection)) {
                StreamClaim::Take(stream) => return Ok(Self::http2(stream, needs.spec, endpoint)),
                StreamClaim::Open(opening) => opening,
                // Each exchange will need a connection of its own.
                StreamClaim::Wait(_) if endpoint.has_declined_http2() => group.open(),
                StreamClaim::Wait(_waiting) => {
                    let waited = timeout_at(deadline, freed).await;
                    let late = if group.is_empty() {
                        UpstreamConnectError::Timeout
                    } else {
                        UpstreamConnectError::Overloaded
                    };
                    waited.map_err(|_| late)?;
                    continue;
                }
            };
            let entry = upstream
                .connection_bound()
                .map(|bound| self.enter(upstream, bound, &endpoint, in_front));
            let slot = match entry {
                None => None,
                Some(Ok(Entry::Slot(slot))) => Some(slot),
                Some(Ok(Entry::Full) | Err(_)) => {
                    let stream = group.take_any().ok_or(UpstreamConnectError::Overloaded)?;
                    return Ok(Self::http2(stream, needs.spec, endpoint));
                }
                Some(Ok(Entry::Pending(mut pending))) => {
                    opening.withdraw();
                    let turn = turn_or_stream(&mut pending, &group, freed.as_mut(), deadline);
                    match turn.await? {
                        Either::Left(Vacancy::Slot(slot)) => {
                            opening.resume();
                            Some(slot)
                        }
                        Either::Left(Vacancy::Idle) => {
                            in_front = true;
                            continue;
                        }
                        Either::Right(stream) => {
                            return Ok(Self::http2(stream, needs.spec, endpoint));
                        }
                    }
                }
            };
            // The notice goes to another request that waits.
            freed.set(group.freed().notified());
            let terms = ConnectTerms {
                deadline,
                offer: HttpOffer::Any,
                client: None,
            };
            let connecting = self.connect(upstream, &endpoint, terms);
            let stream =
                EndpointWait::connecting(upstream, &endpoint, needs.source, connecting).await?;
            let is_http2 = endpoint.http2() == Http2Use::Always || stream.is_http2();
            endpoint.record_http2(is_http2);
            let counted = upstream.metrics().connected(slot);
            let place = pool::place(&self.pool, endpoint.key());
            if !is_http2 {
                let connection = UpstreamConnection::new(
                    stream,
                    &self.pool,
                    endpoint.key(),
                    upstream.spec(),
                    counted,
                );
                return Ok(Self::http1(Box::new(connection), needs.spec, endpoint));
            }
            let freed = Arc::clone(group.freed());
            let bound = counted
                .bound()
                .map(|bound| BoundedPlace::new(Arc::clone(bound), place));
            let handshake =
                MultiplexedConnection::open(stream, upstream.spec(), counted, bound, freed);
            let handshake = timeout_at(deadline, handshake);
            let opened = match EndpointWait::connecting(
                upstream,
                &endpoint,
                needs.source,
                handshake,
            )
            .await
            {
                Ok(opened) => opened,
                Err(_) => Err(UpstreamConnectError::Timeout),
            };
            let connection = opened.inspect_err(|error| not_opened(upstream, &endpoint, error))?;
            if let Some(stream) = opening.opened(&connection) {
                return Ok(Self::http2(stream, needs.spec, endpoint));
            }
        }
    }

    fn http1(
        mut connection: Box<UpstreamConnection>,
        spec: &Arc<UpstreamSpec>,
        endpoint: PickedEndpoint,
    ) -> Lease {
        connection.lease(spec, endpoint, clock::now());
        Lease::Http1(connection)
    }

    fn http2(stream: StreamLease, spec: &UpstreamSpec, endpoint: PickedEndpoint) -> Lease {
        let exchange = Http2Exchange::new(stream, endpoint, spec, clock::now());
        Lease::Http2(Box::new(exchange))
    }

    async fn open(
        &self,
        upstream: &Upstream,
        endpoint: &PickedEndpoint,
        needs: LeaseNeeds<'_>,
        deadline: Instant,
        slot: Option<ConnectionSlot>,
    ) -> Result<Box<UpstreamConnection>, UpstreamConnectError> {
        let terms = ConnectTerms {
            deadline,
            offer: HttpOffer::Http1,
            client: needs.source.sockets,
        };
        let connecting = self.connect(upstream, endpoint, terms);
        let stream = EndpointWait::connecting(upstream, endpoint, needs.source, connecting).await?;
        let open = upstream.metrics().connected(slot);
        Ok(Box::new(UpstreamConnection::new(
            stream,
            &self.pool,
            endpoint.key(),
            upstream.spec(),
            open,
        )))
    }

    async fn connect(
        &self,
        upstream: &Upstream,
        endpoint: &PickedEndpoint,
        terms: ConnectTerms<'_>,
    ) -> Result<Stream, UpstreamConnectError> {
        let name = &upstream.spec().name;
        let mut connected = endpoint.connect(terms).await;
        if let Err(UpstreamConnectError::Exhausted(error)) = &connected {
            self.exhaustion
                .make_room(error, || self.pool.close_any())
                .await;
            connected = endpoint.connect(terms).await;
        }
        match connected {
            Ok(stream) => {
                if endpoint.record_connected() {
                    tracing::info!(upstream = %name, endpoint = endpoint.url(), "an endpoint accepts connections again");
                }
                Ok(stream)
            }
            // An endpoint that refuses HTTP/1.1 may take HTTP/2.
            Err(error @ UpstreamConnectError::OfferRefused(_))
                if terms.offer == HttpOffer::Http1 && endpoint.http2() == Http2Use::Offered =>
            {
                Err(error)
            }
            Err(error) => {
                upstream.record_unconnected(endpoint, &error);
                if !matches!(error, UpstreamConnectError::Exhausted(_)) && endpoint.record_refused()
                {
                    let endpoint = endpoint.url();
                    tracing::warn!(upstream = %name, endpoint, %error, "an endpoint accepts no connection");
                }
                Err(error)
            }
        }
    }
}

/// Records that an endpoint has accepted a connection and sends no SETTINGS over it.
fn not_opened(upstream: &Upstream, endpoint: &PickedEndpoint, error: &UpstreamConnectError) {
    upstream.record_unconnected(endpoint, error);
    endpoint.log_failure(
        &upstream.spec().name,
        "it accepts connections and sends no SETTINGS of HTTP/2",
    );
}

/// The time by which a request that asks for a connection at `since` must have it.
fn deadline(spec: &UpstreamSpec, since: Instant) -> Instant {
    since + UpstreamWait::Connect.limit(&timeouts_of(spec))
}

/// Waits in the queue for a connection, and keeps its place until its turn has come or there is a
/// stream. After a part of the time, a connection that is expected to end will do: it may have
/// streams that do not.
async fn turn_or_stream<'a>(
    pending: &mut PendingConnect,
    group: &'a Arc<ConnectionGroup>,
    mut freed: Pin<&mut Notified<'a>>,
    deadline: Instant,
) -> Result<Either<Vacancy, StreamLease>, UpstreamConnectError> {
    let now = clock::now();
    let patient_until = now + deadline.saturating_duration_since(now) / 4;
    loop {
        let is_patient = clock::now() < patient_until;
        let stream = if is_patient {
            group.take()
        } else {
            group.take_any()
        };
        if let Some(stream) = stream {
            return Ok(Either::Right(stream));
        }
        let until = if is_patient { patient_until } else { deadline };
        match timeout_at(until, select(pin!(pending.turn()), freed.as_mut())).await {
            Ok(Either::Left((vacancy, _))) => return Ok(Either::Left(vacancy)),
            Err(_) if !is_patient => return Err(UpstreamConnectError::Overloaded),
            // No notice came: the wait for it goes on.
            Err(_) => continue,
            Ok(Either::Right(_)) => {}
        }
        freed.set(group.freed().notified());
        freed.as_mut().enable();
    }
}
