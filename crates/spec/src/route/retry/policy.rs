//! When a route sends a request again, as data.
//!
//! Guarantees that a condition which nobody wrote never holds.

use std::time::Duration;

use tollgate_limiter::limit::status_set::{StatusRange, StatusSet};

use super::back_off::BackOff;
pub use tollgate_wire::grpc::GrpcStatus;

/// How a route sends requests again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    pub on: RetryConditions,
    /// How often a request is sent in all.
    pub attempts: u32,
    /// Longest time of an attempt, from the pick of its endpoint to the response's header section.
    pub per_try: Option<Duration>,
    pub back_off: BackOff,
    /// The longest `Retry-After` that is waited for. `None`: the field is not looked at.
    pub retry_after: Option<Duration>,
    /// Bytes of a request's body that are kept. A longer body is not sent again.
    pub keep_body: usize,
    /// Requests that are not idempotent are sent again, too.
    pub non_idempotent: bool,
}

/// The outcomes of an attempt that another one follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryConditions {
    /// No endpoint took a connection.
    pub connect: bool,
    /// The connection broke before a response, or what came was none.
    pub reset: bool,
    /// There was no response in time.
    pub timeout: bool,
    pub statuses: Option<StatusSet>,
    pub calls: Vec<GrpcStatus>,
}

/// A condition, as an operator writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryCondition {
    Connect,
    Reset,
    Timeout,
    Status(StatusRange),
    Call(GrpcStatus),
}

impl FromIterator<RetryCondition> for RetryConditions {
    fn from_iter<T: IntoIterator<Item = RetryCondition>>(conditions: T) -> Self {
        let mut all = Self::default();
        let mut statuses = Vec::new();
        for condition in conditions {
            match condition {
                RetryCondition::Connect => all.connect = true,
                RetryCondition::Reset => all.reset = true,
                RetryCondition::Timeout => all.timeout = true,
                RetryCondition::Status(range) => statuses.push(range),
                RetryCondition::Call(status) => all.calls.push(status),
            }
        }
        all.statuses = StatusSet::new(statuses).ok();
        all
    }
}
