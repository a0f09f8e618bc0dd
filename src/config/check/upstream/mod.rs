//! Upstreams: their endpoints, timeouts and bounds. `balance` warns of ways to balance, `discovery`
//! has how endpoints are found, `listed` judges those of a file, `health` has their probes, and
//! `tls` reads their certificates.

pub mod balance;
mod discovery;
mod health;
pub mod listed;
mod tls;

use std::num::NonZeroUsize;

use crate::config::file::balance::{RawBalance, RawEndpoint};
use crate::config::file::config::RawConfig;
use crate::config::file::scalar::text::DefinedName;
use crate::config::file::upstream::{RawAdaptive, RawBounds, RawUpstream};
use crate::config::report::{Report, ValueProblem};
use crate::upstream::adaptive::gradient::AdaptiveRule;
use crate::upstream::affinity::StickyCookie;
use crate::upstream::bounds::{HeadBound, UpstreamBounds};
use crate::upstream::endpoints::EndpointSpec;
use crate::upstream::url::EndpointScheme;
use crate::upstream::{Balance, UpstreamSpec};

/// An upstream. `None`: a mistake was reported.
pub fn build(name: &DefinedName, raw: &RawUpstream, report: &mut Report) -> Option<UpstreamSpec> {
    let bounds = raw.bounds.build(|raw| bounds(raw, report));
    check_proxy_protocol(raw, report);
    check_backups(raw, report)?;
    let source = discovery::check_source(raw, report);
    let listed = raw
        .endpoints
        .build(|list| Some(list.0.iter().map(endpoint).collect::<Vec<_>>()));
    let discovery = raw.discover.build(|raw| discovery::build(raw, report));
    let tls = tls::build(raw, report);
    let health = raw
        .health
        .build(|health| health::probes(health, raw, report));
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
        http2: raw.http2.value()?,
        tls: tls?,
    })
}

fn endpoint(raw: &RawEndpoint) -> EndpointSpec {
    let priority = u16::from(raw.backup);
    EndpointSpec {
        url: raw.url.value.clone(),
        weight: raw.weight,
        priority,
        host: None,
    }
}

/// How the next endpoint is chosen. `None`: a mistake was reported.
fn balance(raw: &RawBalance) -> Option<Balance> {
    Some(match raw {
        RawBalance::Word(balance) => balance.clone(),
        RawBalance::Hash(key) => Balance::Hash(key.parts()?.into()),
        RawBalance::Cookie(cookie) => Balance::Sticky(StickyCookie {
            name: cookie.name.value()?.0,
            ttl: cookie.ttl.build(|at| Some(at.value.0))?,
            secure: cookie.secure.value()?,
            secret: cookie.secret.value()?.0,
        }),
    })
}

/// Backups stand in for others.
fn check_backups(raw: &RawUpstream, report: &mut Report) -> Option<()> {
    let endpoints = raw
        .endpoints
        .valid()
        .map_or(&[][..], |endpoints| &endpoints.0);
    let (true, Some(first)) = (endpoints.iter().all(|at| at.backup), endpoints.first()) else {
        return Some(());
    };
    let problem = ValueProblem::new(
        "every endpoint is a backup, and there is none that it could stand in for",
    );
    report.mistake(
        &first.url.location,
        problem.hint("remove \"backup\" from the endpoints that are used first"),
    );
    None
}

/// A worker's HTTP/2 connection gives way to other workers once its streams have ended, which those
/// of gRPC may never do.
pub fn warn_of_few_connections(
    file: &RawConfig,
    workers: Option<NonZeroUsize>,
    report: &mut Report,
) {
    let Some(workers) = workers else { return };
    let upstreams = file.upstreams.valid().map_or(&[][..], |table| &table.0);
    for raw in upstreams
        .iter()
        .filter_map(|row| row.value.as_ref())
        .filter(|raw| may_share_connections(raw))
    {
        let connections = raw
            .bounds
            .valid()
            .and_then(|bounds| bounds.connections.valid());
        let Some(few) = connections.filter(|at| at.value.count() < workers) else {
            continue;
        };
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
    discovery::schemes(raw).any(|(scheme, _)| health::speaks_http2(raw, scheme))
}

fn check_proxy_protocol(raw: &RawUpstream, report: &mut Report) {
    if !raw.proxy_protocol.is_present() {
        return;
    }
    for (_, location) in
        discovery::schemes(raw).filter(|(scheme, _)| *scheme == EndpointScheme::H2c)
    {
        let problem = ValueProblem::new(
            "with proxy_protocol, a connection carries one request, over HTTP/1.1",
        );
        report.mistake(location, problem.hint("write http:// or https://"));
    }
}

fn bounds(raw: &RawBounds, report: &mut Report) -> Option<UpstreamBounds> {
    if let Some(pending) = raw
        .pending
        .valid()
        .filter(|_| !raw.connections.is_present())
    {
        let problem = ValueProblem::new(
            "requests wait for a connection only where \"connections\" is bounded",
        );
        report.mistake(
            &pending.location,
            problem.hint("give \"connections\" too, or remove \"pending\""),
        );
        return None;
    }
    let head = HeadBound {
        size: raw
            .header_size
            .build(|at| usize::try_from(at.value.0).ok())?,
        field: raw
            .field_size
            .build(|at| usize::try_from(at.value.0).ok())?,
    };
    Some(UpstreamBounds {
        connections: raw.connections.build(|at| Some(at.value.count()))?,
        pending: raw.pending.build(|at| usize::try_from(at.value.0).ok())?,
        requests: raw.requests.build(|at| Some(at.value.count()))?,
        adaptive: raw.adaptive.build(|raw| adaptive(raw, report))?,
        head: Some(head).filter(HeadBound::is_bound),
    })
}

fn adaptive(raw: &RawAdaptive, report: &mut Report) -> Option<AdaptiveRule> {
    let rule = AdaptiveRule {
        min: raw.min.value()?.count().get(),
        max: raw.max.value()?.count().get(),
        buffer: raw.buffer.value()?.0,
        interval: raw.interval.value()?.0,
        requests: raw.requests.value()?.0,
    };
    if let Some(at) = raw.min.valid().filter(|_| rule.min > rule.max) {
        let problem = ValueProblem::new("\"min\" is more than \"max\"");
        report.mistake(
            &at.location,
            problem.hint("give \"max\" too, or a smaller one"),
        );
        return None;
    }
    Some(rule)
}
