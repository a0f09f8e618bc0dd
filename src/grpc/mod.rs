//! gRPC over HTTP: recognises a call, reads its deadline, and words the gateway's own answers as
//! gRPC statuses.
//!
//! Guarantees that a client of gRPC never has to read an HTTP status of ours: what the gateway
//! refuses or fails is a `grpc-status`, with the time to come back where there is one.

mod answer;
mod deadline;
mod details;
mod status;

pub use answer::{GRPC_STATUS, Refusal, answer};
pub use deadline::{CallDeadline, cut_body};
pub use status::GrpcStatus;

use http::header::CONTENT_TYPE;
use http::{Method, Request};

/// Whether `request` is a call of gRPC: a POST whose content is `application/grpc`, with or without
/// a suffix for the message's encoding (`+proto`). gRPC-Web has another form and is not meant.
pub fn is_call<B>(request: &Request<B>) -> bool {
    *request.method() == Method::POST
        && request
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|value| is_grpc_content(value.as_bytes()))
}

fn is_grpc_content(media_type: &[u8]) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let (Some(start), rest) = (media_type.get(..GRPC.len()), media_type.get(GRPC.len())) else {
        return false;
    };
    start.eq_ignore_ascii_case(GRPC) && matches!(rest, None | Some(b'+' | b';'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_a_post_of_grpc_content() {
        let call = |method: &str, media_type: &str| {
            is_call(
                &Request::builder()
                    .method(method)
                    .header(CONTENT_TYPE, media_type)
                    .body(())
                    .unwrap(),
            )
        };
        for media_type in [
            "application/grpc",
            "application/grpc+proto",
            "Application/GRPC+json",
            "application/grpc;v=1",
        ] {
            assert!(call("POST", media_type), "{media_type}");
            assert!(!call("GET", media_type), "{media_type}");
        }
        for media_type in [
            "application/grpc-web",
            "application/grpc-web+proto",
            "application/json",
            "grpc",
            "",
        ] {
            assert!(!call("POST", media_type), "{media_type}");
        }
        assert!(!is_call(&Request::post("/").body(()).unwrap()));
    }
}
