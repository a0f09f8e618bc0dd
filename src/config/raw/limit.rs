//! `limits`, and how a listener or a route refers to one.

use std::sync::Arc;

use http::HeaderName;
use serde_json::{Value as Json, json};
use tollgate_limiter::algorithm::concurrency::{MAX_PERMITS, Scope};
use tollgate_limiter::algorithm::token_bucket::MAX_BURST;
use tollgate_limiter::limit::algorithm_kind::WindowRate;
use tollgate_limiter::limit::key::{KeyPart, OnMissing};
use tollgate_limiter::limit::rollout::Rollout;
use tollgate_limiter::limit::spec::{Consistency, OnOutage};

use super::address::Cidr;
use super::cost::Cost;
use super::number::{Span, Whole};
use super::on_limit::OnLimit;
use super::route::HeaderCondition;
use super::word::{Kind, Name, Text, unknown};
use crate::config::decode::{At, Decode, Definitions, Many, Slot, Table, mismatch};
use crate::config::mistake::{Report, Trouble};
use crate::config::node::{Node, Value};
use crate::config::record::record;

record! {
    /// A rate limit: how much, counted by what.
    Limit at place {
        /// What requests are counted by: one part or a list of parts.
        required key: Key,
        /// How tokens come back: one by one, at the end of a window of the clock, when they are a window old, or when their
        /// request has ended.
        default("token_bucket") algorithm: At<Kind>,
        /// Tokens per period, such as 10/s, 1000/h or 3/90s; of a fixed window also 1000/month. All but concurrency need it.
        optional rate: At<WindowRate>,
        /// Of concurrency: requests in flight at most, to the end of their responses' bodies.
        optional max_in_flight: At<Whole<1, MAX_PERMITS>>,
        /// Of concurrency: whether the requests of all nodes count together, or each node's alone. Default: fleet.
        optional scope: At<Scope>,
        /// Where a fixed window's minutes, hours, days and months are, such as Europe/Berlin. Default: UTC.
        optional time_zone: At<Text>,
        /// Tokens in a full bucket. Default: the tokens of one period of the rate.
        optional burst: At<Whole<1, MAX_BURST>>,
        /// Tokens one request takes.
        default(1) cost: Cost,
        /// While the store is away: this node's share of the limit, let all pass, or deny all.
        default("local") on_outage: At<OnOutage>,
        /// Ask the store for each request, or take tokens ahead and spend them in process.
        default("exact") consistency: At<Consistency>,
        /// When a part of the key is not in the request: share one bucket, skip the limit, or refuse with 400.
        default("share") on_missing: At<OnMissing>,
        /// What happens to a request over the limit: reject, shadow, or {reject: …}, {queue: …}, {degrade: …}.
        default("reject") on_limit: OnLimit,
        /// The share of keys that the limit acts on; the others are only counted.
        default("100%") enforce: At<Rollout>,
        /// Other rates for some clients.
        optional plans: Plans,
        /// Requests that the limit does not count.
        optional exempt: Exempt,
    }
}

record! {
    /// Other rates for some clients. One of table and redis.
    Plans at place {
        /// The part of the request that tells a client's plan. Default: the first part of the limit's key.
        optional by: Part,
        /// The plans, by what that part says.
        optional table: Table<Text, Plan>,
        /// A hash in Redis with the plans by what that part says, changed without a reload.
        optional redis: PlanHash,
    }
}

record! {
    /// Plans in Redis: texts such as "100/s burst=200 cost=2" in a hash.
    PlanHash at place {
        /// The name of the hash, behind the store's key_prefix.
        required hash: At<Name>,
        /// How long a node uses a plan before it reads it again. 100ms to 1h.
        default("5s") cache: At<Span<3_600_000, 100>>,
    }
}

record! {
    /// A rate instead of the limit's own.
    Plan at place {
        /// Tokens per period. All but concurrency need it.
        optional rate: At<WindowRate>,
        /// Of concurrency: requests in flight at most.
        optional max_in_flight: At<Whole<1, MAX_PERMITS>>,
        /// Tokens in a full bucket. Default: the tokens of one period of the rate.
        optional burst: At<Whole<1, MAX_BURST>>,
        /// Tokens one request takes. Default: the limit's cost.
        optional cost: Cost,
    }
}

record! {
    /// Requests that a limit does not count: any of these is enough.
    Exempt at place {
        /// Addresses or networks of clients.
        optional client: Vec<At<Cidr>>,
        /// Header fields: a value, or {present: true} for any. A client can send them too.
        optional headers: Table<HeaderName, HeaderCondition>,
    }
}

record! {
    /// A limit with a cost of its own.
    CostedUse {
        /// The limit's name.
        required limit: At<Name>,
        /// Tokens one request takes here. Default: the limit's cost.
        optional cost: Cost,
    }
}

record! {
    /// The client's address, by its leading bits.
    ClientIp {
        /// Leading bits of an IPv4 address that count.
        default(32) ipv4_prefix: At<Whole<1, 32>>,
        /// Leading bits of an IPv6 address that count.
        default(64) ipv6_prefix: At<Whole<1, 128>>,
    }
}

record! {
    /// A part of a key that needs to be told more. One of these keys.
    PartOptions at place {
        /// The client's address, by other prefixes than /32 and /64.
        optional client_ip: ClientIp,
        /// A header field by name.
        optional header: At<HeaderName>,
        /// A cookie by name.
        optional cookie: At<Token>,
        /// A query parameter by name.
        optional query: At<Text>,
        /// A {name} of the route's path.
        optional path: At<Text>,
        /// The same for every request.
        optional constant: At<Text>,
    }
}

/// The parts of a key.
pub(in crate::config) struct Key(pub Vec<Part>);

/// One part of a key. `None`: its mistake is reported already.
pub(in crate::config) struct Part(pub Option<KeyPart>);

/// A limit as a listener or a route names it.
pub(in crate::config) struct LimitUse {
    pub limit: Slot<At<Name>>,
    pub cost: Slot<Cost>,
}

/// The name of a cookie (RFC 6265 §4.1.1: a token).
#[derive(Clone)]
pub(in crate::config) struct Token(pub Arc<str>);

const SIMPLE: [&str; 4] = ["client_ip", "method", "host", "route"];
const OPTIONS: [&str; 6] = ["client_ip", "header", "cookie", "query", "path", "constant"];

impl Decode for Key {
    fn decode(node: &Node, report: &mut Report) -> Option<Self> {
        let parts = match &node.value {
            Value::List(_) => Many::decode(node, report)?.0,
            _ => vec![Part::decode(node, report)?],
        };
        Some(Self(parts))
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({ "anyOf": [Part::schema(definitions), Many::<Part>::schema(definitions)] })
    }
}

impl Decode for Part {
    fn decode(node: &Node, report: &mut Report) -> Option<Self> {
        let part = match &node.value {
            Value::Scalar { text, .. } if !node.value.is_null() => {
                simple(text).map_err(|trouble| report.mistake(&node.place, trouble)).ok()
            }
            Value::Map(_) => PartOptions::decode(node, report).and_then(|options| options.part(report)),
            _ => {
                let hint =
                    "write client_ip, method, host, route, or {header: x-tenant}, {cookie: sid}, {query: api_key}";
                mismatch(node, "a part of a key", Some(hint), report);
                None
            }
        };
        Some(Self(part))
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({ "anyOf": [{ "enum": SIMPLE }, PartOptions::schema(definitions)] })
    }
}

fn simple(text: &str) -> Result<KeyPart, Trouble> {
    match text {
        "client_ip" => Ok(KeyPart::ClientIp { ipv4_prefix: 32, ipv6_prefix: 64 }),
        "method" => Ok(KeyPart::Method),
        "host" => Ok(KeyPart::Host),
        "route" => Ok(KeyPart::Route),
        option if OPTIONS.contains(&option) => {
            Err(Trouble::new(format!("\"{option}\" needs to be told which")).hint(format!("write {{{option}: …}}")))
        }
        _ => Err(unknown(text, &SIMPLE)),
    }
}

impl PartOptions {
    fn part(&self, report: &mut Report) -> Option<KeyPart> {
        let present = [
            self.client_ip.is_present(),
            self.header.is_present(),
            self.cookie.is_present(),
            self.query.is_present(),
            self.path.is_present(),
            self.constant.is_present(),
        ];
        if present.iter().filter(|present| **present).count() != 1 {
            let trouble = Trouble::new(format!("a part of a key needs exactly one of {}", OPTIONS.join(", ")));
            report.mistake(&self.place, trouble.hint("several parts are a list: [{header: x-tenant}, {path: id}]"));
            return None;
        }
        let text = |slot: &Slot<At<Text>>| slot.value().map(|text| text.0);
        let header = || self.header.value().map(KeyPart::Header);
        let cookie = || self.cookie.value().map(|name| KeyPart::Cookie(name.0));
        let client_ip = self.client_ip.good().and_then(ClientIp::part);
        client_ip
            .or_else(header)
            .or_else(cookie)
            .or_else(|| text(&self.query).map(KeyPart::Query))
            .or_else(|| text(&self.path).map(KeyPart::PathParam))
            .or_else(|| text(&self.constant).map(KeyPart::Constant))
    }
}

impl ClientIp {
    fn part(&self) -> Option<KeyPart> {
        let ipv4_prefix = u8::try_from(self.ipv4_prefix.value()?.0).ok()?;
        let ipv6_prefix = u8::try_from(self.ipv6_prefix.value()?.0).ok()?;
        Some(KeyPart::ClientIp { ipv4_prefix, ipv6_prefix })
    }
}

impl Decode for LimitUse {
    fn decode(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Map(_) => CostedUse::decode(node, report).map(|CostedUse { limit, cost, .. }| Self { limit, cost }),
            Value::Scalar { .. } if !node.value.is_null() => {
                At::decode(node, report).map(|name| Self { limit: Slot::Good(name), cost: Slot::Absent })
            }
            _ => {
                mismatch(node, "the name of a limit", Some("write its name, or {limit: name, cost: 5}"), report);
                None
            }
        }
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({ "anyOf": [At::<Name>::schema(definitions), CostedUse::schema(definitions)] })
    }
}
