//! Removes, sets and adds header fields of requests on their way to the action.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderName, Response};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::Body;
use crate::error::Failure;
use crate::gateway::answer::rendered::RenderedFields;
use crate::gateway::client_fields;
use crate::gateway::exchange::Exchange;
use crate::identity::credential::CredentialPlace;
use crate::identity::route::remove_credentials;
use crate::proxy::message::headers;
use crate::route::fields::FieldChanges;

/// Changes the fields of requests, if there is anything to change. Optional in itself: its future
/// is that of the service inside, where an `Either` would wrap it once more.
#[derive(Clone)]
pub struct RequestFieldsLayer(pub Option<Arc<RequestChanges>>);

/// The changes of requests.
pub struct RequestChanges {
    pub fields: Arc<FieldChanges>,
    /// The credentials that go no further.
    pub credentials: Arc<[CredentialPlace]>,
    /// The fields that no trailer may have, since servers may take it for a credential.
    pub credential_fields: Vec<HeaderName>,
    /// The fields that authenticators of other routes set, which no client can.
    pub own_fields: Vec<HeaderName>,
}

/// A service that gets requests with other fields.
#[derive(Clone)]
pub struct RequestFields<S> {
    inner: S,
    changes: Option<Arc<RequestChanges>>,
}

impl<S> Layer<S> for RequestFieldsLayer {
    type Service = RequestFields<S>;

    fn layer(&self, inner: S) -> RequestFields<S> {
        RequestFields {
            inner,
            changes: self.0.clone(),
        }
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
            // First, or a variable such as {uri} would have them.
            remove_credentials(&changes.credentials, exchange.request);
            if !changes.own_fields.is_empty() {
                client_fields::remove(exchange.request, &changes.own_fields);
            }
            let fields = RenderedFields::new(&changes.fields, |template| exchange.render(template));
            client_fields::remove_trailers(exchange.request, &changes.credential_fields);
            // First, or a field that the route sets would pass for a client's claim later.
            if !exchange.has_own_fields {
                headers::strip_claims(
                    exchange.request.headers_mut(),
                    exchange.context.origin.peer_trusted,
                );
                exchange.has_own_fields = true;
            }
            fields.apply_to_request(exchange.request);
        }
        self.inner.call(exchange)
    }
}
