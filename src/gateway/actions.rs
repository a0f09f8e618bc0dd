//! What the gateway answers by itself on a route's behalf: fixed responses and the echo.

use std::collections::BTreeMap;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use serde::Serialize;

use super::route::Respond;
use crate::body::Body;
use crate::proxy::forwarded::Origin;

/// The echo's answer: the request as the gateway saw it.
#[derive(Serialize)]
struct Echo<'a> {
    method: &'a str,
    host: &'a str,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<&'a str>,
    route: &'a str,
    client: String,
    request_id: &'a str,
    headers: BTreeMap<&'a str, Vec<&'a str>>,
}

/// A route's fixed answer.
pub fn respond(fixed: &Respond) -> Response<Body> {
    let mut response = Response::new(Body::from(fixed.body.clone()));
    *response.status_mut() = fixed.status;
    for (name, value) in &fixed.headers {
        response.headers_mut().append(name, value.clone());
    }
    response
}

/// A description of the request, as JSON. Its body is left alone.
pub fn echo(request: &Request<Body>, origin: &Origin, request_id: &HeaderValue, route: &str) -> Response<Body> {
    let mut headers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in request.headers() {
        headers.entry(name.as_str()).or_default().push(value.to_str().unwrap_or("(not text)"));
    }
    let host = request.uri().authority().map(http::uri::Authority::as_str);
    let echo = Echo {
        method: request.method().as_str(),
        host: host.or_else(|| headers.get("host")?.first().copied()).unwrap_or_default(),
        path: request.uri().path(),
        query: request.uri().query(),
        route,
        client: origin.client_ip.to_string(),
        request_id: request_id.to_str().unwrap_or_default(),
        headers: headers.clone(),
    };
    let mut text = serde_json::to_vec_pretty(&echo).unwrap_or_default();
    text.push(b'\n');
    let mut response = Response::new(Body::from(bytes::Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
