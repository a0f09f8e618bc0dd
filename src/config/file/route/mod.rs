//! `routes`: which requests a route takes, and its bounds. `action` has the keys of its action,
//! `cors` the pages that may read its answers, `fields` the header fields that it changes,
//! `compress` the answers that it compresses, `distribution` its upstreams, `error_pages` the pages
//! in place of errors, `maintenance` when it is not served, `path` its paths, `retry` when requests
//! are sent again.

pub mod action;
pub mod compress;
pub mod cors;
pub mod distribution;
pub mod error_pages;
pub mod fields;
pub mod maintenance;
pub mod path;
pub mod retry;

use http::{HeaderName, Method};
use serde_json::{Value as Json, json};

use self::action::RawActionKeys;
use self::compress::RawCompress;
use self::cors::RawCors;
use self::error_pages::RawErrorPage;
use self::fields::RawFieldChanges;
use self::maintenance::RawMaintenance;
use self::path::RawPathMatch;
use self::retry::RawRetry;
use crate::config::file::header::RawHeaderCondition;
use crate::config::file::limit::RawLimitUse;
use crate::config::file::scalar::address::Cidr;
use crate::config::file::scalar::number::{BoundedDuration, ByteSize, DAY};
use crate::config::file::scalar::text::DefinedName;
use crate::config::report::{ValueProblem, quote};
use crate::config::yaml::collection::{Mapping, NonEmptyList, OneOrMore};
use crate::config::yaml::decode::{Located, Scalar};
use crate::config::yaml::record::record;
use crate::route::HostMatch;

record! {
    /// Which requests, and what becomes of them.
    RawRoute at location {
        /// How the route is called in metrics, logs and keys. Unique.
        required name: Located<DefinedName>,
        /// Which requests. Default: all.
        optional r#match: RawMatch,
        /// The keys of its action.
        group action: RawActionKeys,
        /// Only clients in these networks are served; others get 403. Default: all.
        optional allow: NonEmptyList<Located<Cidr>>,
        /// Clients in these networks get 403, also those of allow.
        optional deny: NonEmptyList<Located<Cidr>>,
        /// Maintenance, during which all clients but some get 503: true, false, or how. Default:
        /// false.
        optional maintenance: RawMaintenance,
        /// The authenticators that are asked who the client is, in this order; a client that none
        /// knows gets 401. An empty list: none. Default: those of the listener.
        optional authenticate: Vec<Located<DefinedName>>,
        /// Which pages of other origins may read the answers. Default: those that the upstream
        /// lets.
        optional cors: RawCors,
        /// Changes of the header fields of requests, after the limits have counted them.
        optional request_headers: RawFieldChanges,
        /// Changes of the header fields of all answers, the gateway's own included.
        optional response_headers: RawFieldChanges,
        /// Compresses answers for clients that take it: true, or how. Default: answers are sent as
        /// they come.
        optional compress: RawCompress,
        /// Pages in place of errors. Default: those of the gateway as a whole.
        optional error_pages: NonEmptyList<RawErrorPage>,
        /// Limits that count the route's requests: names, or {limit, cost}.
        optional limits: Vec<RawLimitUse>,
        /// Whether its requests have lines in the access log, if there is one.
        default(true) access_log: Located<bool>,
        /// A request body longer than this is refused with 413. Default: no bound.
        optional max_body: Located<ByteSize<1, { u64::MAX }>>,
        /// From when the limits let the request pass to the response's header section; then 504.
        /// Default: the upstream's timeouts only.
        optional timeout: Located<BoundedDuration<DAY>>,
        /// Time limits of the route, each in place of its upstream's.
        optional timeouts: RawRouteTimeouts,
        /// When requests are sent to the upstream again. Default: only where that can do no harm.
        optional retry: RawRetry,
    }
}

record! {
    /// Time limits of a route.
    RawRouteTimeouts {
        /// To open a connection, and to wait for one at the bounds. Default: the upstream's
        /// connect_timeout.
        optional connect: Located<BoundedDuration<DAY>>,
        /// To the response's header section, each time that the request is sent. Default: the
        /// upstream's response_timeout.
        optional response: Located<BoundedDuration<DAY>>,
        /// Between two pieces of a body. Default: the upstream's idle_timeout.
        optional idle: Located<BoundedDuration<DAY>>,
        /// A tunnel that carries nothing either way is closed after this. Default: the upstream's
        /// tunnel_idle_timeout.
        optional tunnel_idle: Located<BoundedDuration<DAY>>,
        /// From the request's header section until the answer is read from the upstream; then 504,
        /// or the answer is cut. Clients that read slowly are bounded by min_body_rate and
        /// body_timeout. Default: none.
        optional request: Located<BoundedDuration<DAY>>,
    }
}

record! {
    /// Which requests a route takes: all conditions hold.
    RawMatch {
        /// A host such as api.example.com, or *.example.com for all below it, or a list of hosts.
        /// Default: any.
        optional host: OneOrMore<Located<HostMatch>>,
        /// /exact, /users/{id} or /prefix/*, or {regex: "^/v[0-9]+/"}, or a list of these.
        default("/*") path: OneOrMore<RawPathMatch>,
        /// Methods. Default: any.
        optional methods: NonEmptyList<Located<Method>>,
        /// Header fields that must be there: a value, or {present: true} for any.
        optional headers: Mapping<HeaderName, RawHeaderCondition>,
    }
}

impl Scalar for HostMatch {
    const WHAT: &'static str = "a host";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let problem = |hint: &str| {
            ValueProblem::new(format!("{} is not a host to match", quote(text))).hint(hint)
        };
        if text == "*" {
            return Err(problem("leave \"host\" out to match any host"));
        }
        let lower = text.to_ascii_lowercase();
        let suffix = lower.strip_prefix("*.");
        let name = suffix.unwrap_or(&lower);
        if name.contains('*') {
            return Err(problem(
                "the only wildcard is a leading \"*.\": \"*.example.com\"",
            ));
        }
        if suffix.is_none() && is_ipv6_literal(name) {
            return Ok(Self::Exact(name.into()));
        }
        if name.contains(':') {
            return Err(problem("write the host without scheme and port"));
        }
        if !is_host_name(name) {
            return Err(problem("write api.example.com or \"*.example.com\""));
        }
        Ok(match suffix {
            Some(suffix) => Self::Suffix(format!(".{suffix}").into()),
            None => Self::Exact(lower.into()),
        })
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

fn is_ipv6_literal(host: &str) -> bool {
    let inner = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
}

/// RFC 1123 §2.1, and underscores, which container names have.
fn is_host_name(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(fine);
    name.len() <= 253 && name.split('.').all(label)
}
