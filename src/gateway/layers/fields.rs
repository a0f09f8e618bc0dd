//! Removes, sets and adds header fields: of requests on their way to the action, and of answers, whoever they come from.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::Response;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::Body;
use crate::error::Failure;
use crate::gateway::exchange::Exchange;
use crate::gateway::fields::rendered::RenderedFields;
use crate::route::fields::FieldChanges;

/// Changes the fields of requests, if there is anything to change. Optional in itself: its future is that of the service
/// inside, where an `Either` would wrap it once more.
#[derive(Clone)]
pub struct RequestFieldsLayer(pub Option<Arc<FieldChanges>>);

/// Changes the fields of answers.
#[derive(Clone)]
pub struct ResponseFieldsLayer(pub Arc<FieldChanges>);

/// A service that gets requests with other fields.
#[derive(Clone)]
pub struct RequestFields<S> {
    inner: S,
    changes: Option<Arc<FieldChanges>>,
}

/// A service whose answers get other fields.
#[derive(Clone)]
pub struct ResponseFields<S> {
    inner: S,
    changes: Arc<FieldChanges>,
}

impl<S> Layer<S> for RequestFieldsLayer {
    type Service = RequestFields<S>;

    fn layer(&self, inner: S) -> RequestFields<S> {
        RequestFields { inner, changes: self.0.clone() }
    }
}

impl<S> Layer<S> for ResponseFieldsLayer {
    type Service = ResponseFields<S>;

    fn layer(&self, inner: S) -> ResponseFields<S> {
        ResponseFields { inner, changes: self.0.clone() }
    }
}

impl<'a, 'g, S> Service<&'a mut Exchange<'g>> for RequestFields<S>
where
    S: Service<&'a mut Exchange<'g>, Response = Response<Body>, Error = Failure>,
{
    type Response = Response<Body>;
    type Error = Failure;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, exchange: &'a mut Exchange<'g>) -> S::Future {
        if let Some(changes) = &self.changes {
            let fields = RenderedFields::new(changes, |template| exchange.render(template));
            fields.apply_to_request(exchange.request.headers_mut());
        }
        self.inner.call(exchange)
    }
}

impl<'a, 'g, S> Service<&'a mut Exchange<'g>> for ResponseFields<S>
where
    S: Service<&'a mut Exchange<'g>, Response = Response<Body>, Error = Failure>,
{
    type Response = Response<Body>;
    type Error = Failure;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, exchange: &'a mut Exchange<'g>) -> S::Future {
        // Now: the request is gone when its answer comes.
        let changed = RenderedFields::new(&self.changes, |template| exchange.render(template));
        exchange.fields.changed = Some(Box::new(changed));
        self.inner.call(exchange)
    }
}
