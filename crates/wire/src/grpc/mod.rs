//! gRPC over HTTP: recognises a call, reads its deadline, and words the gateway's own answers as
//! gRPC statuses.
//!
//! Guarantees that a client of gRPC never has to read an HTTP status of ours: each refusal and
//! failure is a `grpc-status`, with the time to come back where there is one.

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
    if *request.method() != Method::POST {
        return false;
    }
    match request.headers().get(CONTENT_TYPE) {
        Some(value) => is_grpc_content(value.as_bytes()),
        None => false,
    }
}

fn is_grpc_content(media_type: &[u8]) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let Some((start, rest)) = media_type.split_at_checked(GRPC.len()) else {
        return false;
    };
    start.eq_ignore_ascii_case(GRPC) && matches!(rest, [] | [b'+' | b';', ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_a_post_of_grpc_content() {
        for media_type in [
            "application/grpc",
            "application/grpc+proto",
            "Application/GRPC+json",
            "application/grpc;v=1",
        ] {
            assert!(is_call(&request(Method::POST, media_type)), "{media_type}");
            assert!(!is_call(&request(Method::GET, media_type)), "{media_type}");
        }
        for media_type in [
            "application/grpc-web",
            "application/grpc-web+proto",
            "application/json",
            "grpc",
            "",
        ] {
            assert!(!is_call(&request(Method::POST, media_type)), "{media_type}");
        }
        assert!(!is_call(&Request::post("/").body(()).unwrap()));
    }

    fn request(method: Method, media_type: &str) -> Request<()> {
        let request = Request::builder().method(method);
        request.header(CONTENT_TYPE, media_type).body(()).unwrap()
    }
}
