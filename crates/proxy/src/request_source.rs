//! The client of a request, as far as its upstream learns of it, and the way of interim responses
//! to the client.

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, StatusCode, Version};

use super::message::forwarded::ClientOrigin;
use super::message::headers;
use super::report::SentMark;
use crate::upstream::affinity::Affinity;
use tollgate_limiter::clock::Instant;
use tollgate_wire::http::interim::InterimSlot;
use tollgate_wire::transport::peer::SocketPair;

/// Where a request comes from, and where interim responses to it go.
#[derive(Clone, Copy)]
pub struct RequestSource<'a> {
    pub origin: &'a ClientOrigin,
    pub request_id: &'a HeaderValue,
    pub interim: &'a InterimSlot,
    /// The client's connection. `None`: the client has no IP address.
    pub sockets: Option<&'a SocketPair>,
    /// A property that the request has in common with others that go to the same endpoint.
    pub affinity: Option<Affinity>,
    /// When the proxy got the request, as far as the clock was read.
    pub begun: Instant,
    /// When the wait for an answer is given up, as the upstream's fault.
    pub deadline: Option<Instant>,
    /// The gateway has set fields already, and removed the client's claims before.
    pub has_own_fields: bool,
    /// Whether the request was sent.
    pub sent: &'a SentMark,
}

/// Where the upstream's interim responses go, if the client takes any.
#[derive(Clone, Copy)]
pub struct InterimRelay<'a>(Option<&'a InterimSlot>);

impl<'a> InterimRelay<'a> {
    /// The way to a client that made its request in `version`. HTTP/1.0 has no interim responses
    /// (RFC 9110 §15.2).
    pub fn to_client(slot: &'a InterimSlot, version: Version) -> Self {
        if version == Version::HTTP_10 {
            Self(None)
        } else {
            Self(Some(slot))
        }
    }

    /// Relays an interim response, without the fields that are for the upstream's connection. A 101
    /// is not relayed: what follows it is not HTTP, and HTTP/2 has no 101 (RFC 9113 §8.6).
    pub fn relay(self, status: StatusCode, mut fields: HeaderMap) {
        if status != StatusCode::SWITCHING_PROTOCOLS
            && let Some(slot) = self.0
        {
            headers::strip_response(&mut fields);
            fields.remove(CONTENT_LENGTH);
            slot.push(status, fields);
        }
    }
}
