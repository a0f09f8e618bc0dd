//! What the gateway answers by itself on a route's behalf: the echo, and what it does for less.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use serde::Serialize;

use crate::body::Body;
use crate::proxy::message::forwarded::ClientOrigin;
use crate::route::{Action, Forward, HostPolicy, Rewrite};

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

/// How a request of the route is forwarded to another upstream than its own: as it would have been, or as it came.
pub fn forward_elsewhere<'a>(action: &'a Action, upstream: &Arc<str>) -> Cow<'a, Forward> {
    match action {
        Action::Forward(rule) => Cow::Borrowed(rule),
        Action::Respond(_) | Action::Echo => {
            Cow::Owned(Forward { upstream: upstream.clone(), rewrite: Rewrite::Keep, host: HostPolicy::Preserve })
        }
    }
}

/// A description of the request, as JSON. Its body is left alone.
pub fn echo(request: &Request<Body>, origin: &ClientOrigin, request_id: &HeaderValue, route: &str) -> Response<Body> {
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
