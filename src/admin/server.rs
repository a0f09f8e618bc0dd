//! Connections of the admin port.
//!
//! Served like a listener's, with fixed bounds: no client holds a connection without asking something, and no more than
//! [`MAX_CONNECTIONS`] are open. The port is for a few tools, and must answer them even when a stranger has found it.

use std::convert::Infallible;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::header::STRICT_TRANSPORT_SECURITY;
use axum::http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use tokio::net::TcpListener;
use tower_service::Service;

use crate::body::Body;
use crate::error::Failure;
use crate::http::interim::InterimSlot;
use crate::observe::request_id;
use crate::server::{self, ConnectionInfo, ConnectionLimit, Drain, Handler, ListenerSpec};
use crate::transport::tls::server::acceptor::TlsAcceptor;

/// Probes, a few scrapers, a few operators.
const MAX_CONNECTIONS: usize = 256;

/// Half of them: no address holds all. A proxy in front of the console has one.
const MAX_CONNECTIONS_PER_CLIENT: u32 = 128;

/// A slower client holds a connection that a probe may need.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Scrapers come back every 15 s to 60 s; those that come later connect again.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(30);

/// For a part of an answer that is not read. Bodies of requests have their own.
const BODY_TIMEOUT: Duration = Duration::from_secs(15);

/// A target may take half of it: room for the longest key, escaped.
const MAX_HEADER_BYTES: usize = 32 * 1024;

const MAX_HEADERS: usize = 100;

/// Bytes a second at least, both ways: whoever reads an answer byte by byte has it held for them.
const MIN_BODY_RATE: u64 = 4 * 1024;

/// Answers with the pages.
#[derive(Clone)]
struct Pages(Arc<AdminPages>);

/// The pages of a port, and how it is spoken to.
#[derive(Default)]
pub struct AdminPages {
    pub router: Router,
    /// `None`: it speaks HTTP in the clear.
    pub tls: Option<Arc<TlsAcceptor>>,
    /// The `Strict-Transport-Security` of its answers.
    pub hsts: Option<HeaderValue>,
}

/// Serves `pages` on a port of the admin server until dropped, or until `drain` begins: that is when another process serves it.
///
/// # Errors
/// When the socket has no address.
pub async fn serve(listener: TcpListener, pages: AdminPages, drain: Drain) -> std::io::Result<()> {
    let spec = ListenerSpec {
        address: listener.local_addr()?.into(),
        socket_mode: 0,
        socket_name: None,
        proxy_protocol: false,
        header_timeout: HEADER_TIMEOUT,
        keepalive_timeout: KEEPALIVE_TIMEOUT,
        body_timeout: BODY_TIMEOUT,
        min_body_rate: NonZeroU64::new(MIN_BODY_RATE),
        max_header_bytes: MAX_HEADER_BYTES,
        max_headers: MAX_HEADERS,
        max_connections: MAX_CONNECTIONS,
        max_connections_per_client: Some(MAX_CONNECTIONS_PER_CLIENT),
    };
    let limit = ConnectionLimit::uncounted(spec.max_connections).per_client(spec.max_connections_per_client);
    server::serve(vec![listener], Arc::new(spec), Pages(Arc::new(pages)), limit, drain).await;
    Ok(())
}

impl Handler for Pages {
    async fn handle(
        &self,
        connection: &Arc<ConnectionInfo>,
        _: &InterimSlot,
        request: &mut Request<Body>,
    ) -> Response<Body> {
        let mut request = std::mem::replace(request, Request::new(Body::empty()));
        request.extensions_mut().insert(ConnectInfo(connection.peer.socket_address()));
        let answered: Result<_, Infallible> = self.0.router.clone().call(request).await;
        let Ok(mut response) = answered;
        if let Some(hsts) = &self.0.hsts {
            response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
        response.map(|body| Body::boxed(body.map_err(Into::into)))
    }

    fn tls(&self) -> Option<&TlsAcceptor> {
        self.0.tls.as_deref()
    }

    fn refuse(&self, _connection: &Arc<ConnectionInfo>, failure: Failure) -> Response<Body> {
        failure.respond(&request_id::generate())
    }
}
