//! Connections of the admin port. `answers` counts what is answered at a time.
//!
//! Served like a listener's, with fixed bounds: no client holds a connection without asking
//! something, no more than [`MAX_CONNECTIONS`] are open, and [`MAX_REQUESTS`] are answered at a
//! time. The port is for a few tools, and must answer them even when a stranger has found it.

pub mod answers;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::header::STRICT_TRANSPORT_SECURITY;
use axum::http::{HeaderValue, Request, Response};
use axum::response::IntoResponse;
use http_body_util::BodyExt;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tower_service::Service;

use self::answers::{AnswerBound, count_until_sent};
use super::browser_guard::{PROBES, PrivateWay};
use super::problem_details::ProblemDetails;
use tollgate_gateway::Gateway;
use tollgate_proxy::message::forwarded::ClientOrigin;
use tollgate_server::{self as server, ConnectionInfo, ConnectionLimit, Drain, Handler};
use tollgate_spec::listener::ListenerSpec;
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;
use tollgate_wire::http::interim::InterimSlot;
use tollgate_wire::http::request_id;
use tollgate_wire::transport::address::is_loopback;
use tollgate_wire::transport::peer::PeerAddress;
use tollgate_wire::transport::tls::server::acceptor::TlsAcceptor;

/// Probes, a few scrapers, a few operators, and strangers who hold what they can.
const MAX_CONNECTIONS: usize = 768;

/// A share by which 32 addresses hold all connections. Trusted proxies, who stand for many clients,
/// have no such bound.
const MAX_CONNECTIONS_PER_CLIENT: u32 = 24;

/// Requests whose answers have not left. A connection of HTTP/2 may have many, and each holds its
/// answer in memory.
const MAX_REQUESTS: u32 = 256;

/// A browser asks for a page and what belongs to it at once.
const MAX_REQUESTS_PER_CLIENT: usize = 32;

/// A slower client holds a connection that a probe may need.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Scrapers come back every 15 s to 60 s; those that come later connect again.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(30);

/// For changes whose clients have gone, once all connections have: they are carried out, and
/// recorded.
const CHANGES_TIMEOUT: Duration = Duration::from_secs(30);

/// For a part of an answer that is not read. Bodies of requests have their own.
const BODY_TIMEOUT: Duration = Duration::from_secs(15);

/// A target may take half of it: room for the longest key, escaped.
const MAX_HEADER_BYTES: usize = 32 * 1024;

const MAX_HEADERS: usize = 100;

/// Bytes a second at least, both ways: whoever reads an answer byte by byte has it held for them.
const MIN_BODY_RATE: u64 = 4 * 1024;

/// Answers with the pages.
#[derive(Clone)]
struct Pages(Arc<AdminPages>, Arc<AnswerBound>);

/// The pages of a port, and how it is spoken to.
pub struct AdminPages {
    pub router: Router,
    /// The configuration at work, which lists the proxies that tell their clients' addresses.
    pub gateway: Arc<ArcSwap<Gateway>>,
    /// `None`: the port speaks HTTP in the clear.
    pub tls: Option<Arc<TlsAcceptor>>,
    /// The `Strict-Transport-Security` of its answers.
    pub hsts: Option<HeaderValue>,
}

/// Serves `pages` on a port of the admin server until dropped, or until `drain` begins: then
/// changes are carried out to their ends.
///
/// # Errors
/// When the socket has no address.
pub async fn serve(listener: TcpListener, pages: AdminPages, drain: Drain) -> std::io::Result<()> {
    let spec = ListenerSpec {
        header_timeout: HEADER_TIMEOUT,
        keepalive_timeout: KEEPALIVE_TIMEOUT,
        body_timeout: BODY_TIMEOUT,
        min_body_rate: NonZeroU64::new(MIN_BODY_RATE),
        max_header_bytes: MAX_HEADER_BYTES,
        max_headers: MAX_HEADERS,
        max_connections: MAX_CONNECTIONS,
        max_connections_per_client: Some(MAX_CONNECTIONS_PER_CLIENT),
        ..ListenerSpec::at(listener.local_addr()?.into())
    };
    let limit = ConnectionLimit::uncounted(spec.max_connections)
        .per_client(spec.max_connections_per_client);
    let requests = Arc::new(AnswerBound::new(MAX_REQUESTS, MAX_REQUESTS_PER_CLIENT));
    let pages = Pages(Arc::new(pages), requests.clone());
    server::serve(vec![listener], Arc::new(spec), pages, limit, drain).await;
    if timeout(CHANGES_TIMEOUT, requests.ended()).await.is_err() {
        tracing::error!(
            "a change of the admin port was cut: look into the history whether it was made"
        );
    }
    Ok(())
}

impl Pages {
    /// The answer to a request of the client at `ip`. The probes' few bytes are answered however
    /// many others there are.
    async fn answer(&self, ip: IpAddr, mut request: Request<Body>) -> Response<axum::body::Body> {
        if PROBES.contains(&request.uri().path()) {
            return self.page(request).await;
        }
        match self.1.take(ip) {
            Some(place) => {
                request.extensions_mut().insert(place.clone());
                count_until_sent(self.page(request).await, place)
            }
            None => ProblemDetails::too_many_requests().into_response(),
        }
    }

    async fn page(&self, request: Request<Body>) -> Response<axum::body::Body> {
        let answered: Result<_, Infallible> = self.0.router.clone().call(request).await;
        let Ok(response) = answered;
        response
    }

    /// The address of the client: that of its connection, or what a trusted proxy says.
    fn client(&self, connection: &ConnectionInfo, request: &Request<Body>) -> SocketAddr {
        let gateway = self.0.gateway.load();
        let origin = ClientOrigin::of_peer(
            request.headers(),
            connection.peer,
            Some(&gateway.trusted_proxies),
        );
        let peer = connection.peer.socket_address();
        let port = if origin.client_ip == peer.ip().to_canonical() {
            peer.port()
        } else {
            0
        };
        SocketAddr::new(origin.client_ip, port)
    }
}

impl Handler for Pages {
    async fn handle(
        &self,
        connection: &Arc<ConnectionInfo>,
        _: &InterimSlot,
        request: &mut Request<Body>,
    ) -> Response<Body> {
        let mut request = std::mem::replace(request, Request::new(Body::empty()));
        let client = self.client(connection, &request);
        let is_private = connection.tls.is_some()
            || is_loopback(connection.peer.ip())
            || self.is_trusted(connection.peer);
        request.extensions_mut().insert(ConnectInfo(client));
        request.extensions_mut().insert(PrivateWay(is_private));
        let mut response = self.answer(client.ip(), request).await;
        if let Some(hsts) = &self.0.hsts {
            response
                .headers_mut()
                .insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
        response.map(|body| Body::boxed(body.map_err(Into::into)))
    }

    fn is_trusted(&self, peer: PeerAddress) -> bool {
        self.0.gateway.load().trusted_proxies.contains(peer)
    }

    fn tls(&self) -> Option<&TlsAcceptor> {
        self.0.tls.as_deref()
    }

    fn refuse(&self, _connection: &Arc<ConnectionInfo>, failure: Failure) -> Response<Body> {
        failure.respond(&request_id::generate())
    }
}
