//! Limits before any service that takes `http::Request`, such as a router of axum.

use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::sync::Once;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};

use crate::layer::limited_request::{Admitted, LimitedRequest};
use crate::limit::client_address::TrustedProxies;
use crate::limit::key::Facts;
use crate::limit::on_limit::Degrade;
use crate::request::denial::{self, Denial};
use crate::request::headers::RateLimitFields;
use crate::request::permit::Permit;
use crate::request::permit_body::PermitBody;
use crate::request::request_id::{self, REQUEST_ID};

impl<B, A, E> LimitedRequest<Response<A>, E> for Request<B>
where
    B: http_body::Body,
    A: http_body::Body<Data = Bytes> + From<Bytes>,
{
    type Response = Response<PermitBody<A>>;
    type Kept = (RateLimitFields, Permit);
    type Immediate = Response<PermitBody<A>>;

    fn with_facts<T>(
        &self,
        trusted: Option<&TrustedProxies>,
        read: impl FnOnce(&Facts<'_>) -> T,
    ) -> T {
        let client_ip = peer_ip(self).map(|peer| match trusted {
            Some(trusted) => trusted.client_address(self.headers(), peer),
            None => peer,
        });
        read(&Facts {
            body_length: self.body().size_hint().exact(),
            client_ip,
            route: route(self),
            ..Facts::from_request(self)
        })
    }

    fn admit(&mut self, admitted: Admitted) -> ControlFlow<Self::Immediate, Self::Kept> {
        let Admitted {
            fields,
            mut permit,
            degraded,
        } = admitted;
        if let Some(Degrade::Respond(fixed)) = degraded {
            let response: Response<PermitBody<A>> = fixed.response();
            permit.answered(response.status(), response.headers());
            permit.ended(true);
            return ControlFlow::Break(with_id(told(response, fields), request_id(self)));
        }
        permit.prepare(self.headers_mut());
        ControlFlow::Continue((fields, permit))
    }

    fn refuse(self, denial: Denial, fields: RateLimitFields) -> Self::Immediate {
        if let Denial::NoClientAddress { limit, .. } = &denial {
            static TOLD: Once = Once::new();
            TOLD.call_once(|| tracing::error!(%limit, "{}", denial::NO_CLIENT_ADDRESS));
        }
        let id = request_id(&self);
        let problem_id = id.as_ref().and_then(|id| id.to_str().ok());
        with_id(
            told(denial.respond(HeaderMap::new(), problem_id), fields),
            id,
        )
    }

    fn answer(response: Self::Immediate) -> Result<Self::Response, E> {
        Ok(response)
    }

    fn finish(kept: Self::Kept, answer: Response<A>) -> Self::Response {
        let (fields, mut permit) = kept;
        permit.answered(answer.status(), answer.headers());
        told(answer.map(|body| PermitBody::new(body, permit)), fields)
    }
}

/// The id that the request came with, if it is a fit one.
fn request_id<B>(request: &Request<B>) -> Option<HeaderValue> {
    request
        .headers()
        .get(REQUEST_ID)
        .and_then(request_id::accept)
}

/// An answer that the service has no part in tells the request's id.
fn with_id<B>(mut response: Response<B>, id: Option<HeaderValue>) -> Response<B> {
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

fn told<B>(mut response: Response<B>, fields: RateLimitFields) -> Response<B> {
    fields.apply(response.headers_mut());
    response
}

/// From axum's `ConnectInfo`, or a [`SocketAddr`] among the extensions, for servers of other kinds.
fn peer_ip<B>(request: &Request<B>) -> Option<IpAddr> {
    let told = request.extensions().get::<SocketAddr>().copied();
    #[cfg(feature = "axum")]
    let told = request
        .extensions()
        .get::<axum::extract::ConnectInfo<SocketAddr>>()
        .map(|info| info.0)
        .or(told);
    told.map(|peer| peer.ip())
}

#[cfg(feature = "axum")]
fn route<B>(request: &Request<B>) -> &str {
    use axum::extract::MatchedPath;
    request
        .extensions()
        .get::<MatchedPath>()
        .map_or("", MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn route<B>(_: &Request<B>) -> &str {
    ""
}
