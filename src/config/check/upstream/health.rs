//! How an upstream's endpoints are probed, and when they are ejected.

use tollgate_limiter::limit::status_set::{StatusRange, StatusSet};

use super::discovery;
use crate::config::file::health::{RawEject, RawHealth, RawLatency};
use crate::config::file::upstream::RawUpstream;
use crate::config::report::{Location, Report, ValueProblem};
use crate::config::yaml::decode::only_one;
use crate::upstream::Http2Policy;
use crate::upstream::health::check::{HealthCheck, HealthSpec};
use crate::upstream::health::condition::ProbeThresholds;
use crate::upstream::health::ejection::EjectSpec;
use crate::upstream::latency::outliers::LatencyRule;
use crate::upstream::url::EndpointScheme;

/// The probes of an upstream. `None`: a mistake was reported.
pub fn probes(raw: &RawHealth, upstream: &RawUpstream, report: &mut Report) -> Option<HealthSpec> {
    let check = check(raw, report);
    if let Some(at) = raw.grpc.valid() {
        check_grpc(&at.location, upstream, report)?;
    }
    let count = |setting: u64| u32::try_from(setting).unwrap_or(u32::MAX);
    Some(HealthSpec {
        check: check?,
        interval: raw.interval.value()?.0,
        timeout: raw.timeout.value()?.0,
        thresholds: ProbeThresholds {
            unhealthy_after: count(raw.unhealthy_after.value()?.0),
            healthy_after: count(raw.healthy_after.value()?.0),
        },
    })
}

/// When endpoints are ejected. `None`: a mistake was reported.
pub fn ejection(raw: &RawEject) -> Option<EjectSpec> {
    Some(EjectSpec {
        after: u32::try_from(raw.after.value()?.0).ok()?,
        base: raw.r#for.value()?.0,
        longest: raw.longest.value()?.0,
        at_most: raw.at_most.value()?.0,
        latency: raw.latency.build(latency)?,
    })
}

fn latency(raw: &RawLatency) -> Option<LatencyRule> {
    Some(LatencyRule {
        above: raw.above.value()?.0,
        factor: u32::try_from(raw.factor.value()?.0).ok()?,
        requests: u32::try_from(raw.requests.value()?.0).ok()?,
        window: raw.window.value()?.0,
    })
}

fn check(raw: &RawHealth, report: &mut Report) -> Option<HealthCheck> {
    let status = raw
        .status
        .build(|ranges| StatusSet::new(ranges.0.iter().map(|at| at.value.clone())).ok())?;
    let host = raw.host.build(|at| Some(at.value.clone()))?;
    if !raw.path.is_present() && (status.is_some() || host.is_some()) {
        let problem = ValueProblem::new("\"status\" and \"host\" are of probes by \"path\"");
        report.mistake(&raw.location, problem.hint("give \"path\", or remove them"));
        return None;
    }
    let usual = || StatusSet::new([StatusRange::from(200..=399)]).ok();
    let options = [
        raw.path.build(|at| {
            Some(HealthCheck::Http {
                path: at.value.0.clone(),
                host,
                status: status.or_else(usual)?,
            })
        }),
        raw.grpc.build(|at| {
            Some(HealthCheck::Grpc {
                service: at.value.0.clone(),
            })
        }),
        raw.tcp.build(|_| Some(HealthCheck::Tcp)),
    ];
    only_one(options).unwrap_or_else(|_| {
        let problem = ValueProblem::new("an endpoint is probed by exactly one of path, grpc, tcp");
        report.mistake(
            &raw.location,
            problem.hint("write {path: /healthz}, {grpc: name of a service} or {tcp: true}"),
        );
        None
    })
}

/// gRPC takes HTTP/2.
fn check_grpc(location: &Location, upstream: &RawUpstream, report: &mut Report) -> Option<()> {
    if upstream.endpoints.is_invalid() || upstream.discover.is_invalid() {
        return None;
    }
    if discovery::schemes(upstream).all(|(scheme, _)| speaks_http2(upstream, scheme)) {
        return Some(());
    }
    let problem = ValueProblem::new("gRPC needs HTTP/2, which not every endpoint speaks");
    report.mistake(
        location,
        problem.hint("write h2c:// or https:// endpoints, or probe by path or tcp"),
    );
    None
}

/// Whether an endpoint with this scheme is spoken to in HTTP/2, if it takes it.
pub fn speaks_http2(raw: &RawUpstream, scheme: EndpointScheme) -> bool {
    match scheme {
        EndpointScheme::H2c => true,
        EndpointScheme::Https => {
            matches!(raw.http2.value(), Some(Http2Policy::Auto)) && !raw.proxy_protocol.is_present()
        }
        EndpointScheme::Http => false,
    }
}
