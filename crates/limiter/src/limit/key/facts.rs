//! The facts of a request that keys, costs and plans are made of, whatever type the request has.

use std::net::IpAddr;

use http::{Extensions, HeaderMap, Method, Request, Uri};

use crate::limit::key::client_certificate::ClientCertificate;
use crate::limit::key::client_identity::CallerIdentity;
use crate::limit::key::host::RequestHost;

/// The facts of a request that a key can be made of.
///
/// ```
/// use http::Request;
/// use tollgate_limiter::limit::key::Facts;
///
/// let request = Request::get("https://Acme.example.com/orders").body(())?;
/// let facts = Facts { route: "orders", ..Facts::from_request(&request) };
/// assert_eq!(facts.host.find(), "acme.example.com");
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    pub method: &'a Method,
    pub uri: &'a Uri,
    pub headers: &'a HeaderMap,
    /// The values that layers outside put into the request.
    pub extensions: Option<&'a Extensions>,
    /// Bytes of the body. `None`: not known before it has been read.
    pub body_length: Option<u64>,
    /// `None` where the transport has no addresses.
    pub client_ip: Option<IpAddr>,
    /// `None`: the client has not authenticated itself by one.
    pub client_certificate: Option<&'a ClientCertificate>,
    /// `None`: no authenticator has found one.
    pub client_identity: Option<&'a CallerIdentity>,
    pub host: RequestHost<'a>,
    /// The route's name.
    pub route: &'a str,
    /// Looks up a path parameter.
    pub param: &'a dyn Fn(&str) -> Option<&'a str>,
}

impl<'a> Facts<'a> {
    /// The facts that the head of a request and its extensions tell: no client's address, no length
    /// of the body, no route.
    #[inline]
    pub fn from_request<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: Some(request.extensions()),
            body_length: None,
            client_ip: None,
            client_certificate: request.extensions().get(),
            client_identity: request.extensions().get(),
            host: RequestHost::Of(request.uri(), request.headers()),
            route: "",
            param: &|_| None,
        }
    }
}
