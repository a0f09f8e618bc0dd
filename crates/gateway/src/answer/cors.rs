//! The fields by which an answer tells a browser what a page of another origin may do.

use std::convert::Infallible;

use futures_util::FutureExt as _;
use futures_util::future::ready;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
};
use http::{HeaderMap, HeaderName, Method, Request, Response};
use tower::service_fn;
use tower_http::cors::CorsLayer;
use tower_layer::Layer as _;
use tower_service::Service as _;

use tollgate_wire::body::Body;

/// The fields, but Vary.
pub const ANSWER_FIELDS: [HeaderName; 7] = [
    HeaderName::from_static("access-control-allow-private-network"),
    ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_ALLOW_CREDENTIALS,
    ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_HEADERS,
    ACCESS_CONTROL_EXPOSE_HEADERS,
    ACCESS_CONTROL_MAX_AGE,
];

/// The beginning of all their names.
const PREFIX: &str = "access-control-";

/// The fields of an answer to a page.
pub struct CorsFields(HeaderMap);

/// The method that a preflight asks for. `None`: an ordinary request.
#[inline]
pub fn preflight_method(request: &Request<Body>) -> Option<Method> {
    if *request.method() != Method::OPTIONS || !request.headers().contains_key(ORIGIN) {
        return None;
    }
    Method::from_bytes(
        request
            .headers()
            .get(ACCESS_CONTROL_REQUEST_METHOD)?
            .as_bytes(),
    )
    .ok()
}

impl CorsFields {
    /// The fields of the answer to a page's request: of a preflight, if `method` is OPTIONS.
    pub fn new(cors: &CorsLayer, method: Method, asked: &HeaderMap) -> Self {
        let mut request = Request::new(());
        *request.method_mut() = method;
        for name in [
            ORIGIN,
            ACCESS_CONTROL_REQUEST_METHOD,
            ACCESS_CONTROL_REQUEST_HEADERS,
        ] {
            if let Some(value) = asked.get(&name) {
                request.headers_mut().insert(name, value.clone());
            }
        }
        let empty = service_fn(|_| ready(Ok::<_, Infallible>(Response::new(()))));
        // Nothing in it waits.
        let answer = cors.layer(empty).call(request).now_or_never();
        let mut fields =
            answer.map_or_else(HeaderMap::new, |Ok(answer)| answer.into_parts().0.headers);
        if !fields.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
            ANSWER_FIELDS
                .iter()
                .for_each(|name| drop(fields.remove(name)));
        }
        Self(fields)
    }

    /// Puts the fields into an answer, in place of those of the upstream.
    pub fn apply(&self, headers: &mut HeaderMap) {
        // Nearly always there is none to look up.
        if headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
            for name in &ANSWER_FIELDS {
                headers.remove(name);
            }
        }
        for (name, value) in &self.0 {
            headers.append(name, value.clone());
        }
    }
}
