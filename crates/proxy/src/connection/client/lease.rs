//! A leased connection to an upstream, and the needs of the request that it is for.

use std::sync::Arc;
use std::time::Duration;

use crate::connection::exchange::UpstreamConnection;
use crate::connection::h2::MultiplexedConnection;
use crate::connection::h2::exchange::Http2Exchange;
use crate::request_source::RequestSource;
use crate::upstream::UpstreamSpec;
use crate::upstream::endpoints::Endpoint;
use tollgate_limiter::clock::Instant;

/// The carrier of one exchange.
pub enum Lease {
    Http1(Box<UpstreamConnection>),
    Http2(Box<Http2Exchange>),
}

/// The needs of a request for its connection.
#[derive(Clone, Copy)]
pub struct LeaseNeeds<'a> {
    /// The settings of the upstream that apply to the request.
    pub spec: &'a Arc<UpstreamSpec>,
    /// The time, read a moment ago.
    pub now: Instant,
    /// The request was sent before: it needs a connection that was never used.
    pub fresh: bool,
    /// The connections of HTTP/2 that did not take the request, by their numbers.
    pub refused_by: &'a [u64],
    /// The request asks to leave HTTP/1.1 for another protocol.
    pub upgrade: bool,
    /// The client of the request, and how long it waits.
    pub source: &'a RequestSource<'a>,
}

impl Lease {
    /// When its exchange began.
    pub fn begun_at(&self) -> Instant {
        match self {
            Self::Http1(connection) => connection.leased_at(),
            Self::Http2(exchange) => exchange.leased_at(),
        }
    }

    /// The time from the whole request to the response's head, which came `now`. `None`: the head
    /// came before the request was complete.
    pub fn latency(&self, now: Instant) -> Option<Duration> {
        let sent_at = match self {
            Self::Http1(connection) => connection.sent_at(),
            Self::Http2(exchange) => exchange.sent_at(),
        };
        sent_at.map(|sent_at| now.saturating_duration_since(sent_at))
    }

    /// The endpoint of the exchange. `None`: the exchange is over.
    pub fn endpoint(&self) -> Option<&Arc<Endpoint>> {
        match self {
            Self::Http1(connection) => connection.endpoint().map(|picked| &**picked),
            Self::Http2(exchange) => exchange.endpoint().map(|picked| &**picked),
        }
    }
}

impl LeaseNeeds<'_> {
    /// Whether the request may go over this connection.
    pub(super) fn allow(&self, connection: &MultiplexedConnection) -> bool {
        !(self.fresh && connection.is_used() || self.refused_by.contains(&connection.number()))
    }
}
