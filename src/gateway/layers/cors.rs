//! Lets pages of other origins read a route's answers (CORS,
//! <https://fetch.spec.whatwg.org/#http-cors-protocol>).
//!
//! Guarantees that a preflight is answered here and charged to no limit, that every answer to a
//! page carries the fields, also denials and failures of the gateway, and that the upstream's own
//! fields never say anything else.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::header::{ORIGIN, RETRY_AFTER};
use http::{HeaderName, Method, Response};
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::Body;
use crate::error::Failure;
use crate::gateway::answer::cors::{ANSWER_FIELDS, CorsFields, preflight_method};
use crate::gateway::exchange::Exchange;
use crate::http::request_id::REQUEST_ID;
use crate::route::cors::CorsSpec;

/// Lets pages of other origins read the answers of a service.
#[derive(Clone)]
pub struct CrossOriginLayer(Arc<CorsLayer>);

/// A service whose answers pages of other origins may read.
#[derive(Clone)]
pub struct CrossOrigin<S> {
    inner: S,
    cors: Arc<CorsLayer>,
}

/// The answer to a preflight, ready at once. Boxed: every future of a chain is moved with the room
/// for this one.
pub struct PreflightAnswer(Option<Box<Response<Body>>>);

impl CrossOriginLayer {
    /// The layer of a route that takes `methods`; none: any.
    pub fn new(spec: &Arc<CorsSpec>, methods: &[Method]) -> Self {
        let of_limits = ["ratelimit", "ratelimit-policy"].map(HeaderName::from_static);
        let exposed = of_limits
            .into_iter()
            .chain([RETRY_AFTER, REQUEST_ID])
            .chain(spec.expose.iter().cloned());
        // An answer that is the same for every origin may be kept by caches for all of them.
        let same_for_all = spec.is_open() && !spec.credentials;
        let origin = if same_for_all {
            AllowOrigin::any()
        } else {
            by_predicate(spec.clone())
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
        let cors = CorsLayer::new()
            .allow_origin(origin)
            .allow_methods(methods)
            .allow_headers(headers)
            .expose_headers(exposed.collect::<Vec<_>>())
            .allow_credentials(spec.credentials)
            .max_age(spec.max_age)
            .vary(if same_for_all {
                Vec::new()
            } else {
                vec![ORIGIN]
            });
        Self(Arc::new(cors))
    }
}

fn by_predicate(spec: Arc<CorsSpec>) -> AllowOrigin {
    AllowOrigin::predicate(move |origin, _| spec.allows(origin.as_bytes()))
}

impl<S> Layer<S> for CrossOriginLayer {
    type Service = CrossOrigin<S>;

    fn layer(&self, inner: S) -> CrossOrigin<S> {
        CrossOrigin {
            inner,
            cors: self.0.clone(),
        }
    }
}

impl<'a, 'g, S> Service<&'a mut Exchange<'g>> for CrossOrigin<S>
where
    S: Service<&'a mut Exchange<'g>, Response = Response<Body>, Error = Failure>,
{
    type Response = Response<Body>;
    type Error = Failure;
    type Future = Either<PreflightAnswer, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, exchange: &'a mut Exchange<'g>) -> Self::Future {
        if !exchange.is_preflight && preflight_method(exchange.request).is_some() {
            // It asks for what another route takes, and only that one may let it.
            return Either::Right(self.inner.call(exchange));
        }
        let method = if exchange.is_preflight {
            Method::OPTIONS
        } else {
            Method::GET
        };
        exchange.interim.withhold(&ANSWER_FIELDS);
        exchange.answer.cors = Some(Box::new(CorsFields::new(
            &self.cors,
            method,
            exchange.request.headers(),
        )));
        if exchange.is_preflight {
            let answer = exchange.context.with_id(Response::new(Body::empty()));
            return Either::Left(PreflightAnswer(Some(Box::new(answer))));
        }
        Either::Right(self.inner.call(exchange))
    }
}

impl Future for PreflightAnswer {
    type Output = Result<Response<Body>, Failure>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        self.0
            .take()
            .map_or(Poll::Pending, |answer| Poll::Ready(Ok(*answer)))
    }
}
