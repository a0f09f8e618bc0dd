//! The way of one request to an upstream and of its response back.
//!
//! Guarantees that bodies stream, and that either a response or a typed failure comes out. Knows nothing of routes, limits
//! and listeners.

use std::future::Future;
use std::sync::Arc;

use http::{HeaderValue, Request, Response, StatusCode, Version};

use super::client::Client;
use super::connection::Connection;
use super::forwarded::Origin;
use super::outbound::Outbound;
use super::retry::{MAX_ENDPOINTS, Retry};
use super::upgrade::{self, Wish};
use super::{additions, headers};
use crate::body::Body;
use crate::clock::{self, Instant};
use crate::error::Failure;
use crate::route::Forward;
use crate::upstream::Upstream;
use crate::upstream::balance::Tried;
use crate::upstream::endpoints::UpstreamConnectError;

/// One worker's way to upstreams, with the connections it keeps.
#[derive(Default)]
pub struct Proxy {
    client: Client,
}

impl Proxy {
    /// Drops idle connections whose time is over. To be called every few seconds on the worker.
    pub fn sweep(&self) {
        self.client.sweep();
    }

    /// Connections kept without work.
    pub fn idle_connections(&self) -> usize {
        self.client.idle()
    }

    /// Sends `request` to an endpoint of `upstream`. Must run inside the worker's runtime.
    ///
    /// The response's body streams; the connection is free again when it ended. Failures are those of the upstream
    /// (502, 503, 504), or of the request and its body (400, 408, 413, 501).
    pub fn forward<'a>(
        &'a self,
        request: Request<Body>,
        rule: &Forward,
        upstream: &'a Arc<Upstream>,
        origin: &'a Origin,
        request_id: &'a HeaderValue,
    ) -> impl Future<Output = Result<Response<Body>, Failure>> + Send + 'a {
        let pending = upstream.metrics().request();
        // Made before the future and used where it lies within: a request is large.
        let mut prepared = Outbound::prepare(request, rule, origin, request_id);
        async move {
            let result = match &mut prepared {
                Ok(outbound) => self.exchange(outbound, upstream, request_id).await,
                Err(failure) => Err(failure.clone()),
            };
            pending.finish(&result);
            result
        }
    }

    async fn exchange(
        &self,
        outbound: &mut Outbound<'_>,
        upstream: &Upstream,
        request_id: &HeaderValue,
    ) -> Result<Response<Body>, Failure> {
        upstream.budget().deposit();
        let mut retry = Retry::default();
        loop {
            let mut connection = self.reach(upstream, retry.is_spent()).await?;
            match connection.send(outbound).await {
                Ok(response) => {
                    let now = clock::now();
                    upstream.metrics().responded(now.saturating_duration_since(connection.leased_at()));
                    return relay(response, connection, outbound.wish.take(), request_id, now);
                }
                Err(failed) => outbound.upload = Some(retry.decide(failed, outbound.method(), upstream)?),
            }
        }
    }

    /// A connection to the first endpoint that has one to give.
    async fn reach(&self, upstream: &Upstream, fresh: bool) -> Result<Box<Connection>, Failure> {
        let mut tried = Tried::default();
        let mut failure = Failure::NoEndpoint;
        while tried.count() < MAX_ENDPOINTS
            && let Some(endpoint) = upstream.pick(&mut tried)
        {
            match self.client.lease(upstream, endpoint, fresh).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = connect_failure(&error),
            }
        }
        Err(failure)
    }
}

fn connect_failure(error: &UpstreamConnectError) -> Failure {
    match error {
        UpstreamConnectError::Timeout => Failure::ConnectTimeout,
        UpstreamConnectError::Failed(_) => Failure::ConnectFailed,
    }
}

/// What the client gets of a response.
fn relay(
    mut response: Response<()>,
    connection: Box<Connection>,
    wish: Option<Wish>,
    request_id: &HeaderValue,
    now: Instant,
) -> Result<Response<Body>, Failure> {
    let found = headers::strip_response(response.headers_mut());
    let received = response.version();
    // What the client speaks is the server's business: it steps down where it must.
    *response.version_mut() = Version::HTTP_11;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        // What is left of the request would be taken for the new protocol.
        let wish = wish.filter(|_| connection.is_sent()).ok_or(Failure::UpstreamInvalid)?;
        let granted = found.upgrade.unwrap_or_else(|| wish.protocol().clone());
        if upgrade::names_http(&granted) {
            return Err(Failure::UpstreamInvalid);
        }
        additions::add_to_response(response.headers_mut(), received, request_id, Some(granted));
        wish.grant(connection);
        return Ok(response.map(|_| Body::empty()));
    }
    additions::add_to_response(response.headers_mut(), received, request_id, None);
    Ok(response.map(|()| connection.carry(now)))
}
