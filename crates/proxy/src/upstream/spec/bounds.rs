//! The bounds of an upstream as data: on its connections, on the requests that wait for one, and on
//! its requests in flight.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::health::Percentage;
use tollgate_wire::http::h1::SectionBounds;
pub use tollgate_wire::http::h2::HeadBound;

/// The most that an upstream takes. `None`: no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamBounds {
    /// Open connections, all workers together.
    pub connections: Option<NonZeroUsize>,
    /// Requests that wait for a connection.
    pub pending: Option<usize>,
    /// Requests in flight. Two workers that check at the same moment may each let one more pass.
    pub requests: Option<NonZeroUsize>,
    /// Requests that wait for an answer, as many as it answers fast.
    pub adaptive: Option<AdaptiveRule>,
    /// The largest head of a request.
    pub head: Option<HeadBound>,
}

/// The largest header section of an answer, and the largest trailer section, of an upstream that
/// has no bounds of its own.
pub const RESPONSE_HEAD: SectionBounds = SectionBounds {
    bytes: 64 * 1024,
    fields: 1000,
};

/// How an adaptive bound follows the latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveRule {
    /// The lowest limit, and the one at which the shortest latency is measured.
    pub min: usize,
    pub max: usize,
    /// The part by which the latency may exceed the shortest one before the limit falls.
    pub buffer: Percentage,
    /// From one measurement of the shortest latency to the next.
    pub interval: Duration,
    /// The answers that a measurement takes.
    pub requests: u64,
}
