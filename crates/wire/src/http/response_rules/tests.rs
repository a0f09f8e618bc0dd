use bytes::Bytes;
use http::HeaderValue;

use super::*;

/// The Content-Length and the size of the content of a response to a HEAD or GET with this status.
fn prepared(
    to_head: bool,
    status: u16,
    length: Option<&'static str>,
    content: &'static str,
) -> (Option<u64>, u64) {
    let mut response = Response::new(Body::from(Bytes::from_static(content.as_bytes())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    if let Some(length) = length {
        response
            .headers_mut()
            .insert(CONTENT_LENGTH, HeaderValue::from_static(length));
    }
    prepare(&mut response, to_head);
    let length = response
        .headers()
        .get(CONTENT_LENGTH)
        .map(|length| length.to_str().unwrap().parse().unwrap());
    (length, response.body().size_hint().exact().unwrap())
}

#[test]
fn a_response_has_the_length_of_its_content() {
    assert_eq!(prepared(false, 200, None, "abc"), (Some(3), 3));
    assert_eq!(prepared(false, 200, Some("5"), "abc"), (Some(3), 3));
    assert_eq!(prepared(true, 200, None, "abc"), (Some(3), 0));
    assert_eq!(prepared(true, 200, Some("5"), ""), (Some(5), 0));
    assert_eq!(prepared(true, 200, None, ""), (None, 0));
    assert_eq!(prepared(false, 304, Some("5"), ""), (Some(5), 0));
    assert_eq!(prepared(false, 304, None, "abc"), (None, 0));
    for to_head in [false, true] {
        assert_eq!(prepared(to_head, 204, Some("5"), "abc"), (None, 0));
        assert_eq!(prepared(to_head, 103, Some("5"), "abc"), (None, 0));
    }
}

#[test]
fn fields_for_one_connection_are_removed() {
    let mut response = Response::new(Body::empty());
    for name in [
        "connection",
        "keep-alive",
        "te",
        "transfer-encoding",
        "upgrade",
        "proxy-connection",
        "x-own",
    ] {
        response
            .headers_mut()
            .append(HeaderName::from_static(name), HeaderValue::from_static("x"));
        response
            .headers_mut()
            .append(HeaderName::from_static(name), HeaderValue::from_static("y"));
    }
    prepare(&mut response, true);
    assert_eq!(response.headers().keys().collect::<Vec<_>>(), ["x-own"]);
}
