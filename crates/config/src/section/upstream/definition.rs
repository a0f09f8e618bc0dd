//! `upstreams`: groups of servers, how one of them is chosen and how long each is waited for.

use std::num::NonZeroUsize;

use crate::report::{Report, ValueProblem};
use crate::scalar::number::{BoundedDuration, ByteSize, DAY, WholeNumber};
use crate::scalar::text::DefinedName;
use crate::section::upstream::balance::{BalancedUpstream, RawBalance, balance};
use crate::section::upstream::bounds::{RawBounds, bounds};
use crate::section::upstream::discovery::{self, RawEndpointSources};
use crate::section::upstream::endpoint::{check_backups, endpoint};
use crate::section::upstream::health::{self, Percent, RawEject, RawHealth};
use crate::section::upstream::tls::{self, RawUpstreamTls};
use crate::yaml::collection::Mapping;
use crate::yaml::decode::{Located, Setting};
use crate::yaml::record::record;
use crate::yaml::words::words;
use tollgate_proxy::upstream::url::EndpointScheme;
use tollgate_proxy::upstream::{Http2Policy, UpstreamSpec};
use tollgate_wire::http::h1::SectionBounds;

record! {
    /// Servers that answer alike.
    RawUpstream at location {
        /// Where its endpoints are.
        group sources: RawEndpointSources,
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
        /// A status line and its header section, or a trailer section; beyond it 502.
        default("64KiB") max_header_size: Located<ByteSize<8_192, 16_777_216>>,
        /// Fields of a header or trailer section of an answer; beyond it 502.
        default(1000) max_headers: Located<WholeNumber<1, 10_000>>,
        /// Whether https endpoints are offered HTTP/2: auto, or never.
        default("auto") http2: Located<Http2Policy>,
        /// How its https endpoints are verified, and what they are shown.
        optional tls: RawUpstreamTls,
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

/// An upstream. `None`: a mistake was reported.
pub fn build(name: &DefinedName, raw: &RawUpstream, report: &mut Report) -> Option<UpstreamSpec> {
    let bounds = raw.bounds.build(|raw| bounds(raw, report));
    check_proxy_protocol(raw, report);
    let sources = &raw.sources;
    check_backups(&sources.endpoints, report)?;
    let source = sources.check(&raw.location, report);
    let listed = sources
        .endpoints
        .build(|list| Some(list.0.iter().map(endpoint).collect::<Vec<_>>()));
    let discovery = sources.discover.build(|raw| discovery::build(raw, report));
    let tls = tls::build(sources, &raw.tls, report);
    let health = raw
        .health
        .build(|health| health::probes(health, all_speak_http2(raw), report));
    Some(UpstreamSpec {
        name: name.0.clone(),
        endpoints: source.and(listed)?.unwrap_or_default(),
        discovery: discovery?,
        balance: balance(raw.balance.valid()?)?,
        slow_start: raw.slow_start.build(|at| Some(at.value.0))?,
        health: health?,
        eject: raw.eject.build(health::ejection)?,
        panic_threshold: raw.panic_threshold.value()?.0,
        connect_timeout: raw.connect_timeout.value()?.0,
        response_timeout: raw.response_timeout.value()?.0,
        idle_timeout: raw.idle_timeout.value()?.0,
        keepalive_timeout: raw.keepalive_timeout.value()?.0,
        tunnel_idle_timeout: raw.tunnel_idle_timeout.value()?.0,
        keepalive_connections: raw.keepalive_connections.value()?.count().get(),
        bounds: bounds?.unwrap_or_default(),
        proxy_protocol: raw.proxy_protocol.is_present(),
        request_trailers: raw.request_trailers.value()?,
        response_head: SectionBounds {
            bytes: usize::try_from(raw.max_header_size.value()?.0).ok()?,
            fields: raw.max_headers.value()?.count().get(),
        },
        http2: raw.http2.value()?,
        tls: tls?,
    })
}

/// A worker's HTTP/2 connection gives way to other workers once its streams have ended, which those
/// of gRPC may never do.
pub fn warn_of_few_connections(
    upstreams: &Setting<Mapping<DefinedName, RawUpstream>>,
    workers: Option<NonZeroUsize>,
    report: &mut Report,
) {
    let Some(workers) = workers else { return };
    for row in upstreams.members() {
        let Some(raw) = &row.value else { continue };
        let Setting::Valid(bounds) = &raw.bounds else {
            continue;
        };
        let Setting::Valid(few) = &bounds.connections else {
            continue;
        };
        if few.value.count() >= workers || !may_share_connections(raw) {
            continue;
        }
        let problem = ValueProblem::new(format!(
            "fewer connections than workers ({workers}): over HTTP/2, long requests of some keep the others waiting"
        ));
        report.warning(
            &few.location,
            problem.hint("give at least one for each worker"),
        );
    }
}

/// Whether connections carry many requests at a time.
fn may_share_connections(raw: &RawUpstream) -> bool {
    raw.sources
        .schemes()
        .any(|(scheme, _)| speaks_http2(raw, scheme))
}

fn check_proxy_protocol(raw: &RawUpstream, report: &mut Report) {
    if !raw.proxy_protocol.is_present() {
        return;
    }
    for (scheme, location) in raw.sources.schemes() {
        if scheme != EndpointScheme::H2c {
            continue;
        }
        let problem = ValueProblem::new(
            "with proxy_protocol, a connection carries one request, over HTTP/1.1",
        );
        report.mistake(location, problem.hint("write http:// or https://"));
    }
}

/// Whether every endpoint is spoken to in HTTP/2, if it takes it. `None`: its endpoints are not
/// known.
fn all_speak_http2(raw: &RawUpstream) -> Option<bool> {
    let sources = &raw.sources;
    if sources.endpoints.is_invalid() || sources.discover.is_invalid() {
        return None;
    }
    Some(
        sources
            .schemes()
            .all(|(scheme, _)| speaks_http2(raw, scheme)),
    )
}

/// Whether an endpoint with this scheme is spoken to in HTTP/2, if it takes it.
fn speaks_http2(raw: &RawUpstream, scheme: EndpointScheme) -> bool {
    match scheme {
        EndpointScheme::H2c => true,
        EndpointScheme::Https => {
            matches!(raw.http2.value(), Some(Http2Policy::Auto)) && !raw.proxy_protocol.is_present()
        }
        EndpointScheme::Http => false,
    }
}

/// The balancing of each upstream.
pub fn balanced(
    upstreams: &Setting<Mapping<DefinedName, RawUpstream>>,
) -> Vec<BalancedUpstream<'_>> {
    let mut balanced = Vec::new();
    for row in upstreams.members() {
        let balance = row.value.as_ref().and_then(|raw| raw.balance.valid());
        if let Some(balance) = balance {
            balanced.push(BalancedUpstream {
                name: &row.text,
                location: &row.location,
                balance,
            });
        }
    }
    balanced
}
