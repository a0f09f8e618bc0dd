//! `store`: where Redis is, and the certificates for its connections.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tollgate_limiter::store::redis::address::Address;

use super::scalar::number::{BoundedDuration, WholeNumber};
use crate::config::report::{ValueProblem, quote};
use crate::config::yaml::decode::{Located, Scalar};
use crate::config::yaml::record::record;
use crate::config::yaml::schema::or_variable;

record! {
    /// The memory that all nodes share.
    RawStore {
        /// The address of Redis 6.2 or newer, or Valkey:
        /// redis://[user:password@]host[:port][/database].
        required redis: Located<RedisUrl>,
        /// The longest a request may wait for the store; then the limit's on_outage decides. 1ms to
        /// 10s.
        default("20ms") timeout: Located<BoundedDuration<10_000>>,
        /// The beginning of every key in Redis. Gateways with the same prefix share their limits.
        default("tollgate:") key_prefix: Located<KeyPrefix>,
        /// The number of nodes to assume until Redis has the real one.
        default(1) expected_nodes: Located<WholeNumber<1, 100_000>>,
        /// The longest that nodes which reach Redis hold back the share of one that fell silent. 3s
        /// to 1h.
        default("15s") autonomy: Located<BoundedDuration<3_600_000, 3_000>>,
        /// Certificates for a TLS address.
        optional tls: RawTls,
    }
}

record! {
    /// Certificates, as PEM files. They are read when the gateway starts.
    RawTls at location {
        /// The certificate authorities that Redis's certificate may be of. Default: the system's.
        optional ca: Located<PemPath>,
        /// The certificate that the gateway shows, with those between it and its authority.
        optional cert: Located<PemPath>,
        /// The private key of cert.
        optional key: Located<PemPath>,
    }
}

/// The address of the store, credentials included. Not printable, and never quoted in a mistake.
#[derive(Clone)]
pub struct RedisUrl(pub Arc<str>);

/// The path of a PEM file.
#[derive(Clone)]
pub struct PemPath(pub PathBuf);

/// The beginning of every key in the store.
#[derive(Clone)]
pub struct KeyPrefix(pub String);

impl Scalar for RedisUrl {
    const WHAT: &'static str = "the address of a store";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let problem = || {
            ValueProblem::new("this is not the address of a Redis").hint(
                "write redis://[user:password@]host[:port][/database] or rediss://…, with special characters of the \
                 password percent-encoded; docs/configuration/store.md has the forms for sockets, Sentinel and Cluster",
            )
        };
        Address::parse(text)
            .map(|_| Self(text.into()))
            .ok_or_else(problem)
    }

    fn schema() -> Json {
        let forms = r"(rediss?(-sentinel|-cluster)?|redis\+unix)://.+";
        json!({ "type": "string", "pattern": or_variable(forms) })
    }
}

impl Scalar for PemPath {
    const WHAT: &'static str = "the path of a file";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let problem =
            || ValueProblem::new("the path is empty").hint("write the path of a PEM file");
        (!text.is_empty())
            .then(|| Self(text.into()))
            .ok_or_else(problem)
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Scalar for KeyPrefix {
    const WHAT: &'static str = "a key prefix";

    /// Braces would make a hash tag and put all keys on one node of a Redis Cluster.
    fn read(text: &str) -> Result<Self, ValueProblem> {
        let fine = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if text.len() <= 64 && text.bytes().all(fine) {
            return Ok(Self(text.to_owned()));
        }
        Err(
            ValueProblem::new(format!("{} is not a key prefix", quote(text)))
                .hint("at most 64 visible ASCII characters, without spaces and braces"),
        )
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}
