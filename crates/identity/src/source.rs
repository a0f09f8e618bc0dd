//! A request as authenticators see it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Uri};
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::limit::key::ClientCertificate;

use tollgate_proxy::Proxy;
use tollgate_proxy::message::forwarded::ClientOrigin;
use tollgate_proxy::upstream::Upstream;
use tollgate_wire::transport::peer::SocketPair;

/// The parts of a request that have credentials.
#[derive(Clone, Copy)]
pub struct CredentialSource<'a> {
    pub uri: &'a Uri,
    pub headers: &'a HeaderMap,
    pub client_certificate: Option<&'a ClientCertificate>,
    pub client_ip: IpAddr,
    pub exchange: ExchangeParts<'a>,
}

/// The parts of an exchange by which others are asked about it.
#[derive(Clone, Copy)]
pub struct ExchangeParts<'a> {
    pub method: &'a Method,
    pub origin: &'a ClientOrigin,
    pub request_id: &'a HeaderValue,
    pub sockets: Option<&'a SocketPair>,
    pub limiter: &'a Limiter,
    pub proxy: &'a Arc<Proxy>,
    pub upstreams: &'a HashMap<Arc<str>, Arc<Upstream>>,
}
