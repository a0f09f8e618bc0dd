//! Whether an attempt is followed by another. `policy` is what an operator writes, and `back_off`
//! has the pauses between attempts.

pub mod back_off;
mod policy;

use std::time::{Duration, UNIX_EPOCH};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
pub use policy::{GrpcStatus, RetryCondition, RetryConditions, RetryPolicy};

use tollgate_limiter::clock;
use tollgate_wire::error::Failure;
use tollgate_wire::grpc::GRPC_STATUS;

/// Whether an attempt that failed so is followed by another.
pub fn follows_failure(conditions: &RetryConditions, failure: &Failure) -> bool {
    match failure {
        Failure::ConnectFailed | Failure::ConnectTimeout | Failure::TlsFailed => conditions.connect,
        Failure::UpstreamClosed | Failure::UpstreamInvalid => conditions.reset,
        Failure::ResponseTimeout => conditions.timeout,
        _ => false,
    }
}

/// Whether an attempt that brought this response is followed by another. A call says in its header
/// section how it ended if it has no messages: messages are the client's already.
pub fn follows_response(
    conditions: &RetryConditions,
    status: StatusCode,
    headers: &HeaderMap,
) -> bool {
    if let Some(statuses) = &conditions.statuses
        && statuses.contains(status)
    {
        return true;
    }
    if conditions.calls.is_empty() {
        return false;
    }
    match headers.get(GRPC_STATUS) {
        Some(value) => conditions.calls.contains(&GrpcStatus::read(value)),
        None => false,
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
    use tollgate_limiter::limit::status_set::StatusRange;

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
                let follows = follows_failure(&conditions([written]), &failure);
                assert_eq!(follows, holds, "{failure:?}");
            }
        }
    }

    #[test]
    fn a_response_is_retried_by_its_status_or_the_status_of_a_call() {
        fn status(text: &str) -> RetryCondition {
            RetryCondition::Status(StatusRange::parse(text).unwrap())
        }
        let unavailable = RetryCondition::Call(GrpcStatus::Unavailable);
        for (written, status, call, follows) in [
            (status("503"), 503, None, true),
            (status("5xx"), 599, None, true),
            (status("503"), 502, None, false),
            (status("5xx"), 404, None, false),
            (unavailable.clone(), 200, Some("14"), true),
            (unavailable.clone(), 200, Some("0"), false),
            (unavailable.clone(), 200, None, false),
            (unavailable, 503, None, false),
            (RetryCondition::Connect, 503, Some("14"), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(call) = call {
                headers.insert("grpc-status", HeaderValue::from_static(call));
            }
            let status = StatusCode::from_u16(status).unwrap();
            let found = follows_response(&conditions([written]), status, &headers);
            assert_eq!(found, follows, "{status} {call:?}");
        }
    }

    #[test]
    fn a_wait_is_asked_for_in_seconds() {
        fn asked(text: &str) -> Option<Duration> {
            let value = HeaderValue::from_str(text).unwrap();
            asked_wait(&HeaderMap::from_iter([(RETRY_AFTER, value)]))
        }
        assert_eq!(asked("0"), Some(Duration::ZERO));
        assert_eq!(asked(" 12 "), Some(Duration::from_secs(12)));
        assert_eq!(
            asked("99999999999999999999999"),
            Some(Duration::from_secs(u64::MAX))
        );
        let date = httpdate::fmt_http_date(
            UNIX_EPOCH + Duration::from_micros(clock::unix_micros()) + Duration::from_secs(3600),
        );
        let left = asked(&date).unwrap();
        assert!((3500..=3600).contains(&left.as_secs()), "{left:?}");
        assert_eq!(asked("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        for text in ["", "-1", "+1", "1.5", "Wed, 21 Oct"] {
            assert_eq!(asked(text), None, "{text}");
        }
    }
}
