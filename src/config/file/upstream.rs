//! `upstreams`: groups of servers, how one of them is chosen and how long each is waited for.

use super::scalar::address::EndpointUrl;
use super::scalar::number::{BoundedDuration, DAY, WholeNumber};
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::Located;
use crate::config::yaml::record::record;
use crate::config::yaml::words::words;
use crate::upstream::Balance;

record! {
    /// Servers that answer alike.
    RawUpstream {
        /// Where they are: http://host:port.
        required endpoints: NonEmptyList<Located<EndpointUrl>>,
        /// How the next one is chosen.
        default("round_robin") balance: Located<Balance>,
        /// To establish a TCP connection.
        default("2s") connect_timeout: Located<BoundedDuration<DAY>>,
        /// From the request being sent to the response's header section.
        default("30s") response_timeout: Located<BoundedDuration<DAY>>,
        /// Between two reads of a response body or two writes of a request body.
        default("60s") idle_timeout: Located<BoundedDuration<DAY>>,
        /// How long an unused connection is kept. Keep it below the server's own: Node.js closes after 5s.
        default("4s") keepalive_timeout: Located<BoundedDuration<DAY>>,
        /// Unused connections kept per endpoint and worker.
        default(64) keepalive_connections: Located<WholeNumber<1, 65_536>>,
    }
}

words! {
    Balance: "round_robin or least_requests" { "round_robin" => RoundRobin, "least_requests" => LeastRequests }
}
