//! `upstreams`: groups of servers, how one of them is chosen and how long each is waited for.

use serde_json::{Value as Json, json};

use super::balance::{RawBalance, RawEndpoint};
use super::discover::RawDiscover;
use super::health::{RawEject, RawHealth};
use super::scalar::number::{BoundedDuration, ByteSize, DAY, Percent, WholeNumber};
use super::store::PemPath;
use crate::config::report::{ValueProblem, quote};
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::{Located, Scalar};
use crate::config::yaml::record::record;
use crate::config::yaml::words::words;
use crate::transport::tls::client::PeerName;
use crate::upstream::Http2Policy;

record! {
    /// Servers that answer alike.
    RawUpstream at location {
        /// Where they are: http://host:port, https://host:port, h2c://host:port, or unix:/path for
        /// a socket of this machine. {url: …, weight: 2, backup: true} says more.
        optional endpoints: NonEmptyList<RawEndpoint>,
        /// Endpoints that are found by DNS or in a file, in place of endpoints.
        optional discover: RawDiscover,
        /// How the next one is chosen.
        default("round_robin") balance: RawBalance,
        /// The time in which an endpoint that is new or comes back gets to its share of the
        /// requests. Default: none.
        optional slow_start: Located<BoundedDuration<DAY, 100>>,
        /// How endpoints are probed. Default: not at all.
        optional health: RawHealth,
        /// When endpoints that fail requests get none for a while. Default: never.
        optional eject: RawEject,
        /// All endpoints get requests where a smaller share of them is in service. 0%: where none
        /// is.
        default("0%") panic_threshold: Located<Percent>,
        /// To open a connection, TLS included, and to wait for one at the bounds.
        default("2s") connect_timeout: Located<BoundedDuration<DAY>>,
        /// From the request being sent to the response's header section.
        default("30s") response_timeout: Located<BoundedDuration<DAY>>,
        /// Between two reads of a response body or two writes of a request body.
        default("60s") idle_timeout: Located<BoundedDuration<DAY>>,
        /// How long an unused connection is kept. Keep it below the server's own: Node.js closes
        /// after 5s.
        default("4s") keepalive_timeout: Located<BoundedDuration<DAY>>,
        /// A tunnel, such as a WebSocket, that carries nothing either way is closed after this.
        default("1h") tunnel_idle_timeout: Located<BoundedDuration<DAY>>,
        /// Unused connections kept per endpoint and worker.
        default(64) keepalive_connections: Located<WholeNumber<1, 65_536>>,
        /// Bounds on its connections and requests. Default: no bound.
        optional bounds: RawBounds,
        /// Connections begin with a header of the PROXY protocol, v2, and carry one request.
        /// Default: none.
        optional proxy_protocol: Located<ProxyHeaderVersion>,
        /// Whether requests over HTTP/2 keep their trailers, for which some servers close the
        /// connection.
        default(false) request_trailers: Located<bool>,
        /// Whether https endpoints are offered HTTP/2: auto, or never.
        default("auto") http2: Located<Http2Policy>,
        /// How its https endpoints are verified, and what they are shown.
        optional tls: RawUpstreamTls,
    }
}

record! {
    /// TLS to an upstream. The files are PEM, and are read again when they change.
    RawUpstreamTls at location {
        /// The certificate authorities that its certificates may be of. Default: the system's.
        optional ca: Located<PemPath>,
        /// The name that its certificates must have and that it is asked for (SNI). Default: the
        /// endpoint's host.
        optional server_name: Located<ServerName>,
        /// The certificate that the gateway shows, with those between it and its authority.
        optional cert: Located<PemPath>,
        /// The private key of cert.
        optional key: Located<PemPath>,
        /// Whether certificates are verified. Without that, anybody on the way can read and change
        /// everything.
        default(true) verify: Located<bool>,
    }
}

record! {
    /// Bounds of an upstream.
    RawBounds {
        /// Open connections, all workers together. Further requests wait for one within
        /// connect_timeout.
        optional connections: Located<WholeNumber<1, 1_000_000>>,
        /// Requests that wait for a connection. Default: no bound.
        optional pending: Located<WholeNumber<0, 1_000_000>>,
        /// Requests in flight, all workers together.
        optional requests: Located<WholeNumber<1, 1_000_000_000>>,
        /// Requests that wait for an answer, as many as the upstream answers fast. Default: no
        /// bound.
        optional adaptive: RawAdaptive,
        /// All header fields of a request, 32 bytes more for each; beyond it 431.
        optional header_size: Located<ByteSize<1_024, 16_777_216>>,
        /// The target of a request, or the name and the value of a header field; beyond it 431.
        optional field_size: Located<ByteSize<256, 16_777_216>>,
    }
}

record! {
    /// A bound that follows the latency of its upstream.
    RawAdaptive {
        /// The lowest limit, at which the latency without a queue is measured.
        default(3) min: Located<WholeNumber<1, 1_000_000>>,
        /// The highest limit.
        default(1000) max: Located<WholeNumber<1, 1_000_000>>,
        /// The part by which the latency may exceed that without a queue before the limit falls.
        default("25%") buffer: Located<Percent>,
        /// From one measurement of the latency without a queue to the next.
        default("60s") interval: Located<BoundedDuration<DAY, 1_000>>,
        /// The answers that a measurement takes.
        default(50) requests: Located<WholeNumber<1, 1_000_000>>,
    }
}

/// The version of the PROXY protocol that upstreams get.
#[derive(Clone, Copy)]
pub enum ProxyHeaderVersion {
    V2,
}

words! {
    ProxyHeaderVersion: "v2" { "v2" => V2 }
}

words! {
    Http2Policy: "auto or never" { "auto" => Auto, "never" => Never }
}

/// The name of a server in its certificate.
#[derive(Clone)]
pub struct ServerName(pub PeerName);

impl Scalar for ServerName {
    const WHAT: &'static str = "the name of a server";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let problem = || {
            ValueProblem::new(format!("{} is not the name of a server", quote(text)))
                .hint("write a host such as orders.internal, or an IP address, without a port")
        };
        PeerName::parse(text).map(Self).ok_or_else(problem)
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}
