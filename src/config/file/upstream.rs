//! `upstreams`: groups of servers, how one of them is chosen and how long each is waited for.

use super::scalar::number::{BoundedDuration, DAY, WholeNumber};
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::Located;
use crate::config::yaml::record::record;
use crate::config::yaml::words::words;
use crate::upstream::Balance;
use crate::upstream::url::EndpointUrl;

record! {
    /// Servers that answer alike.
    RawUpstream {
        /// Where they are: http://host:port, or unix:/path for a socket of this machine.
        required endpoints: NonEmptyList<Located<EndpointUrl>>,
        /// How the next one is chosen.
        default("round_robin") balance: Located<Balance>,
        /// To open a connection, and to wait for one at the bounds.
        default("2s") connect_timeout: Located<BoundedDuration<DAY>>,
        /// From the request being sent to the response's header section.
        default("30s") response_timeout: Located<BoundedDuration<DAY>>,
        /// Between two reads of a response body or two writes of a request body.
        default("60s") idle_timeout: Located<BoundedDuration<DAY>>,
        /// How long an unused connection is kept. Keep it below the server's own: Node.js closes after 5s.
        default("4s") keepalive_timeout: Located<BoundedDuration<DAY>>,
        /// Unused connections kept per endpoint and worker.
        default(64) keepalive_connections: Located<WholeNumber<1, 65_536>>,
        /// What it takes at most. Default: no bound.
        optional bounds: RawBounds,
    }
}

record! {
    /// What an upstream takes at most; beyond it 503.
    RawBounds {
        /// Open connections, all workers together. Further requests wait for one within connect_timeout.
        optional connections: Located<WholeNumber<1, 1_000_000>>,
        /// Requests that wait for a connection. Default: no bound.
        optional pending: Located<WholeNumber<0, 1_000_000>>,
        /// Requests in flight, all workers together.
        optional requests: Located<WholeNumber<1, 1_000_000_000>>,
    }
}

words! {
    Balance: "round_robin or least_requests" { "round_robin" => RoundRobin, "least_requests" => LeastRequests }
}
