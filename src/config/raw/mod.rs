//! The mirror of the file: every key, its type and its default, and nothing that needs two places of the file to judge.
//!
//! Unknown keys are refused here; names that must exist elsewhere are still plain names.

mod address;
mod cost;
mod http;
mod limit;
mod number;
mod on_limit;
mod path;
mod route;
mod word;

pub(super) use address::{Authority, Cidr, FilePath, RedisUrl};
pub(super) use cost::Cost;
pub use http::registered_method;
pub(super) use limit::{Exempt, Key, Limit, LimitUse, Part, Plan, PlanHash, Plans};
pub(super) use number::{Size, Span, Whole};
pub(super) use on_limit::{Degrade, OnLimit, QueueBounds, Refusal};
pub(super) use path::Prefix;
pub(super) use route::{Match, Respond, Route};
pub(super) use word::{Kind, Name, Text};

use std::net::SocketAddr;

use super::AccessLog;
use super::decode::{At, Decode, Definitions, Many, Scalar, Table, mismatch};
use super::mistake::{Report, Trouble, quote};
use super::node::{Node, Value};
use super::record::record;
use crate::upstream::Balance;

record! {
    /// The configuration of a Tollgate gateway.
    File {
        /// Threads that serve requests, each with its own connections. Default: one per core.
        optional workers: At<Whole<1, 1024>>,
        /// How long requests in flight may take to finish after SIGTERM.
        default("30s") drain_timeout: At<Span<DAY>>,
        /// One line per request on standard output, or none.
        default("off") access_log: At<AccessLog>,
        /// Addresses or networks of the proxies in front, whose X-Forwarded-For is believed.
        optional trusted_proxies: Vec<At<Cidr>>,
        /// Requests in flight per worker; further ones are answered with 503. Default: no bound.
        optional max_requests: At<Whole<1, 1_000_000_000>>,
        /// Buckets kept in this process at most.
        default(1_000_000) max_local_buckets: At<Whole<1, 1_000_000_000>>,
        /// Which header fields answers carry.
        optional headers: Headers,
        /// Where to listen for requests.
        required listeners: Many<Listener>,
        /// The admin server, or `off`.
        optional admin: Admin,
        /// The memory that all nodes share. Leave it out for one node: buckets then live in this process.
        optional store: Store,
        /// Rate limits, by name.
        optional limits: Table<Name, Limit>,
        /// Groups of servers to forward to, by name.
        optional upstreams: Table<Name, Upstream>,
        /// What to do with which request.
        required routes: Many<Route>,
    }
}

record! {
    /// Which header fields answers carry.
    Headers {
        /// Also send x-ratelimit-limit, x-ratelimit-remaining and x-ratelimit-reset.
        default(false) legacy_ratelimit: At<bool>,
    }
}

record! {
    /// One address to listen on, and how patient to be with its clients.
    Listener at place {
        /// Address and port, such as 0.0.0.0:8080 or [::]:8080. Port 0 takes any free one.
        required address: At<SocketAddr>,
        /// Limits that count every request through this listener, before the route's own.
        optional limits: Vec<LimitUse>,
        /// From the first byte of a header section to its last; then 408.
        default("10s") header_timeout: At<Span<DAY>>,
        /// A connection without a request is closed after this.
        default("75s") keepalive_timeout: At<Span<DAY>>,
        /// Between two reads of a request body; then 408.
        default("30s") body_timeout: At<Span<DAY>>,
        /// A request line and its header section; beyond it 414 or 431.
        default("64KiB") max_header_size: At<Size<8_192, 16_777_216>>,
        /// Header fields of a request; beyond it 431.
        default(100) max_headers: At<Whole<1, 10_000>>,
        /// Open connections, all workers together; further ones wait.
        default(65_536) max_connections: At<Whole<1, 10_000_000>>,
    }
}

record! {
    /// The admin server: health, metrics, inspection.
    AdminServer {
        /// Address and port. Keep it off public networks: it has no login.
        default("127.0.0.1:9901") address: At<SocketAddr>,
    }
}

record! {
    /// The memory that all nodes share.
    Store {
        /// The address of Redis 6.2 or newer, or Valkey: redis://[user:password@]host[:port][/database].
        required redis: At<RedisUrl>,
        /// The longest a request may wait for the store; then the limit's on_outage decides. 1ms to 10s.
        default("20ms") timeout: At<Span<10_000>>,
        /// What every key in Redis starts with. Gateways with the same prefix share their limits.
        default("tollgate:") key_prefix: At<KeyPrefix>,
        /// Nodes to assume until Redis has told how many there are.
        default(1) expected_nodes: At<Whole<1, 100_000>>,
        /// Certificates, for an address that says TLS.
        optional tls: Tls,
    }
}

record! {
    /// Certificates, as PEM files. They are read when the gateway starts.
    Tls at place {
        /// The certificate authorities that Redis's certificate may be of. Default: the system's.
        optional ca: At<FilePath>,
        /// The certificate that the gateway shows, with those between it and its authority.
        optional cert: At<FilePath>,
        /// The private key of cert.
        optional key: At<FilePath>,
    }
}

record! {
    /// Servers that answer alike.
    Upstream {
        /// Where they are: http://host:port.
        required endpoints: Many<At<Authority>>,
        /// How the next one is chosen.
        default("round_robin") balance: At<Balance>,
        /// To establish a TCP connection.
        default("2s") connect_timeout: At<Span<DAY>>,
        /// From the request being sent to the response's header section.
        default("30s") response_timeout: At<Span<DAY>>,
        /// Between two reads of a response body or two writes of a request body.
        default("60s") idle_timeout: At<Span<DAY>>,
        /// How long an unused connection is kept. Keep it below the server's own: Node.js closes after 5s.
        default("4s") keepalive_timeout: At<Span<DAY>>,
        /// Unused connections kept per endpoint and worker.
        default(64) keepalive_connections: At<Whole<1, 65_536>>,
    }
}

/// Milliseconds of the longest timeout.
pub(super) const DAY: u64 = 86_400_000;

/// `off`, or where the admin server listens.
pub(super) enum Admin {
    Off,
    On(AdminServer),
}

impl Decode for Admin {
    fn decode(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar { text, .. } if text == "off" => Some(Self::Off),
            Value::Map(_) => AdminServer::decode(node, report).map(Self::On),
            _ => {
                let hint = "write {address: \"127.0.0.1:9901\"}, or off";
                mismatch(node, "a mapping or the word off", Some(hint), report);
                None
            }
        }
    }

    fn schema(definitions: &mut Definitions) -> serde_json::Value {
        // An editor that reads YAML 1.1 takes a bare `off` for `false`.
        serde_json::json!({ "anyOf": [{ "enum": ["off", false] }, AdminServer::schema(definitions)] })
    }
}

/// What every key in the store starts with.
#[derive(Clone)]
pub(super) struct KeyPrefix(pub String);

impl Scalar for KeyPrefix {
    const WHAT: &'static str = "a key prefix";

    /// Braces would make a hash tag and put all keys on one node of a Redis Cluster.
    fn read(text: &str) -> Result<Self, Trouble> {
        let fine = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if text.len() <= 64 && text.bytes().all(fine) {
            return Ok(Self(text.to_owned()));
        }
        Err(Trouble::new(format!("{} is not a key prefix", quote(text)))
            .hint("at most 64 visible ASCII characters, without spaces and braces"))
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": "string" })
    }
}
