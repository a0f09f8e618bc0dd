//! A connection to an upstream that carries many exchanges at once. A task of its own drives it.
//!
//! Guarantees that no stream is opened on a connection which its upstream is about to close, and that one which has
//! fallen silent is noticed: it gets no more streams until it has answered a PING.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::clock::{self, Instant};
use crate::http::deadline::{UpstreamTimeouts, UpstreamWait, Wait as _};
use crate::http::h2::STREAM_WINDOW;
use crate::proxy::connection::response::BOUNDS;
use crate::proxy::connection::stream_counts::StreamCounts;
use crate::transport::Stream;
use crate::upstream::bounds::{BoundedPlace, LeavingConnection};
use crate::upstream::metrics::CountedConnection;

/// Streams under way on one connection, if the upstream takes as many. nginx takes 128.
pub const MOST_STREAMS: u32 = 100;

/// A connection for many exchanges. It closes once nobody has it any more.
pub struct MultiplexedConnection {
    /// Tells it from all others.
    number: u64,
    sender: SendRequest<Bytes>,
    health: Arc<ConnectionHealth>,
    /// Streams that are leased.
    streams: AtomicUsize,
    counts: Arc<StreamCounts>,
    /// It has carried an exchange to its end.
    used: AtomicBool,
    idle_since: Mutex<Instant>,
    /// Of an upstream whose connections are bounded.
    bounded: Option<BoundedPlace>,
    keepalive: Duration,
}

/// The messages between a connection's task and its users.
#[derive(Default)]
struct ConnectionHealth {
    /// It takes no more streams.
    retired: AtomicBool,
    /// An exchange has waited in vain, and the upstream has answered no PING since.
    suspected: AtomicBool,
    /// The upstream has answered a PING: its SETTINGS came before that.
    settled: AtomicBool,
    /// A PING is to be sent.
    ping_wanted: Notify,
    /// Told when a PING was answered, or the connection has ended.
    answered: Notify,
    /// It leaves its place to others once it has closed.
    leaving: Mutex<Option<LeavingConnection>>,
}

impl MultiplexedConnection {
    /// Begins HTTP/2 on `stream`. `freed` is told when the connection ends or is trusted again.
    ///
    /// # Errors
    /// When the stream breaks at once.
    pub async fn open(
        stream: Stream,
        timeouts: UpstreamTimeouts,
        (counted, bounded): (CountedConnection, Option<BoundedPlace>),
        freed: Arc<Notify>,
    ) -> Result<Arc<Self>, h2::Error> {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_max_send_streams(MOST_STREAMS as usize)
            .initial_window_size(STREAM_WINDOW)
            // Room for all streams: one whose client does not read must not keep the others waiting.
            .initial_connection_window_size(STREAM_WINDOW * MOST_STREAMS)
            .max_send_buffer_size(STREAM_WINDOW as usize)
            .max_header_list_size(u32::try_from(BOUNDS.bytes).unwrap_or(u32::MAX));
        let (sender, connection) = builder.handshake::<_, Bytes>(stream).await?;
        let health = Arc::new(ConnectionHealth::default());
        let driven = Arc::clone(&health);
        tokio::spawn(async move {
            drive(connection, &driven, &freed, UpstreamWait::PingAnswer.limit(&timeouts)).await;
            driven.retired.store(true, Ordering::Relaxed);
            freed.notify_waiters();
            driven.answered.notify_waiters();
            drop(counted);
            driven.leaving.lock().take();
        });
        Ok(Arc::new(Self {
            number: next_number(),
            sender,
            health,
            streams: AtomicUsize::new(0),
            counts: Arc::default(),
            used: AtomicBool::new(false),
            idle_since: Mutex::new(clock::now()),
            bounded,
            keepalive: UpstreamWait::NextExchange.limit(&timeouts),
        }))
    }

    /// Tells it from all others.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Where requests are sent.
    pub fn sender(&self) -> SendRequest<Bytes> {
        self.sender.clone()
    }

    /// Whether it takes no more streams, since its upstream closes it.
    pub fn is_retired(&self) -> bool {
        let ready = || self.sender.clone().poll_ready(&mut Context::from_waker(Waker::noop()));
        self.health.retired.load(Ordering::Relaxed) || matches!(ready(), std::task::Poll::Ready(Err(_)))
    }

    /// Whether another stream can be opened now. Once it has begun as many as the upstream's connections last carried, only
    /// if no other is under way: that one shows whether it goes on.
    pub fn has_room(&self, lifetime: usize) -> bool {
        let most = self.sender.current_max_send_streams().min(MOST_STREAMS as usize);
        let streams = self.streams();
        let goes_on = streams == 0 || self.counts.begun() < lifetime;
        streams < most && goes_on && !self.health.suspected.load(Ordering::Relaxed)
    }

    /// The number of streams that are leased.
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }

    /// Whether an exchange over it came to its end.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether it has been idle for as long as it may be by `now`.
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

    /// Its streams in numbers.
    pub fn counts(&self) -> &Arc<StreamCounts> {
        &self.counts
    }

    /// Whether it must get no more streams, so that a request which waits and cannot use it gets its place.
    pub fn gives_way(&self) -> bool {
        let Some(place) = &self.bounded else { return false };
        let mut leaving = self.health.leaving.lock();
        if leaving.is_none() {
            *leaving = place.leave();
        }
        leaving.is_some()
    }

    /// An exchange has waited in vain: asks the upstream for a sign of life.
    pub fn suspect(&self) {
        if !self.health.suspected.swap(true, Ordering::Relaxed) {
            self.health.ping_wanted.notify_one();
        }
    }

    /// Whether the upstream may be sent an extended CONNECT (RFC 8441 §3). If its SETTINGS may not have come yet, waits for the
    /// answer to a PING, which comes behind them.
    pub async fn takes_extended_connect(&self) -> bool {
        loop {
            let mut answered = pin!(self.health.answered.notified());
            answered.as_mut().enable();
            // A connection that has ended says so when it is asked.
            if self.sender.is_extended_connect_protocol_enabled() || self.is_retired() {
                return true;
            }
            if self.health.settled.load(Ordering::Relaxed) {
                return false;
            }
            self.health.ping_wanted.notify_one();
            answered.await;
        }
    }
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Drives the connection to its end, or until it has left a PING without an answer.
async fn drive(
    mut connection: Connection<Stream, Bytes>,
    health: &ConnectionHealth,
    freed: &Notify,
    patience: Duration,
) {
    let mut pings = connection.ping_pong();
    let mut connection = pin!(connection);
    let mut due = None;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                return tracing::debug!(error = ?ended.err(), "a connection to an upstream has ended");
            }
            () = health.ping_wanted.notified(), if due.is_none() => {
                due = send_ping(pings.as_mut()).map(|()| clock::now() + patience);
            }
            answered = answer(pings.as_mut()), if due.is_some() => {
                due = None;
                if answered {
                    health.suspected.store(false, Ordering::Relaxed);
                    health.settled.store(true, Ordering::Relaxed);
                    freed.notify_waiters();
                    health.answered.notify_waiters();
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
