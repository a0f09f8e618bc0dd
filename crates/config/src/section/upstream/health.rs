//! `health` and `eject` of an upstream: how its endpoints are probed, and when they get no
//! requests.

use http::HeaderValue;
use serde_json::{Value as Json, json};
use tollgate_limiter::limit::status_set::{StatusRange, StatusSet};
use tollgate_limiter::limit::units;

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::number::{BoundedDuration, DAY, WholeNumber};
use crate::scalar::path::ProbePath;
use crate::scalar::text::{OnlyTrue, PlainText};
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Located, Scalar, only_one};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;
use tollgate_proxy::upstream::health::Percentage;
use tollgate_proxy::upstream::health::check::{HealthCheck, HealthSpec};
use tollgate_proxy::upstream::health::condition::ProbeThresholds;
use tollgate_proxy::upstream::health::ejection::EjectSpec;
use tollgate_proxy::upstream::latency::outliers::LatencyRule;

record! {
    /// How endpoints are probed. Exactly one of path, grpc and tcp.
    RawHealth at location {
        /// A GET of this path tells whether an endpoint is healthy.
        optional path: Located<ProbePath>,
        /// The health service of gRPC tells it of this service. Empty: of the server as a whole.
        optional grpc: Located<PlainText>,
        /// A connection that it takes tells it, TLS included.
        optional tcp: Located<OnlyTrue>,
        /// The statuses that a healthy endpoint answers the path with. Default: 2xx and 3xx.
        optional status: NonEmptyList<Located<StatusRange>>,
        /// The Host that is asked for with the path. Default: the endpoint's.
        optional host: Located<HeaderValue>,
        /// From one probe of an endpoint to the next, a tenth more or less.
        default("5s") interval: Located<BoundedDuration<DAY, 100>>,
        /// The longest that a probe takes, connecting included.
        default("1s") timeout: Located<BoundedDuration<DAY>>,
        /// Failed probes in a row after which an endpoint gets no requests.
        default(3) unhealthy_after: Located<WholeNumber<1, 1000>>,
        /// Passed probes in a row after which it gets requests again.
        default(2) healthy_after: Located<WholeNumber<1, 1000>>,
    }
}

record! {
    /// When endpoints that fail requests get none for a while.
    RawEject {
        /// Failed requests in a row: no connection, no response, or a 5xx other than 501 and 505.
        default(5) after: Located<WholeNumber<1, 1000>>,
        /// How long the first time. The second time in a row takes twice as long, and so on.
        default("30s") r#for: Located<BoundedDuration<DAY, 100>>,
        /// The longest time, however often it was ejected.
        default("5m") longest: Located<BoundedDuration<DAY, 100>>,
        /// The share of the endpoints that may be ejected at a time. Of several, one always may.
        default("50%") at_most: Located<Percent>,
        /// Whether endpoints that are far slower than the others get none for a while, too.
        /// Default: no.
        optional latency: RawLatency,
    }
}

record! {
    /// When an endpoint is far slower than the others of its upstream.
    RawLatency {
        /// Half of its answers take longer than this. An answer's time is from the whole request to
        /// the response's head.
        default("500ms") above: Located<BoundedDuration<DAY>>,
        /// Half of its answers take longer than so many times the median of the others.
        default(3) factor: Located<WholeNumber<2, 1000>>,
        /// The answers of an endpoint in a window from which on it is judged.
        default(20) requests: Located<WholeNumber<1, 1_000_000>>,
        /// The time after which endpoints are judged, again and again.
        default("10s") window: Located<BoundedDuration<DAY, 100>>,
    }
}

/// A share in whole percent, from 0% to 100%.
#[derive(Clone, Copy)]
pub struct Percent(pub Percentage);

impl Scalar for Percent {
    const WHAT: &'static str = "a percentage";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let number = text.strip_suffix('%').and_then(units::whole);
        match number.map(u8::try_from) {
            Some(Ok(percent @ 0..=100)) => Ok(Self(Percentage::new(percent))),
            Some(_) | None => Err(ValueProblem::new(format!(
                "{} is not a percentage",
                quote(text)
            ))
            .hint("write 0% to 100%, in whole percent")),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("[0-9]+%") })
    }
}

/// The probes of an upstream. `all_speak_http2`: whether each of its endpoints does, if that is
/// known. `None`: a mistake was reported.
pub fn probes(
    raw: &RawHealth,
    all_speak_http2: Option<bool>,
    report: &mut Report,
) -> Option<HealthSpec> {
    let check = check(raw, report);
    if let Some(at) = raw.grpc.valid() {
        check_grpc(&at.location, all_speak_http2?, report)?;
    }
    Some(HealthSpec {
        check: check?,
        interval: raw.interval.value()?.0,
        timeout: raw.timeout.value()?.0,
        thresholds: ProbeThresholds {
            unhealthy_after: u32::try_from(raw.unhealthy_after.value()?.0).ok()?,
            healthy_after: u32::try_from(raw.healthy_after.value()?.0).ok()?,
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
    let host = raw.host.optional()?;
    if !raw.path.is_present() && (status.is_some() || host.is_some()) {
        let problem = ValueProblem::new("\"status\" and \"host\" are of probes by \"path\"");
        report.mistake(&raw.location, problem.hint("give \"path\", or remove them"));
        return None;
    }
    let options = [
        raw.path.build(|at| {
            Some(HealthCheck::Http {
                path: at.value.0.clone(),
                host,
                status: match status {
                    Some(status) => status,
                    None => StatusSet::new([StatusRange::from(200..=399)]).ok()?,
                },
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

/// gRPC needs HTTP/2. `None`: a mistake was reported.
fn check_grpc(location: &Location, all_speak_http2: bool, report: &mut Report) -> Option<()> {
    if all_speak_http2 {
        return Some(());
    }
    let problem = ValueProblem::new("gRPC needs HTTP/2, which not every endpoint speaks");
    report.mistake(
        location,
        problem.hint("write h2c:// or https:// endpoints, or probe by path or tcp"),
    );
    None
}
