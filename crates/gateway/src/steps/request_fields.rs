//! Removes, sets and adds header fields of requests on their way to the action.

use std::sync::Arc;

use http::HeaderName;

use crate::answer::rendered::RenderedFields;
use crate::client_fields;
use crate::exchange::Exchange;
use tollgate_identity::credential::CredentialPlace;
use tollgate_identity::route::remove_credentials;
use tollgate_proxy::message::headers;
use tollgate_spec::route::fields::FieldChanges;

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

impl RequestChanges {
    /// Changes the request.
    pub fn apply(&self, exchange: &mut Exchange<'_>) {
        // Credentials go first, or a variable such as {uri} would have them.
        remove_credentials(&self.credentials, exchange.request);
        if !self.own_fields.is_empty() {
            client_fields::remove(exchange.request, &self.own_fields);
        }
        let fields = RenderedFields::new(&self.fields, |template| exchange.render(template));
        client_fields::remove_trailers(exchange.request, &self.credential_fields);
        // Claims go before the route's fields, which would pass for a client's claim later.
        if !exchange.has_own_fields {
            headers::strip_claims(
                exchange.request.headers_mut(),
                exchange.context.origin.peer_trusted,
            );
            exchange.has_own_fields = true;
        }
        fields.apply_to_request(exchange.request);
    }
}
