//! Limits before any service that takes `http::Request`, such as a router of axum.

use std::net::IpAddr;
use std::ops::ControlFlow;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response};

use crate::layer::limited_request::{Admitted, LimitedRequest};
use crate::limit::key::Facts;
use crate::limit::key::host;
use crate::limit::on_limit::Degrade;
use crate::request::denial::Denial;
use crate::request::headers::RateLimitFields;
use crate::request::permit::Permit;
use crate::request::permit_body::PermitBody;

/// The field that a request's id is read from, for the problem of a denied one.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

impl<B, A, E> LimitedRequest<Response<A>, E> for Request<B>
where
    B: http_body::Body,
    A: http_body::Body<Data = Bytes> + From<Bytes>,
{
    type Response = Response<PermitBody<A>>;
    type Kept = (RateLimitFields, Permit);

    fn with_facts<T>(&self, read: impl FnOnce(&Facts<'_>) -> T) -> T {
        let host = host::of(self.uri(), self.headers());
        read(&Facts {
            method: self.method(),
            uri: self.uri(),
            headers: self.headers(),
            body_length: self.body().size_hint().exact(),
            client_ip: client_ip(self),
            host: &host,
            route: route(self),
            param: &|_| None,
        })
    }

    fn admit(&mut self, admitted: Admitted) -> ControlFlow<Result<Self::Response, E>, Self::Kept> {
        let Admitted { fields, mut permit, degraded } = admitted;
        if let Some(Degrade::Respond(fixed)) = degraded {
            let response: Response<PermitBody<A>> = fixed.response();
            permit.answered(response.headers());
            permit.ended(true);
            return ControlFlow::Break(Ok(told(response, fields)));
        }
        permit.prepare(self.headers_mut());
        ControlFlow::Continue((fields, permit))
    }

    fn refuse(self, denial: Denial, fields: RateLimitFields) -> Result<Self::Response, E> {
        let request_id = self.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
        Ok(told(denial.respond(HeaderMap::new(), request_id), fields))
    }

    fn finish((fields, mut permit): Self::Kept, answer: Response<A>) -> Self::Response {
        permit.answered(answer.headers());
        told(answer.map(|body| PermitBody::new(body, permit)), fields)
    }
}

fn told<B>(mut response: Response<B>, fields: RateLimitFields) -> Response<B> {
    fields.apply(response.headers_mut());
    response
}

#[cfg(feature = "axum")]
fn client_ip<B>(request: &Request<B>) -> Option<IpAddr> {
    use axum::extract::ConnectInfo;
    request.extensions().get::<ConnectInfo<std::net::SocketAddr>>().map(|info| info.0.ip())
}

#[cfg(not(feature = "axum"))]
fn client_ip<B>(_: &Request<B>) -> Option<IpAddr> {
    None
}

#[cfg(feature = "axum")]
fn route<B>(request: &Request<B>) -> &str {
    use axum::extract::MatchedPath;
    request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn route<B>(_: &Request<B>) -> &str {
    ""
}
