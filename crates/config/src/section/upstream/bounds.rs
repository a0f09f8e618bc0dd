//! `bounds` of an upstream: its connections and requests.

use crate::report::{Report, ValueProblem};
use crate::scalar::number::{BoundedDuration, ByteSize, DAY, WholeNumber};
use crate::section::upstream::health::Percent;
use crate::yaml::decode::Located;
use crate::yaml::record::record;
use tollgate_proxy::upstream::adaptive::gradient::AdaptiveRule;
use tollgate_proxy::upstream::bounds::{HeadBound, UpstreamBounds};

record! {
    /// Bounds of an upstream.
    RawBounds {
        /// Open connections, all workers together. Further requests wait for one within
        /// connect_timeout.
        optional connections: Located<WholeNumber<1, 1_000_000>>,
        /// Requests that wait for a connection. Default: no bound.
        optional pending: Located<WholeNumber<0, 1_000_000>>,
        /// Requests in flight, all workers together.
        optional requests: Located<WholeNumber<1, 1_000_000_000>>,
        /// Requests that wait for an answer, as many as the upstream answers fast. Default: no
        /// bound.
        optional adaptive: RawAdaptive,
        /// All header fields of a request, 32 bytes more for each; beyond it 431.
        optional header_size: Located<ByteSize<1_024, 16_777_216>>,
        /// The target of a request, or the name and the value of a header field; beyond it 431.
        optional field_size: Located<ByteSize<256, 16_777_216>>,
    }
}

record! {
    /// A bound that follows the latency of its upstream.
    RawAdaptive {
        /// The lowest limit, at which the latency without a queue is measured.
        default(3) min: Located<WholeNumber<1, 1_000_000>>,
        /// The highest limit.
        default(1000) max: Located<WholeNumber<1, 1_000_000>>,
        /// The part by which the latency may exceed that without a queue before the limit falls.
        default("25%") buffer: Located<Percent>,
        /// From one measurement of the latency without a queue to the next.
        default("60s") interval: Located<BoundedDuration<DAY, 1_000>>,
        /// The answers that a measurement takes.
        default(50) requests: Located<WholeNumber<1, 1_000_000>>,
    }
}

pub fn bounds(raw: &RawBounds, report: &mut Report) -> Option<UpstreamBounds> {
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
