//! The status codes of gRPC that the gateway knows by name.

use http::HeaderValue;

/// A status of gRPC (<https://grpc.io/docs/guides/status-codes/>).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum GrpcStatus {
    Ok,
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

impl GrpcStatus {
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The number of the status, as it travels.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Reads the value of a `grpc-status` field. A number without a name is `Unknown`, as for
    /// clients.
    pub fn read(value: &HeaderValue) -> Self {
        if let Ok(text) = value.to_str()
            && let Ok(code) = text.parse::<usize>()
            && let Some(status) = Self::ALL.get(code)
        {
            *status
        } else {
            Self::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_is_read_by_its_number() {
        for (code, status) in GrpcStatus::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(status.code()), code);
            assert_eq!(GrpcStatus::read(&HeaderValue::from(code)), status);
        }
        for other in ["17", "-1", "", "x", "99999999999999999999"] {
            assert_eq!(
                GrpcStatus::read(&HeaderValue::from_static(other)),
                GrpcStatus::Unknown
            );
        }
    }
}
