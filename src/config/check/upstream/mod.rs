//! Upstreams: their endpoints, timeouts and bounds; `tls` reads their certificates.

mod tls;

use crate::config::file::scalar::text::DefinedName;
use crate::config::file::upstream::{RawBounds, RawUpstream};
use crate::config::report::{Report, ValueProblem};
use crate::upstream::UpstreamSpec;
use crate::upstream::bounds::UpstreamBounds;
use crate::upstream::url::EndpointScheme;

/// An upstream. `None`: a mistake was reported.
pub fn build(name: &DefinedName, raw: &RawUpstream, report: &mut Report) -> Option<UpstreamSpec> {
    let bounds = raw.bounds.build(|raw| bounds(raw, report));
    check_proxy_protocol(raw, report);
    let tls = tls::build(raw, report);
    Some(UpstreamSpec {
        name: name.0.clone(),
        endpoints: raw.endpoints.valid()?.0.iter().map(|at| at.value.clone()).collect(),
        balance: raw.balance.value()?,
        connect_timeout: raw.connect_timeout.value()?.0,
        response_timeout: raw.response_timeout.value()?.0,
        idle_timeout: raw.idle_timeout.value()?.0,
        keepalive_timeout: raw.keepalive_timeout.value()?.0,
        tunnel_idle_timeout: raw.tunnel_idle_timeout.value()?.0,
        keepalive_connections: raw.keepalive_connections.value()?.count().get(),
        bounds: bounds?.unwrap_or_default(),
        proxy_protocol: raw.proxy_protocol.is_present(),
        http2: raw.http2.value()?,
        tls: tls?,
    })
}

fn check_proxy_protocol(raw: &RawUpstream, report: &mut Report) {
    if !raw.proxy_protocol.is_present() {
        return;
    }
    let endpoints = raw.endpoints.valid().map_or(&[][..], |endpoints| &endpoints.0);
    for at in endpoints.iter().filter(|at| at.value.scheme == EndpointScheme::H2c) {
        let problem = ValueProblem::new("with proxy_protocol, a connection carries one request, over HTTP/1.1");
        report.mistake(&at.location, problem.hint("write http:// or https://"));
    }
}

fn bounds(raw: &RawBounds, report: &mut Report) -> Option<UpstreamBounds> {
    if let Some(pending) = raw.pending.valid().filter(|_| !raw.connections.is_present()) {
        let problem = ValueProblem::new("requests wait for a connection only where \"connections\" is bounded");
        report.mistake(&pending.location, problem.hint("give \"connections\" too, or remove \"pending\""));
        return None;
    }
    Some(UpstreamBounds {
        connections: raw.connections.build(|at| Some(at.value.count()))?,
        pending: raw.pending.build(|at| usize::try_from(at.value.0).ok())?,
        requests: raw.requests.build(|at| Some(at.value.count()))?,
    })
}
