//! `grpc-status-details-bin`: the error model of gRPC, by which client libraries learn when to try
//! again.
//!
//! The messages come from `google/rpc/status.proto` and `google/rpc/error_details.proto`, as far as
//! they are used.

use std::sync::Arc;

use prost::Message;

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct StatusMessage {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<AnyMessage>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct AnyMessage {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<DurationMessage>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
struct DurationMessage {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// `google.rpc.QuotaFailure`.
#[derive(Clone, PartialEq, Message)]
struct QuotaFailure {
    #[prost(message, repeated, tag = "1")]
    violations: Vec<QuotaViolation>,
}

/// `google.rpc.QuotaFailure.Violation`.
#[derive(Clone, PartialEq, Message)]
struct QuotaViolation {
    #[prost(string, tag = "1")]
    subject: String,
    #[prost(string, tag = "2")]
    description: String,
}

/// The encoded `google.rpc.Status` of a refusal that may be tried again after `retry_after_secs`.
pub fn encode(code: u8, message: &str, retry_after_secs: u64, violated: &[Arc<str>]) -> Vec<u8> {
    let seconds = i64::try_from(retry_after_secs).unwrap_or(i64::MAX);
    let retry = RetryInfo {
        retry_delay: Some(DurationMessage { seconds, nanos: 0 }),
    };
    let mut details = vec![any("google.rpc.RetryInfo", &retry)];
    if !violated.is_empty() {
        let mut violations = Vec::new();
        for limit in violated {
            violations.push(QuotaViolation {
                subject: limit.to_string(),
                description: message.to_owned(),
            });
        }
        details.push(any("google.rpc.QuotaFailure", &QuotaFailure { violations }));
    }
    StatusMessage {
        code: code.into(),
        message: message.to_owned(),
        details,
    }
    .encode_to_vec()
}

fn any(name: &str, message: &impl Message) -> AnyMessage {
    AnyMessage {
        type_url: format!("type.googleapis.com/{name}"),
        value: message.encode_to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_when_to_try_again_and_which_limits_are_used_up() {
        let status =
            StatusMessage::decode(&*encode(8, "used up", 3, &["per-client".into()])).unwrap();
        assert_eq!((status.code, &*status.message), (8, "used up"));
        let urls: Vec<_> = status.details.iter().map(|any| &*any.type_url).collect();
        assert_eq!(
            urls,
            [
                "type.googleapis.com/google.rpc.RetryInfo",
                "type.googleapis.com/google.rpc.QuotaFailure"
            ]
        );
        let retry = RetryInfo::decode(&*status.details[0].value).unwrap();
        assert_eq!(
            retry.retry_delay,
            Some(DurationMessage {
                seconds: 3,
                nanos: 0
            })
        );
        let quota = QuotaFailure::decode(&*status.details[1].value).unwrap();
        assert_eq!(quota.violations[0].subject, "per-client");
    }
}
