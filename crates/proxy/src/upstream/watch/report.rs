//! The condition of endpoints, as the admin port shows it and as metrics.
//!
//! The metrics are written here at each scrape, and not kept by the recorder, which forgets no
//! series: an endpoint that has left its upstream leaves none behind. Guarantees that requests pay
//! nothing for them.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::Serialize;

use crate::upstream::Upstream;
use crate::upstream::discovery::{Discovery, DiscoveryStanding};
use crate::upstream::endpoints::Endpoint;
use crate::upstream::health::ejection::EjectionReason;
use tollgate_limiter::clock;

/// The endpoints of an upstream.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct UpstreamReport {
    pub upstream: String,
    /// All get requests, since so few are in service.
    pub panicking: bool,
    /// How its endpoints are found, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovery: Option<DiscoveryReport>,
    /// The adaptive bound, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<ConcurrencyReport>,
    pub endpoints: Vec<EndpointReport>,
}

/// How many requests may wait for an answer, and how many do.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ConcurrencyReport {
    pub limit: usize,
    pub in_flight: usize,
    /// The latency of requests that wait for no other, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt: Option<f64>,
}

/// How endpoints are found, and whether the list is right.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct DiscoveryReport {
    pub source: String,
    pub state: &'static str,
    /// When the list was last right, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed_at: Option<f64>,
    /// Why the last lookup failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An endpoint.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct EndpointReport {
    pub url: String,
    pub weight: u64,
    pub backup: bool,
    pub state: &'static str,
    pub in_flight: usize,
    /// Failed requests in a row.
    pub consecutive_failures: u32,
    pub ejections: u64,
    /// Seconds until it comes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ejected_for: Option<f64>,
    /// Why it is out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ejected_because: Option<&'static str>,
    /// The median of the last window with enough answers, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_latency: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbeReport>,
}

/// The probes of an endpoint.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ProbeReport {
    pub passed: u64,
    pub failed: u64,
    /// Why the last one failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Takes further labels and a value.
type SampleWriter<'a> = dyn FnMut(&str, u64) + 'a;

/// A metric of endpoints.
struct EndpointMetric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: fn(&Upstream, &Endpoint, &mut SampleWriter<'_>),
}

const METRICS: [EndpointMetric; 3] = [
    EndpointMetric {
        name: "tollgate_upstream_endpoint_up",
        kind: "gauge",
        help: "Whether an endpoint is in service (1), or ejected or unhealthy (0).",
        samples: |_, endpoint, sample| sample("", u64::from(endpoint.condition().is_in_service())),
    },
    EndpointMetric {
        name: "tollgate_upstream_endpoint_ejections_total",
        kind: "counter",
        help: "How often an endpoint was ejected, by reason.",
        samples: |upstream, endpoint, sample| {
            let ejection = endpoint.condition().ejection();
            if upstream.ejects() {
                let total = ejection.total_for(EjectionReason::Failures);
                sample(",reason=\"failures\"", total);
            }
            if upstream.judges_latency() {
                let total = ejection.total_for(EjectionReason::Latency);
                sample(",reason=\"latency\"", total);
            }
        },
    },
    EndpointMetric {
        name: "tollgate_upstream_endpoint_probes_total",
        kind: "counter",
        help: "Probes of an endpoint's health, by outcome.",
        samples: |upstream, endpoint, sample| {
            if upstream.spec().health.is_some() {
                let (passed, failed) = endpoint.condition().probes().counts();
                sample(",outcome=\"passed\"", passed);
                sample(",outcome=\"failed\"", failed);
            }
        },
    },
];

impl UpstreamReport {
    pub fn new(upstream: &Upstream) -> Self {
        Self {
            upstream: upstream.spec().name.to_string(),
            panicking: upstream.is_panicking(),
            discovery: upstream
                .discovery()
                .map(|discovery| DiscoveryReport::new(discovery)),
            concurrency: upstream.adaptive_bound().map(|bound| ConcurrencyReport {
                limit: bound.limit(),
                in_flight: bound.in_flight(),
                min_rtt: bound
                    .shortest_latency()
                    .map(|latency| latency.as_secs_f64()),
            }),
            endpoints: upstream
                .endpoints()
                .iter()
                .map(|endpoint| EndpointReport::new(upstream, endpoint))
                .collect(),
        }
    }
}

impl DiscoveryReport {
    fn new(discovery: &Discovery) -> Self {
        let DiscoveryStanding {
            standing,
            error,
            confirmed_at,
        } = discovery.standing();
        Self {
            source: discovery.spec().to_string(),
            state: standing.name(),
            confirmed_at: confirmed_at.map(|micros| (micros / 1_000) as f64 / 1e3),
            error: error.map(|error| error.to_string()),
        }
    }
}

impl EndpointReport {
    fn new(upstream: &Upstream, endpoint: &Endpoint) -> Self {
        let condition = endpoint.condition();
        let ejection = condition.ejection();
        let probes = condition.probes();
        let (passed, failed) = probes.counts();
        let until = ejection
            .until()
            .map(|until| until.saturating_sub(clock::monotonic_micros()));
        Self {
            url: endpoint.url().to_owned(),
            weight: endpoint.role().weight,
            backup: endpoint.role().priority > 0,
            state: match (until, probes.is_unhealthy(), endpoint.is_backing_off()) {
                (Some(_), _, _) => "ejected",
                (None, true, _) => "unhealthy",
                (None, false, true) => "backing_off",
                (None, false, false) => "in_service",
            },
            in_flight: endpoint.in_flight(),
            consecutive_failures: ejection.consecutive(),
            ejections: ejection.total(),
            ejected_for: until.map(|micros| micros as f64 / 1e6),
            ejected_because: until.map(|_| ejection.reason().name()),
            median_latency: condition
                .latency()
                .and_then(|of| Some(of.median()?.as_secs_f64())),
            probes: upstream.spec().health.is_some().then(|| ProbeReport {
                passed,
                failed,
                error: probes.error().map(|error| error.to_string()),
            }),
        }
    }
}

/// The metrics of the endpoints of `upstreams`, in Prometheus's text format. Empty without
/// upstreams.
pub fn metrics(upstreams: &[Arc<Upstream>]) -> String {
    let mut text = String::new();
    for metric in METRICS {
        let EndpointMetric {
            name,
            kind,
            help,
            samples,
        } = metric;
        let mut lines = String::new();
        for upstream in upstreams
            .iter()
            .filter(|upstream| upstream.has_changing_endpoints())
        {
            let upstream_label = escape(&upstream.spec().name);
            for endpoint in upstream.endpoints().iter() {
                let endpoint_label = escape(endpoint.url());
                samples(upstream, endpoint, &mut |labels, value| {
                    let own = format_args!(
                        "upstream=\"{upstream_label}\",endpoint=\"{endpoint_label}\"{labels}"
                    );
                    // Writing to a String cannot fail.
                    let _ = writeln!(lines, "{name}{{{own}}} {value}");
                });
            }
        }
        if !lines.is_empty() {
            let _ = write!(
                text,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}\n"
            );
        }
    }
    text
}

/// The value of a label.
fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
