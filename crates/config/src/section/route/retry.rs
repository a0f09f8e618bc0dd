//! `retry` of a route: when its requests are sent again.

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::status_set::StatusRange;

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::number::{BoundedDuration, ByteSize, DAY, WholeNumber};
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Located, Scalar};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;
use tollgate_spec::route::retry::back_off::BackOff;
use tollgate_spec::route::retry::{GrpcStatus, RetryCondition, RetryPolicy};

/// Bytes kept of a body at most: many requests at a time may each have as many.
const MOST_KEPT: u64 = 1 << 20;

record! {
    /// When requests are sent again.
    RawRetry {
        /// connect, reset, timeout; statuses such as 503, or 5xx; statuses of gRPC, such as
        /// unavailable.
        required on: NonEmptyList<Located<RetryCondition>>,
        /// How often a request is sent in all.
        default(2) attempts: Located<WholeNumber<2, 10>>,
        /// The longest time of one attempt, to the response's header section. Default: the
        /// upstream's timeouts only.
        optional per_try: Located<BoundedDuration<DAY>>,
        /// The pauses between attempts. Default: {base: 25ms, max: 250ms}.
        optional back_off: RawBackOff,
        /// The longest Retry-After of an answer that is waited for. Default: the field is not
        /// looked at.
        optional retry_after: Located<BoundedDuration<DAY>>,
        /// Bytes of a request's body that are kept for the next attempt. Default: none, and no body
        /// is sent again.
        optional keep_body: Located<ByteSize<1, MOST_KEPT>>,
        /// Sends requests again that are not idempotent, such as POST, although the upstream may
        /// have done what they ask for.
        default(false) non_idempotent: Located<bool>,
    }
}

record! {
    /// The pauses between attempts: each is drawn from zero to a time that doubles.
    RawBackOff at location {
        /// The longest pause before the second attempt.
        default("25ms") base: Located<BoundedDuration<DAY>>,
        /// The longest pause of all.
        default("250ms") max: Located<BoundedDuration<DAY>>,
    }
}

impl RawRetry {
    /// The policy. `None`: a mistake was reported.
    pub fn build(&self, report: &mut Report) -> Option<RetryPolicy> {
        let non_idempotent = self.non_idempotent.value()?;
        let on = self.on.build(|on| conditions(on, non_idempotent, report));
        let back_off = self.back_off.build(|raw| raw.build(report));
        Some(RetryPolicy {
            on: on??.into_iter().collect(),
            attempts: u32::try_from(self.attempts.value()?.0).ok()?,
            per_try: self.per_try.build(|at| Some(at.value.0))?,
            back_off: back_off?.unwrap_or(BackOff::DEFAULT),
            retry_after: self.retry_after.build(|at| Some(at.value.0))?,
            keep_body: self
                .keep_body
                .build(|at| usize::try_from(at.value.0).ok())?
                .unwrap_or(0),
            non_idempotent,
        })
    }
}

impl RawBackOff {
    fn build(&self, report: &mut Report) -> Option<BackOff> {
        let base = self.base.valid()?;
        let max = self.max.valid()?;
        if max.value.0 < base.value.0 {
            let problem = ValueProblem::new("the longest pause is shorter than the first one");
            report.mistake(
                &self.location,
                problem.hint("give a \"max\" that is no shorter than \"base\""),
            );
            return None;
        }
        Some(BackOff {
            base: base.value.0,
            max: max.value.0,
        })
    }
}

/// Each is there once. Calls are POSTs, which are sent again only if the route says so.
fn conditions(
    on: &NonEmptyList<Located<RetryCondition>>,
    non_idempotent: bool,
    report: &mut Report,
) -> Option<Vec<RetryCondition>> {
    let mut conditions = Vec::new();
    for Located { location, value } in &on.0 {
        let problem = if conditions.contains(value) {
            ValueProblem::new("this condition is here twice").hint("list each condition once")
        } else if matches!(value, RetryCondition::Call(_)) && !non_idempotent {
            let problem = ValueProblem::new("calls of gRPC are POSTs, which are not idempotent");
            problem.hint("add \"non_idempotent: true\", if the service takes a call twice")
        } else {
            conditions.push(value.clone());
            continue;
        };
        report.mistake(location, problem);
        return None;
    }
    Some(conditions)
}

/// The ways to fail without a status, as they are written.
const FAULTS: [(&str, RetryCondition); 3] = [
    ("connect", RetryCondition::Connect),
    ("reset", RetryCondition::Reset),
    ("timeout", RetryCondition::Timeout),
];

/// The statuses of gRPC for failures, as they are written.
const CALLS: [(&str, GrpcStatus); 16] = [
    ("cancelled", GrpcStatus::Cancelled),
    ("unknown", GrpcStatus::Unknown),
    ("invalid_argument", GrpcStatus::InvalidArgument),
    ("deadline_exceeded", GrpcStatus::DeadlineExceeded),
    ("not_found", GrpcStatus::NotFound),
    ("already_exists", GrpcStatus::AlreadyExists),
    ("permission_denied", GrpcStatus::PermissionDenied),
    ("resource_exhausted", GrpcStatus::ResourceExhausted),
    ("failed_precondition", GrpcStatus::FailedPrecondition),
    ("aborted", GrpcStatus::Aborted),
    ("out_of_range", GrpcStatus::OutOfRange),
    ("unimplemented", GrpcStatus::Unimplemented),
    ("internal", GrpcStatus::Internal),
    ("unavailable", GrpcStatus::Unavailable),
    ("data_loss", GrpcStatus::DataLoss),
    ("unauthenticated", GrpcStatus::Unauthenticated),
];

impl Scalar for RetryCondition {
    const WHAT: &'static str = "a condition";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        for (name, condition) in FAULTS {
            if text == name {
                return Ok(condition);
            }
        }
        if let Ok(status) = StatusRange::parse(text)
            && text.starts_with(['4', '5'])
        {
            return Ok(Self::Status(status));
        }
        for (name, status) in CALLS {
            if text == name {
                return Ok(Self::Call(status));
            }
        }
        let problem = ValueProblem::new(format!("{} is not a condition of retries", quote(text)));
        Err(problem.hint("write connect, reset, timeout, 400 to 599, 4xx, 5xx, or a status of gRPC such as unavailable"))
    }

    fn schema() -> Json {
        let mut words = FAULTS.map(|(name, _)| name).to_vec();
        words.extend(CALLS.map(|(name, _)| name));
        let words = words.join("|");
        json!({ "anyOf": [
            { "type": "integer", "minimum": 400, "maximum": 599 },
            { "type": "string", "pattern": or_variable(&format!("(?:{words}|[45](?:[0-9]{{2}}|xx))")) },
        ] })
    }
}
