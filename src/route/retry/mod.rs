//! When a route sends a request again, and how often. `back_off` has the pauses between.
//!
//! Guarantees that a condition which nobody wrote never holds.

pub mod back_off;

use std::time::{Duration, UNIX_EPOCH};

use back_off::BackOff;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use tollgate_limiter::limit::status_set::{StatusRange, StatusSet};

use crate::clock;
use crate::error::Failure;
use crate::grpc::GRPC_STATUS;
pub use crate::grpc::GrpcStatus;

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
        let (mut all, mut statuses) = (Self::default(), Vec::new());
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

impl RetryConditions {
    /// Whether an attempt that failed so is followed by another.
    pub fn hold_for_failure(&self, failure: &Failure) -> bool {
        match failure {
            Failure::ConnectFailed | Failure::ConnectTimeout | Failure::TlsFailed => self.connect,
            Failure::UpstreamClosed | Failure::UpstreamInvalid => self.reset,
            Failure::ResponseTimeout => self.timeout,
            _ => false,
        }
    }

    /// Whether an attempt that brought this response is followed by another. A call says in its
    /// header section how it ended if it has no messages: those that have some are the client's
    /// already.
    pub fn hold_for_response(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let of_call = || {
            headers
                .get(GRPC_STATUS)
                .is_some_and(|value| self.calls.contains(&GrpcStatus::read(value)))
        };
        self.statuses
            .as_ref()
            .is_some_and(|statuses| statuses.contains(status))
            || (!self.calls.is_empty() && of_call())
    }
}

/// The time that a response asks to wait, in seconds or until a date (RFC 9110 §10.2.3). `None`: it
/// says nothing of use.
pub fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits {
        // More digits than a number has: longer than anybody waits.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let at = httpdate::parse_http_date(text)
        .ok()?
        .duration_since(UNIX_EPOCH)
        .ok()?;
    Some(at.saturating_sub(Duration::from_micros(clock::unix_micros())))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn conditions(written: impl IntoIterator<Item = RetryCondition>) -> RetryConditions {
        written.into_iter().collect()
    }

    #[test]
    fn a_failure_is_retried_by_its_own_condition_alone() {
        use RetryCondition::{Connect, Reset, Timeout};
        let failures = [
            (Failure::ConnectFailed, Some(Connect)),
            (Failure::ConnectTimeout, Some(Connect)),
            (Failure::TlsFailed, Some(Connect)),
            (Failure::UpstreamClosed, Some(Reset)),
            (Failure::UpstreamInvalid, Some(Reset)),
            (Failure::ResponseTimeout, Some(Timeout)),
            (Failure::NoEndpoint, None),
            (Failure::UpstreamOverloaded, None),
            (Failure::RequestTimeout, None),
            (Failure::BodyTooLarge, None),
            (Failure::BadRequest(""), None),
        ];
        for (failure, own) in failures {
            for written in [Connect, Reset, Timeout] {
                let holds = own.as_ref() == Some(&written);
                assert_eq!(
                    conditions([written]).hold_for_failure(&failure),
                    holds,
                    "{failure:?}"
                );
            }
        }
    }

    #[test]
    fn a_response_is_retried_by_its_status_or_the_status_of_a_call() {
        let on = |written: RetryCondition, status: u16, call: Option<u8>| {
            let call = call.map(|code| {
                (
                    http::HeaderName::from_static("grpc-status"),
                    HeaderValue::from(u16::from(code)),
                )
            });
            conditions([written]).hold_for_response(
                StatusCode::from_u16(status).unwrap(),
                &HeaderMap::from_iter(call),
            )
        };
        let status = |text| RetryCondition::Status(StatusRange::parse(text).unwrap());
        let unavailable = || RetryCondition::Call(GrpcStatus::Unavailable);
        assert!(on(status("503"), 503, None) && on(status("5xx"), 599, None));
        assert!(!on(status("503"), 502, None) && !on(status("5xx"), 404, None));
        assert!(on(unavailable(), 200, Some(14)));
        assert!(
            !on(unavailable(), 200, Some(0))
                && !on(unavailable(), 200, None)
                && !on(unavailable(), 503, None)
        );
        assert!(!on(RetryCondition::Connect, 503, Some(14)));
    }

    #[test]
    fn a_wait_is_asked_for_in_seconds() {
        let asked = |text| {
            asked_wait(&HeaderMap::from_iter([(
                RETRY_AFTER,
                HeaderValue::from_static(text),
            )]))
        };
        assert_eq!(
            [asked("0"), asked(" 12 ")],
            [0, 12].map(|seconds| Some(Duration::from_secs(seconds)))
        );
        assert_eq!(
            asked("99999999999999999999999"),
            Some(Duration::from_secs(u64::MAX))
        );
        let date = httpdate::fmt_http_date(
            UNIX_EPOCH + Duration::from_micros(clock::unix_micros()) + Duration::from_secs(3600),
        );
        let left = asked_wait(&HeaderMap::from_iter([(
            RETRY_AFTER,
            date.parse().unwrap(),
        )]))
        .unwrap();
        assert!((3500..=3600).contains(&left.as_secs()), "{left:?}");
        assert_eq!(asked("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        for text in ["", "-1", "+1", "1.5", "Wed, 21 Oct"] {
            assert_eq!(asked(text), None, "{text}");
        }
    }
}
