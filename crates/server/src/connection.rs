//! An accepted connection: from its socket to the codec that speaks on it. A header of the PROXY
//! protocol comes first, then TLS, then HTTP.
//!
//! Guarantees that nothing is read from a peer that must not send what the listener waits for, and
//! that each step has a time limit.

use std::future::Future;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use metrics::{Counter, counter};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::coalesced_write::CoalescedWrite;
use super::connection_info::ConnectionInfo;
use super::connection_limit::{AdmittedClient, ClientActivity, ConnectionLimit, ConnectionPermit};
use super::drain::Drain;
use super::h1::{H1Connection, Http1};
use super::h2::{Http2, LeaveSignal};
use super::handler::Handler;
use super::socket::Socket;
use super::timeouts::client_timeouts;
use tollgate_limiter::clock;
use tollgate_spec::listener::ListenerSpec;
use tollgate_wire::http::deadline::{ClientWait, Wait};
use tollgate_wire::http::h1::upgrade::Upgraded;
use tollgate_wire::transport::peer::PeerAddress;
use tollgate_wire::transport::proxy_protocol::{self, ProxiedClient, ProxyHeaderError};
use tollgate_wire::transport::tls::server::acceptor::{Accepted, HandshakeError};
use tollgate_wire::transport::{ClearStream, Stream};

/// The answer to HTTP in the clear on a port for TLS.
const PLAIN_HTTP: &str = "the client sent HTTP in the clear to a port for HTTPS";

/// Bytes that the first read of a PROXY protocol header takes at most. Most headers have 16 to 107.
const PROXY_HEADER: usize = 128;

/// The state that the connections of a listener share.
pub struct ListenerContext<H> {
    pub handler: H,
    pub spec: Arc<ListenerSpec>,
    pub drain: Drain,
    pub http1: Http1,
    pub http2: Http2,
    pub proxy_headers: ProxyHeaderMetrics,
    pub limit: ConnectionLimit,
}

/// Counts connections by the fate of their header of the PROXY protocol.
pub struct ProxyHeaderMetrics {
    accepted: Counter,
    untrusted: Counter,
    malformed: Counter,
    timeout: Counter,
    closed: Counter,
    evicted: Counter,
}

/// A header that is being read, with the counter for its drop before the end: the gateway has then
/// closed the connection.
struct CountedProxyHeader<'a>(Option<&'a Counter>);

impl Drop for CountedProxyHeader<'_> {
    fn drop(&mut self) {
        if let Some(evicted) = self.0 {
            evicted.increment(1);
        }
    }
}

/// A connection with the version of HTTP that it begins with.
enum Codec<'a> {
    Http1(Box<H1Connection<'a>>),
    Http2(Upgraded),
}

/// A connection on which HTTP comes next.
struct OpenedConnection {
    stream: Stream,
    /// Bytes that were read already.
    early: Bytes,
    info: ConnectionInfo,
    /// The client that a proxy has named.
    named: Option<AdmittedClient>,
}

impl OpenedConnection {
    fn in_clear(stream: ClearStream, early: Bytes, info: ConnectionInfo) -> Self {
        Self {
            stream: stream.into(),
            early,
            info,
            named: None,
        }
    }
}

impl ProxyHeaderMetrics {
    pub fn new() -> Self {
        let [accepted, untrusted, malformed, timeout, closed, evicted] = [
            "accepted",
            "untrusted",
            "malformed",
            "timeout",
            "closed",
            "evicted",
        ]
        .map(|outcome| counter!("tollgate_proxy_protocol_connections_total", "outcome" => outcome));
        Self {
            accepted,
            untrusted,
            malformed,
            timeout,
            closed,
            evicted,
        }
    }
}

/// Serves the connection that was accepted as `stream` from `peer`, to its end.
pub fn serve_one<H: Handler>(
    context: Arc<ListenerContext<H>>,
    stream: ClearStream,
    peer: PeerAddress,
    permit: ConnectionPermit,
) -> impl Future<Output = ()> + Send {
    // A box for each step: a task keeps the room of its largest step to its end, and a connection
    // that waits for a request is to be small.
    let accepted = Box::new((stream, peer, permit));
    async move {
        let Some((socket, info)) = Box::pin(context.open(accepted)).await else {
            return;
        };
        let ListenerContext {
            handler,
            drain,
            http2,
            ..
        } = &*context;
        let connection = Arc::new(info);
        let (activity, codec) = context.begin(socket, &connection);
        let left = match codec {
            Codec::Http1(http) => http.drive(&connection, handler).await,
            Codec::Http2(socket) => Some(socket),
        };
        if let Some(socket) = left {
            let leave = LeaveSignal {
                drain,
                activity: &activity,
            };
            Box::pin(http2.drive(socket, &connection, handler.clone(), leave)).await;
        }
    }
}

/// Brings the connection to where HTTP begins. `None`: the connection ends here. A connection is
/// idle before the first byte of a header or handshake.
async fn open_in_steps<H: Handler>(
    context: &ListenerContext<H>,
    mut stream: ClearStream,
    peer: PeerAddress,
    activity: &ClientActivity,
) -> Option<OpenedConnection> {
    let mut early = BytesMut::new();
    let mut named = Some(peer);
    let mut admitted = None;
    if context.spec.proxy_protocol {
        named = context
            .read_proxy_header(&mut stream, &mut early, peer, activity)
            .await?;
        activity.set_unused(clock::now());
        if let Some(client) = named {
            admitted = context
                .limit
                .admit(client.ip(), || context.handler.is_trusted(client));
            if admitted.is_none() {
                stream.reset_on_drop();
                return None;
            }
        }
    }
    let client = named.unwrap_or(peer);
    let mut opened = match context.handler.tls() {
        Some(tls) => {
            let limit = ClientWait::TlsHandshake.limit(&client_timeouts(&context.spec));
            secured(
                tls.accept(stream, early, limit, || activity.set_active())
                    .await,
                client,
            )?
        }
        None => {
            let info = ConnectionInfo::in_clear(client);
            OpenedConnection::in_clear(stream, early.freeze(), info)
        }
    };
    activity.set_unused(clock::now());
    opened.info.is_unnamed = named.is_none();
    opened.named = admitted;
    Some(opened)
}

fn secured(
    accepted: Result<Accepted, HandshakeError>,
    peer: PeerAddress,
) -> Option<OpenedConnection> {
    match accepted {
        Ok(Accepted::Tls(stream, session)) => {
            let info = ConnectionInfo {
                tls: Some(session),
                ..ConnectionInfo::in_clear(peer)
            };
            Some(OpenedConnection {
                stream: Stream::Tls(stream),
                early: Bytes::new(),
                info,
                named: None,
            })
        }
        Ok(Accepted::PlainHttp(stream, early)) => {
            let info = ConnectionInfo {
                refusal: Some(PLAIN_HTTP),
                ..ConnectionInfo::in_clear(peer)
            };
            Some(OpenedConnection::in_clear(stream, early.freeze(), info))
        }
        Err(error) => {
            tracing::debug!(%error, %peer, "a TLS handshake failed");
            None
        }
    }
}

impl<H: Handler> ListenerContext<H> {
    /// Opens a connection that was accepted: its socket, for HTTP, and the facts about it. `None`:
    /// the connection ends here.
    async fn open(
        &self,
        accepted: Box<(ClearStream, PeerAddress, ConnectionPermit)>,
    ) -> Option<(Socket, ConnectionInfo)> {
        let (stream, peer, mut permit) = *accepted;
        stream.set_nodelay();
        let local = stream.local_address();
        let opened = if self.spec.proxy_protocol || self.handler.tls().is_some() {
            let activity = Arc::clone(permit.activity());
            // Boxed: a connection in the clear does not pay for the room of a handshake.
            activity
                .unless_closing(Box::pin(open_in_steps(self, stream, peer, &activity)))
                .await??
        } else {
            OpenedConnection::in_clear(stream, Bytes::new(), ConnectionInfo::in_clear(peer))
        };
        let OpenedConnection {
            stream,
            early,
            info,
            named,
        } = opened;
        if let Some(client) = named {
            permit.count_for(client);
        }
        Some((
            Socket {
                stream,
                early,
                permit,
            },
            info.with_local(local),
        ))
    }

    /// Begins to speak the version that ALPN has chosen, or else HTTP/1.
    fn begin(
        &self,
        mut socket: Socket,
        connection: &ConnectionInfo,
    ) -> (Arc<ClientActivity>, Codec<'_>) {
        let activity = Arc::clone(socket.permit.activity());
        let codec = match &connection.tls {
            Some(session) if session.is_http2 => {
                let early = std::mem::take(&mut socket.early);
                Codec::Http2(Upgraded::new(CoalescedWrite(socket), early))
            }
            Some(_) | None => Codec::Http1(self.http1.begin(socket, connection, &self.drain)),
        };
        (activity, codec)
    }

    /// The client of the connection, if the proxy at `peer` names one. `None`: the connection ends
    /// here.
    async fn read_proxy_header(
        &self,
        stream: &mut ClearStream,
        early: &mut BytesMut,
        peer: PeerAddress,
        activity: &ClientActivity,
    ) -> Option<Option<PeerAddress>> {
        let metrics = &self.proxy_headers;
        if !self.handler.is_trusted(peer) {
            metrics.untrusted.increment(1);
            tracing::debug!(%peer, "a connection to a port for trusted proxies, from none of them");
            return None;
        }
        let header = async {
            early.reserve(PROXY_HEADER);
            if stream.read_buf(early).await? > 0 {
                activity.set_active();
            }
            proxy_protocol::read_header(stream, early).await
        };
        let mut counted = CountedProxyHeader(Some(&metrics.evicted));
        let limit = ClientWait::ProxyHeader.limit(&client_timeouts(&self.spec));
        let (counter, result) = match timeout(limit, header).await {
            Ok(Ok(ProxiedClient::At(client))) => (&metrics.accepted, Some(Some(client.into()))),
            Ok(Ok(ProxiedClient::Unnamed)) => (&metrics.accepted, Some(None)),
            Ok(Err(ProxyHeaderError::Malformed)) => (&metrics.malformed, None),
            Ok(Err(ProxyHeaderError::Io(_))) => (&metrics.closed, None),
            Err(_) => (&metrics.timeout, None),
        };
        counted.0 = None;
        counter.increment(1);
        if result.is_none() {
            tracing::debug!(%peer, "a connection without a header of the PROXY protocol");
        }
        result
    }
}
