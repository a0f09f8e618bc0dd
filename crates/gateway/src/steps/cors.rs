//! Lets pages of other origins read a route's answers (CORS,
//! <https://fetch.spec.whatwg.org/#http-cors-protocol>).
//!
//! Guarantees that a preflight is answered here and charged to no limit, that every answer to a
//! page carries the fields, also denials and failures of the gateway, and that the upstream's own
//! fields never say anything else.

use std::sync::Arc;

use http::header::{ORIGIN, RETRY_AFTER};
use http::{HeaderMap, HeaderName, Method, Response};
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};

use crate::answer::cors::{ANSWER_FIELDS, CorsFields, preflight_method};
use crate::exchange::Exchange;
use tollgate_spec::route::cors::CorsSpec;
use tollgate_wire::body::Body;
use tollgate_wire::http::request_id::REQUEST_ID;

/// Lets pages of other origins read the answers of a route.
pub struct CrossOrigin {
    layer: CorsLayer,
    /// The fields of each answer that no page asked for.
    for_no_page: Arc<CorsFields>,
    /// The fields that only this gateway says.
    own: Arc<[HeaderName]>,
}

impl CrossOrigin {
    /// The pages of `spec` for a route that takes `methods`; none: any.
    pub fn new(spec: &Arc<CorsSpec>, methods: &[Method]) -> Self {
        let mut exposed = vec![
            HeaderName::from_static("ratelimit"),
            HeaderName::from_static("ratelimit-policy"),
            RETRY_AFTER,
            REQUEST_ID,
        ];
        exposed.extend(spec.expose.iter().cloned());
        // An answer that is the same for every origin may be kept by caches for all of them.
        let same_for_all = spec.is_open() && !spec.credentials;
        let origin = if same_for_all {
            AllowOrigin::any()
        } else {
            let spec = spec.clone();
            AllowOrigin::predicate(move |origin, _| spec.allows(origin.as_bytes()))
        };
        let methods = match &spec.methods {
            Some(methods) => AllowMethods::list(methods.iter().cloned()),
            None if methods.is_empty() => AllowMethods::mirror_request(),
            None => AllowMethods::list(methods.iter().cloned()),
        };
        let headers = match &spec.headers {
            Some(headers) => AllowHeaders::list(headers.iter().cloned()),
            None => AllowHeaders::mirror_request(),
        };
        // Answers that differ from origin to origin say so to caches.
        let vary = if same_for_all {
            Vec::new()
        } else {
            vec![ORIGIN]
        };
        let layer = CorsLayer::new()
            .allow_origin(origin)
            .allow_methods(methods)
            .allow_headers(headers)
            .expose_headers(exposed)
            .allow_credentials(spec.credentials)
            .max_age(spec.max_age)
            .vary(vary);
        let for_no_page = Arc::new(CorsFields::new(&layer, Method::GET, &HeaderMap::new()));
        Self {
            layer,
            for_no_page,
            own: Arc::new(ANSWER_FIELDS),
        }
    }

    /// Prepares the fields of the answer to a page. Returns the answer to a preflight.
    pub fn check(&self, exchange: &mut Exchange<'_>) -> Option<Response<Body>> {
        if !exchange.is_preflight && preflight_method(exchange.request).is_some() {
            // A preflight asks for a method that another route takes: only that route may let it.
            return None;
        }
        exchange.interim.withhold(self.own.clone());
        let headers = exchange.request.headers();
        let fields = |method| Arc::new(CorsFields::new(&self.layer, method, headers));
        exchange.answer.cors = Some(if exchange.is_preflight {
            fields(Method::OPTIONS)
        } else if headers.contains_key(ORIGIN) {
            fields(Method::GET)
        } else {
            self.for_no_page.clone()
        });
        if !exchange.is_preflight {
            return None;
        }
        Some(exchange.context.with_id(Response::new(Body::empty())))
    }
}
