//! HTTP/2 towards clients (RFC 9113), on the `h2` crate: after its preface on the port of HTTP/1,
//! or chosen by ALPN.
//!
//! The connection's task reads frames and accepts streams (`connection`); each stream has a task
//! (`stream`), and all tasks share the `session`. `client_socket` follows incoming frames, since
//! `h2` does not count or time all of them.
//!
//! Guarantees the listener's bounds and time limits, the same rules on requests as HTTP/1 has, and
//! that nothing a client does with one stream holds up another.

mod client_socket;
mod connection;
mod deadlines;
mod expect_continue;
mod frame_parser;
mod request_head;
mod session;
mod stream;
mod trailer_start;
mod websocket;

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use h2::server::Builder;
use metrics::Counter;
use tokio::time::timeout;

use self::client_socket::{ClientSocket, Traffic};
use self::connection::H2Connection;
pub use self::connection::LeaveSignal;
use self::frame_parser::Violation;
use self::session::H2Session;
use super::connection_info::ConnectionInfo;
use super::connection_limit::ClientActivity;
use super::handler::Handler;
use super::timeouts::client_timeouts;
use tollgate_spec::listener::ListenerSpec;
use tollgate_wire::failure_log::FailureLog;
use tollgate_wire::http::deadline::{ClientWait, Wait as _};
use tollgate_wire::http::h1::upgrade::Io;
use tollgate_wire::http::h2::STREAM_WINDOW;
use tollgate_wire::http::min_rate::MinBodyRates;

/// Most concurrent requests on one connection.
const MAX_STREAMS: u32 = 128;
/// Most unread bytes on a connection. Room for all streams: uploads that stall leave room for the
/// others.
const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;
/// Requests that wait for their turn and were reset meanwhile. A client may reset all of its open
/// requests.
const RESET_UNSEEN: usize = MAX_STREAMS as usize;

/// The HTTP/2 side of a listener.
pub struct Http2 {
    builder: Builder,
    spec: Arc<ListenerSpec>,
    rates: MinBodyRates,
    floods: Floods,
}

/// Connections that were closed because of what their client sent.
struct Floods {
    resets: Counter,
    control_frames: Counter,
    other: Counter,
    log: FailureLog,
}

impl Http2 {
    pub fn new(spec: &Arc<ListenerSpec>, rates: MinBodyRates) -> Self {
        let mut builder = Builder::new();
        builder
            .max_concurrent_streams(MAX_STREAMS)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(STREAM_WINDOW as usize)
            .max_pending_accept_reset_streams(RESET_UNSEEN)
            .enable_connect_protocol()
            .max_header_list_size(u32::try_from(spec.max_header_bytes).unwrap_or(u32::MAX));
        Self {
            builder,
            spec: Arc::clone(spec),
            rates,
            floods: Floods::new(),
        }
    }

    /// Serves until the connection ends. `socket` still has the preface.
    pub async fn drive<H: Handler, S: Io>(
        &self,
        socket: S,
        connection: &Arc<ConnectionInfo>,
        handler: H,
        leave: LeaveSignal<'_>,
    ) {
        let traffic = Arc::new(Traffic::default());
        let handshake = self
            .builder
            .handshake(ClientSocket::new(socket, Arc::clone(&traffic)));
        let handshake =
            leave
                .activity
                .unless_closing(with_activity(handshake, &traffic, leave.activity));
        let limit = ClientWait::RequestHead.limit(&client_timeouts(&self.spec));
        let http = match timeout(limit, handshake).await {
            Ok(Some(Ok(http))) => http,
            Ok(Some(Err(error))) => {
                return tracing::debug!(%error, peer = %connection.peer, "no HTTP/2 came");
            }
            Ok(None) | Err(_) => return,
        };
        let session = Arc::new(H2Session::new(
            handler,
            Arc::clone(connection),
            Arc::clone(&self.spec),
            self.rates.clone(),
            traffic,
        ));
        let served = H2Connection::new(http, Arc::clone(&session))
            .serve(leave)
            .await;
        self.record_end(&session, served);
    }

    /// Counts a connection that was closed because of its client's input, and logs it.
    fn record_end<H>(&self, session: &H2Session<H>, served: Result<(), h2::Error>) {
        let peer = session.connection.peer;
        let floods = &self.floods;
        let (count, sent) = match (session.traffic.violation(), served) {
            (Some(Violation::Resets), _) => (
                &floods.resets,
                Cow::Borrowed("made requests and reset them at once"),
            ),
            (Some(Violation::ControlFrames), _) => (
                &floods.control_frames,
                Cow::Borrowed("sent frames that carry nothing"),
            ),
            (_, Err(error)) if is_flood(&error) => (
                &floods.other,
                Cow::Owned(format!("sent too much of something: {error}")),
            ),
            (Some(violation), _) => {
                tracing::debug!(%peer, reason = %violation.reason(), "a client broke HTTP/2");
                return;
            }
            (None, Err(error)) => {
                tracing::debug!(%peer, %error, "an HTTP/2 connection ended in an error");
                return;
            }
            (None, Ok(())) => return,
        };
        count.increment(1);
        if let Some(unlogged) = floods.log.admit() {
            tracing::warn!(%peer, unlogged, "an HTTP/2 connection was closed: its client {sent}");
        }
    }
}

/// Whether `h2` has ended the connection because its client sent too much of something.
fn is_flood(error: &h2::Error) -> bool {
    error.is_go_away()
        && error.is_library()
        && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)
}

/// The result of `handshake`. The connection is active once its preface has begun.
async fn with_activity<T>(
    handshake: impl Future<Output = T>,
    traffic: &Traffic,
    activity: &ClientActivity,
) -> T {
    let mut handshake = pin!(handshake);
    poll_fn(|cx| {
        let polled = handshake.as_mut().poll(cx);
        if polled.is_pending() && traffic.bytes_read.load(Relaxed) > 0 {
            activity.set_active();
        }
        polled
    })
    .await
}

impl Floods {
    fn new() -> Self {
        let metrics = Self {
            resets: metrics::counter!("tollgate_http2_floods_total", "kind" => "resets"),
            control_frames: metrics::counter!("tollgate_http2_floods_total", "kind" => "control_frames"),
            other: metrics::counter!("tollgate_http2_floods_total", "kind" => "other"),
            log: FailureLog::default(),
        };
        for counter in [&metrics.resets, &metrics.control_frames, &metrics.other] {
            counter.increment(0);
        }
        metrics
    }
}
