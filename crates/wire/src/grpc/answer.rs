//! An answer of the gateway's own to a call: a status without messages, in the header section
//! ("Trailers-Only" in gRPC's specification of its use of HTTP/2).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use super::details;
use super::status::GrpcStatus;

pub const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// The time before clients with a retry policy try again, in milliseconds.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Bytes of a `grpc-message` that are encoded: all but the bytes from space to `~`, and `%` itself.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// A refusal of a call by the gateway.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    pub status: GrpcStatus,
    pub message: &'a str,
    /// Seconds before the client may try again.
    pub retry_after_secs: Option<u64>,
    /// The limits that are used up.
    pub violated: &'a [Arc<str>],
}

/// The answer, with its fields added to `headers`.
pub fn answer<B: From<Bytes>>(refusal: &Refusal<'_>, mut headers: HeaderMap) -> Response<B> {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    write_status(&mut headers, refusal.status, refusal.message);
    if let Some(seconds) = refusal.retry_after_secs {
        headers.insert(PUSHBACK, HeaderValue::from(seconds.saturating_mul(1000)));
        let details = details::encode(
            refusal.status.code(),
            refusal.message,
            seconds,
            refusal.violated,
        );
        if let Ok(details) = HeaderValue::try_from(STANDARD_NO_PAD.encode(details)) {
            headers.insert(DETAILS, details);
        }
    }
    let mut response = Response::new(B::from(Bytes::new()));
    *response.headers_mut() = headers;
    response
}

/// Adds a status and its message, to a header section or to trailers.
pub fn write_status(fields: &mut HeaderMap, status: GrpcStatus, message: &str) {
    fields.insert(GRPC_STATUS, HeaderValue::from(u16::from(status.code())));
    if let Ok(message) =
        HeaderValue::try_from(percent_encode(message.as_bytes(), ENCODED).to_string())
    {
        fields.insert(GRPC_MESSAGE, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_status_without_content() {
        let refusal = Refusal {
            status: GrpcStatus::ResourceExhausted,
            message: "100 % used",
            retry_after_secs: Some(2),
            violated: &[],
        };
        let response: Response<Bytes> = answer(&refusal, HeaderMap::new());
        assert_eq!(
            (response.status().as_u16(), response.body().len()),
            (200, 0)
        );
        let fields = response.headers();
        assert_eq!(fields["content-type"], "application/grpc");
        assert_eq!(fields["grpc-status"], "8");
        assert_eq!(fields["grpc-message"], "100 %25 used");
        assert_eq!(fields["grpc-retry-pushback-ms"], "2000");
        let details = fields["grpc-status-details-bin"].as_bytes();
        assert!(STANDARD_NO_PAD.decode(details).is_ok());
    }

    #[test]
    fn a_message_holds_no_byte_that_a_field_may_not() {
        let mut fields = HeaderMap::new();
        write_status(&mut fields, GrpcStatus::Internal, "a\r\nb: caf\u{e9}\0");
        assert_eq!(fields[GRPC_MESSAGE], "a%0D%0Ab: caf%C3%A9%00");
    }
}
