//! Addresses: of sockets, networks, endpoints and the store.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use serde_json::{Value as Json, json};
use tollgate_limiter::store::redis::address::Address;

use super::number::or_variable;
use crate::config::decode::Scalar;
use crate::config::mistake::{Trouble, quote};

/// A network, or one address as the smallest network.
#[derive(Clone, Copy)]
pub(in crate::config) struct Cidr(pub IpNet);

/// `http://host:port` of an endpoint.
#[derive(Clone)]
pub(in crate::config) struct Authority(pub http::uri::Authority);

/// The address of the store, credentials included. Not printable, and never quoted in a mistake.
#[derive(Clone)]
pub(in crate::config) struct RedisUrl(pub Arc<str>);

/// A file to read.
#[derive(Clone)]
pub(in crate::config) struct FilePath(pub PathBuf);

impl Scalar for SocketAddr {
    const WHAT: &'static str = "an address and port";

    fn read(text: &str) -> Result<Self, Trouble> {
        if let Ok(address) = text.parse() {
            return Ok(address);
        }
        let trouble = Trouble::new(format!("{} is not an address and port", quote(text)));
        Err(match text.rsplit_once(':') {
            Some(("" | "*", port)) if port.parse::<u16>().is_ok() => trouble.hint(format!("write 0.0.0.0:{port}")),
            Some(("localhost", port)) if port.parse::<u16>().is_ok() => trouble.hint(format!("write 127.0.0.1:{port}")),
            _ if text.parse::<IpAddr>().is_ok() => trouble.hint("add a port, such as 10.0.0.1:8080 or [::1]:8080"),
            _ => trouble.hint("write 0.0.0.0:8080, 127.0.0.1:8080 or [::]:8080"),
        })
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Scalar for Cidr {
    const WHAT: &'static str = "a network";

    fn read(text: &str) -> Result<Self, Trouble> {
        let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map(|network| Self(network.trunc())).map_err(|_| {
            Trouble::new(format!("{} is not a network", quote(text))).hint("write 10.0.0.0/8, fd00::/8 or one address")
        })
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Scalar for Authority {
    const WHAT: &'static str = "the address of a server";

    fn read(text: &str) -> Result<Self, Trouble> {
        const FORM: &str = "write http://host:port";
        if text.starts_with("https://") {
            return Err(Trouble::new("https to an upstream is not supported yet").hint(FORM));
        }
        let trouble = |what: &str| Trouble::new(format!("{} {what}", quote(text))).hint(FORM);
        let rest = text.strip_prefix("http://").ok_or_else(|| trouble("does not start with http://"))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err(trouble("has more than a host and a port")
                .hint("a route's strip_prefix, replace_prefix or replace_path changes paths"));
        }
        if rest.contains('@') {
            return Err(trouble("carries credentials"));
        }
        authority(rest).map(Self).ok_or_else(|| trouble("is not the address of a server"))
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("http://[^/?#@]+/?") })
    }
}

impl Scalar for RedisUrl {
    const WHAT: &'static str = "the address of a store";

    fn read(text: &str) -> Result<Self, Trouble> {
        let trouble = || {
            Trouble::new("this is not the address of a Redis").hint(
                "write redis://[user:password@]host[:port][/database] or rediss://…, with special characters of the \
                 password percent-encoded; docs/configuration.md has the forms for sockets, Sentinel and Cluster",
            )
        };
        Address::parse(text).map(|_| Self(text.into())).ok_or_else(trouble)
    }

    fn schema() -> Json {
        let forms = r"(rediss?(-sentinel|-cluster)?|redis\+unix)://.+";
        json!({ "type": "string", "pattern": or_variable(forms) })
    }
}

impl Scalar for FilePath {
    const WHAT: &'static str = "the path of a file";

    fn read(text: &str) -> Result<Self, Trouble> {
        let trouble = || Trouble::new("the path is empty").hint("write the path of a PEM file");
        (!text.is_empty()).then(|| Self(text.into())).ok_or_else(trouble)
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// `host` or `host:port`, with a port that is one.
pub(super) fn authority(text: &str) -> Option<http::uri::Authority> {
    let authority = text.parse::<http::uri::Authority>().ok()?;
    let port = text.strip_prefix(authority.host())?;
    let port_fits = port.is_empty() || (authority.port_u16().is_some_and(|port| port > 0));
    (!authority.host().is_empty() && !text.contains('@') && port_fits).then_some(authority)
}
