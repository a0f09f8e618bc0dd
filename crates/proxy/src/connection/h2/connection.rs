//! A connection to an upstream that carries many exchanges at once. A task of its own drives it.
//!
//! Guarantees that no stream is opened before the upstream has said how many it takes, nor on a
//! connection that it is about to close. A connection that has fallen silent gets no more streams
//! until its upstream has answered a PING.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::settings::{AnnouncedHeadSize, SettingsReader};
use crate::connection::exchange::timeouts_of;
use crate::connection::stream_counts::StreamCounts;
use crate::upstream::UpstreamSpec;
use crate::upstream::bounds::{BoundedPlace, LeavingConnection};
use crate::upstream::endpoints::UpstreamConnectError;
use crate::upstream::metrics::CountedConnection;
use tollgate_limiter::clock::{self, Instant};
use tollgate_wire::http::deadline::{UpstreamWait, Wait as _};
use tollgate_wire::http::h2::{HeadBound, STREAM_WINDOW};
use tollgate_wire::transport::Stream;

/// Streams under way on one connection, if the upstream takes as many. nginx takes 128.
pub const MOST_STREAMS: u32 = 100;

/// The limit on streams before the upstream's first SETTINGS. No upstream can announce it: it does
/// not fit into 32 bits.
const UNANNOUNCED: usize = usize::MAX - 1;

/// A connection for many exchanges. It closes once its last lease has ended.
pub struct MultiplexedConnection {
    /// A number that no other connection has.
    number: u64,
    sender: SendRequest<Bytes>,
    /// The limit on streams of the upstream's first SETTINGS. `None`: the upstream has closed the
    /// connection before.
    announced: Option<usize>,
    head_size: AnnouncedHeadSize,
    /// The connection's end was counted against its endpoint.
    blamed: AtomicBool,
    health: Arc<ConnectionHealth>,
    /// Streams that are leased.
    streams: AtomicUsize,
    counts: Arc<StreamCounts>,
    /// The connection has carried an exchange to its end.
    used: AtomicBool,
    idle_since: Mutex<Instant>,
    /// The place of the connection, if the upstream's connections are bounded.
    bounded: Option<BoundedPlace>,
    keepalive: Duration,
}

/// The messages between a connection's task and its users.
#[derive(Default)]
struct ConnectionHealth {
    /// The connection takes no more streams.
    retired: AtomicBool,
    /// An exchange has waited in vain, and the upstream has answered no PING since.
    suspected: AtomicBool,
    /// A PING is to be sent.
    ping_wanted: Notify,
    /// The connection leaves its place to others once it has closed.
    leaving: Mutex<Option<LeavingConnection>>,
}

impl MultiplexedConnection {
    /// Begins HTTP/2 on `stream`, and waits for the upstream's SETTINGS, which most send at once.
    /// `freed` is notified when the connection takes more streams, ends or is trusted again.
    ///
    /// # Errors
    /// When the stream breaks at once.
    pub async fn open(
        stream: Stream,
        spec: &UpstreamSpec,
        counted: CountedConnection,
        bounded: Option<BoundedPlace>,
        freed: Arc<Notify>,
    ) -> Result<Arc<Self>, UpstreamConnectError> {
        let timeouts = timeouts_of(spec);
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_max_send_streams(UNANNOUNCED)
            .initial_window_size(STREAM_WINDOW)
            // Room for all streams: a stream whose client does not read must not keep the others
            // waiting.
            .initial_connection_window_size(STREAM_WINDOW * MOST_STREAMS)
            .max_send_buffer_size(STREAM_WINDOW as usize)
            .max_header_list_size(u32::try_from(spec.response_head.bytes).unwrap_or(u32::MAX));
        let head_size = AnnouncedHeadSize::default();
        let stream = SettingsReader::new(stream, head_size.clone());
        let (sender, mut connection) = builder
            .handshake::<_, Bytes>(stream)
            .await
            .map_err(|error| UpstreamConnectError::Failed(io::Error::other(error)))?;
        let announced = poll_fn(|cx| poll_settings(&mut connection, cx)).await;
        let health = Arc::new(ConnectionHealth::default());
        let driven = Arc::clone(&health);
        tokio::spawn(async move {
            if announced.is_some() {
                let patience = UpstreamWait::PingAnswer.limit(&timeouts);
                drive(connection, &driven, &freed, patience).await;
            }
            driven.retired.store(true, Ordering::Relaxed);
            freed.notify_waiters();
            drop(counted);
            driven.leaving.lock().take();
        });
        Ok(Arc::new(Self {
            number: next_number(),
            sender,
            announced,
            head_size,
            blamed: AtomicBool::new(false),
            health,
            streams: AtomicUsize::new(0),
            counts: Arc::default(),
            used: AtomicBool::new(false),
            idle_since: Mutex::new(clock::now()),
            bounded,
            keepalive: UpstreamWait::NextExchange.limit(&timeouts),
        }))
    }

    /// A number that no other connection has.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The sender of requests.
    pub fn sender(&self) -> SendRequest<Bytes> {
        self.sender.clone()
    }

    /// Whether the connection takes no more streams, since its upstream closes it.
    pub fn is_retired(&self) -> bool {
        if self.health.retired.load(Ordering::Relaxed) {
            return true;
        }
        let mut cx = Context::from_waker(Waker::noop());
        matches!(self.sender.clone().poll_ready(&mut cx), Poll::Ready(Err(_)))
    }

    /// Whether another stream can be opened now. A connection that has begun `lifetime` streams
    /// gets another only if no stream is under way: that stream shows whether the connection goes
    /// on.
    pub fn has_room(&self, lifetime: usize) -> bool {
        let most = self
            .sender
            .current_max_send_streams()
            .min(MOST_STREAMS as usize);
        let streams = self.streams();
        let goes_on = streams == 0 || self.counts.begun() < lifetime;
        streams < most && goes_on && !self.health.suspected.load(Ordering::Relaxed)
    }

    /// The limit on streams of the upstream's first SETTINGS. `None`: the upstream has closed the
    /// connection before.
    pub fn announced(&self) -> Option<usize> {
        self.announced
    }

    /// The largest request heads that the upstream says it takes (RFC 9113 §6.5.2).
    pub fn head_bound(&self) -> HeadBound {
        HeadBound {
            size: self.head_size.get(),
            field: None,
        }
    }

    /// Whether the connection's end is to be counted against its endpoint: once, with the first of
    /// the exchanges that it ends.
    pub fn is_blamed_first(&self) -> bool {
        !self.blamed.swap(true, Ordering::Relaxed)
    }

    /// Whether the upstream has announced that it takes no stream, and not changed that: a new
    /// connection would take none either.
    pub fn takes_none(&self) -> bool {
        self.announced == Some(0) && self.sender.current_max_send_streams() == 0
    }

    /// The number of streams that are leased.
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }

    /// Whether an exchange over the connection came to its end.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether the connection has been idle for as long as it may be by `now`.
    pub fn is_expired(&self, now: Instant) -> bool {
        self.streams() == 0 && *self.idle_since.lock() + self.keepalive <= now
    }

    pub fn begin_stream(&self) {
        self.counts.begin();
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end_stream(&self) {
        self.used.store(true, Ordering::Relaxed);
        if self.streams.fetch_sub(1, Ordering::SeqCst) == 1 {
            *self.idle_since.lock() = clock::now();
        }
    }

    /// The connection's streams in numbers.
    pub fn counts(&self) -> &Arc<StreamCounts> {
        &self.counts
    }

    /// Whether the connection must get no more streams, so that a request which waits and cannot
    /// use it gets its place.
    pub fn gives_way(&self) -> bool {
        let Some(place) = &self.bounded else {
            return false;
        };
        let mut leaving = self.health.leaving.lock();
        if leaving.is_none() {
            *leaving = place.leave();
        }
        leaving.is_some()
    }

    /// Sends a PING, since an exchange has waited in vain.
    pub fn suspect(&self) {
        if !self.health.suspected.swap(true, Ordering::Relaxed) {
            self.health.ping_wanted.notify_one();
        }
    }

    /// Whether the upstream may be sent an extended CONNECT (RFC 8441 §3). A connection that has
    /// ended fails when it is sent one.
    pub fn takes_extended_connect(&self) -> bool {
        self.sender.is_extended_connect_protocol_enabled() || self.is_retired()
    }
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Drives the connection until the upstream has said how many streams it takes. `None`: the
/// upstream has closed the connection.
fn poll_settings(
    connection: &mut Connection<SettingsReader, Bytes>,
    cx: &mut Context<'_>,
) -> Poll<Option<usize>> {
    if let Poll::Ready(ended) = Pin::new(&mut *connection).poll(cx) {
        tracing::debug!(error = ?ended.err(), "a connection to an upstream has ended before its SETTINGS");
        return Poll::Ready(None);
    }
    match connection.max_concurrent_send_streams() {
        UNANNOUNCED => Poll::Pending,
        announced => Poll::Ready(Some(announced)),
    }
}

/// Drives the connection to its end. Notifies `freed` when it takes more streams than before.
fn poll_end(
    connection: &mut Connection<SettingsReader, Bytes>,
    most: &mut usize,
    freed: &Notify,
    cx: &mut Context<'_>,
) -> Poll<Result<(), h2::Error>> {
    let polled = Pin::new(&mut *connection).poll(cx);
    let now = connection.max_concurrent_send_streams();
    if std::mem::replace(most, now) < now {
        freed.notify_waiters();
    }
    polled
}

/// Drives the connection to its end, or until it has left a PING without an answer.
async fn drive(
    mut connection: Connection<SettingsReader, Bytes>,
    health: &ConnectionHealth,
    freed: &Notify,
    patience: Duration,
) {
    let mut pings = connection.ping_pong();
    let mut most = connection.max_concurrent_send_streams();
    let mut due = None;
    loop {
        tokio::select! {
            ended = poll_fn(|cx| poll_end(&mut connection, &mut most, freed, cx)) => {
                return tracing::debug!(error = ?ended.err(), "a connection to an upstream has ended");
            }
            () = health.ping_wanted.notified(), if due.is_none() => {
                due = send_ping(pings.as_mut()).map(|()| clock::now() + patience);
            }
            answered = answer(pings.as_mut()), if due.is_some() => {
                due = None;
                if answered {
                    health.suspected.store(false, Ordering::Relaxed);
                    freed.notify_waiters();
                }
            }
            () = at(due) => return tracing::debug!("an upstream does not answer a PING"),
        }
    }
}

fn send_ping(pings: Option<&mut PingPong>) -> Option<()> {
    pings?.send_ping(Ping::opaque()).ok()
}

async fn answer(pings: Option<&mut PingPong>) -> bool {
    match pings {
        Some(pings) => poll_fn(|cx| pings.poll_pong(cx)).await.is_ok(),
        None => pending().await,
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}
