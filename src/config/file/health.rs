//! `health` and `eject` of an upstream: which of its endpoints are fit for requests.

use http::HeaderValue;
use http::uri::PathAndQuery;
use serde_json::{Value as Json, json};
use tollgate_limiter::limit::status_set::StatusRange;

use super::scalar::number::{BoundedDuration, DAY, Percent, WholeNumber};
use super::scalar::text::{OnlyTrue, PlainText};
use crate::config::report::{ValueProblem, quote};
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::{Located, Scalar};
use crate::config::yaml::record::record;
use crate::config::yaml::schema::or_variable;

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

/// The path of a probe, with a query if it has one.
#[derive(Clone)]
pub struct ProbePath(pub PathAndQuery);

impl Scalar for ProbePath {
    const WHAT: &'static str = "a path";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let path = text.parse().ok().filter(|_| text.starts_with('/'));
        path.map(Self).ok_or_else(|| {
            ValueProblem::new(format!("{} is not the path of a request", quote(text)))
                .hint("write /healthz")
        })
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("/.*") })
    }
}
