//! `listeners` and `admin`: the addresses that the gateway listens on.

use std::net::SocketAddr;

use serde_json::{Value as Json, json};

use super::identity::openid::RawOpenId;
use super::limit::RawLimitUse;
use super::listener_tls::{HttpsPort, RawListenerTls};
use super::scalar::address::{Cidr, SocketMode};
use super::scalar::http::PublicUrl;
use super::scalar::number::{BoundedDuration, ByteRate, ByteSize, DAY, WholeNumber};
use super::scalar::text::DefinedName;
use crate::config::report::Report;
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::{Decode, Located, SchemaDefinitions, mismatch};
use crate::config::yaml::node::{YamlNode, YamlValue};
use crate::config::yaml::record::record;
use crate::transport::listen_address::ListenAddress;

record! {
    /// An address to listen on, with bounds and timeouts for its clients.
    RawListener at location {
        /// Address and port, such as 0.0.0.0:8080 or [::]:8080, or unix:/path for a Unix socket.
        /// Port 0 takes any free one.
        required address: Located<ListenAddress>,
        /// Mode of a Unix socket, as chmod(1) takes it. Default: 0660, its owner and its group may
        /// connect.
        optional socket_mode: Located<SocketMode>,
        /// The name of its socket, where systemd opens several (FileDescriptorName=).
        optional socket_name: Located<DefinedName>,
        /// Speaks TLS: certificates and what clients must show. Without it, the listener speaks
        /// HTTP in the clear.
        optional tls: RawListenerTls,
        /// Connections begin with a header of the PROXY protocol, version 1 or 2. Only
        /// trusted_proxies may connect.
        default(false) proxy_protocol: Located<bool>,
        /// Sends every client to HTTPS: true, or the port of HTTPS if it is not 443. Not with tls.
        optional redirect_to_https: Located<HttpsPort>,
        /// Only clients in these networks are served; others get 403. Default: all.
        optional allow: NonEmptyList<Located<Cidr>>,
        /// Clients in these networks get 403, also those of allow.
        optional deny: NonEmptyList<Located<Cidr>>,
        /// The authenticators that are asked who the client is, on routes that do not say which,
        /// and where no route takes the request.
        optional authenticate: NonEmptyList<Located<DefinedName>>,
        /// Limits that count every request through this listener, before the route's own.
        optional limits: Vec<RawLimitUse>,
        /// From the first byte of a header section to its last; then 408.
        default("10s") header_timeout: Located<BoundedDuration<DAY>>,
        /// A connection without a request is closed after this.
        default("75s") keepalive_timeout: Located<BoundedDuration<DAY>>,
        /// Between two reads of a request body; then 408.
        default("30s") body_timeout: Located<BoundedDuration<DAY>>,
        /// Least rate of a body, such as 1KiB/s. Slower by body_timeout: 408 for a request; a
        /// response breaks off. Default: none.
        optional min_body_rate: Located<ByteRate<1_073_741_824>>,
        /// A request line and its header section; beyond it 414 or 431.
        default("64KiB") max_header_size: Located<ByteSize<8_192, 16_777_216>>,
        /// Header fields of a request; beyond it 431.
        default(100) max_headers: Located<WholeNumber<1, 10_000>>,
        /// Open connections, all workers together. Beyond it, those idle for longest are closed,
        /// and further ones wait.
        default(65_536) max_connections: Located<WholeNumber<1, 10_000_000>>,
        /// Open connections of one client: an IPv4 address, or an IPv6 /64. Further ones are reset.
        /// Default: no bound.
        optional max_connections_per_client: Located<WholeNumber<1, 10_000_000>>,
    }
}

record! {
    /// The admin server: health, metrics, inspection.
    RawAdminServer {
        /// Address and port. Without accounts, which need policies, it is a loopback address: there
        /// is no login.
        default("127.0.0.1:9901") address: Located<SocketAddr>,
        /// Another address and port, for probes and metrics alone: /livez, /readyz and /metrics,
        /// without login.
        optional probe_address: Located<SocketAddr>,
        /// Speaks TLS at address: certificates and what clients must show. Without it, the admin
        /// server speaks HTTP in the clear.
        optional tls: RawListenerTls,
        /// Where browsers find the console, such as https://gate.example.com, if not at address:
        /// behind a proxy.
        optional public_url: Located<PublicUrl>,
        /// A provider of OpenID Connect, at which people may sign in to the console.
        optional openid_connect: RawOpenId,
    }
}

/// `off`, or where the admin server listens.
pub enum RawAdmin {
    Off,
    On(Box<RawAdminServer>),
}

impl Decode for RawAdmin {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Scalar { text, .. } if text == "off" => Some(Self::Off),
            YamlValue::Map(_) => {
                RawAdminServer::decode(node, report).map(|server| Self::On(Box::new(server)))
            }
            _ => {
                let hint = "write {address: \"127.0.0.1:9901\"}, or off";
                mismatch(node, "a mapping or the word off", Some(hint), report);
                None
            }
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        // An editor that reads YAML 1.1 takes a bare `off` for `false`.
        json!({ "anyOf": [{ "enum": ["off", false] }, RawAdminServer::schema(definitions)] })
    }
}
