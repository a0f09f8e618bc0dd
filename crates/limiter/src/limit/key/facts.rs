//! The facts of a request that keys, costs and plans are made of, whatever type the request has.

use std::net::IpAddr;

use http::{Extensions, HeaderMap, Method, Uri};

use crate::limit::key::host::RequestHost;

/// The facts of a request that a key can be made of.
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
    pub host: RequestHost<'a>,
    /// The route's name.
    pub route: &'a str,
    /// Looks up a path parameter.
    pub param: &'a dyn Fn(&str) -> Option<&'a str>,
}
