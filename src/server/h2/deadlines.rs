//! How long an HTTP/2 connection waits for its client: the waits of [`ClientWait`] that are no
//! stream's own.
//!
//! A connection has the time of a head for its first request, preface and SETTINGS included. So has
//! each frame and header block that has begun, even while other requests are under way: nothing
//! else can be read meanwhile.

use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use h2::{Ping, PingPong};

use super::client_socket::Traffic;
use crate::clock::{self, Instant};
use crate::http::deadline::{ClientTimeouts, ClientWait, Wait as _};
use crate::http::timer::Timer;

/// A client may have as much under way when our SETTINGS reach it, and acknowledges them behind
/// that: content of 65 535 bytes, its frames, and heads.
const AHEAD_OF_ACK: u64 = 128 * 1024;

/// The step that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The client is asked to make no more requests.
    GoAway,
    /// The connection ends.
    Close,
    /// It ends, since the client has not acknowledged our SETTINGS (RFC 9113 §6.5.3).
    SettingsTimeout,
}

/// The waits of one connection.
pub struct Deadlines {
    timeouts: ClientTimeouts,
    timer: Timer,
    state: RequestState,
    /// The bytes that have come from a client that has not acknowledged our SETTINGS, and when it
    /// last made progress.
    unacknowledged: Option<(u64, Instant)>,
    /// When the client was sent GOAWAY.
    left_at: Option<Instant>,
    /// The count of finished units when the unfinished one was noticed, and when that was.
    unfinished: Option<(u64, Instant)>,
    ping: Option<PingPong>,
    /// When the client is looked after next.
    ping_due: Instant,
    pinged: bool,
    /// The bytes read when it was last looked after.
    bytes_read: u64,
}

/// The requests of a connection.
#[derive(Clone, Copy, Debug)]
enum RequestState {
    /// None has come, since then.
    Fresh(Instant),
    /// Some are under way.
    Busy,
    /// None is, since then.
    Idle(Instant),
    /// GOAWAY was sent, and some are under way.
    LeavingBusy,
    /// GOAWAY was sent, and none is under way since then.
    Leaving(Instant),
    /// All were dropped, then.
    Closed(Instant),
}

impl Deadlines {
    pub fn new(timeouts: ClientTimeouts) -> Self {
        let now = clock::now();
        Self {
            timeouts,
            timer: Timer::default(),
            state: RequestState::Fresh(now),
            unacknowledged: Some((0, now)),
            left_at: None,
            unfinished: None,
            ping: None,
            ping_due: now + ClientWait::SignOfLife.limit(&timeouts),
            pinged: false,
            bytes_read: 0,
        }
    }

    /// Sends PINGs with `ping` from now on.
    pub fn ping_with(&mut self, ping: Option<PingPong>) {
        self.ping = ping;
    }

    /// A request has come.
    pub fn record_request(&mut self) {
        if let RequestState::Fresh(_) | RequestState::Idle(_) = self.state {
            self.state = RequestState::Busy;
        }
    }

    /// The client was sent GOAWAY.
    pub fn record_go_away(&mut self) {
        if !self.is_leaving() {
            self.state = RequestState::LeavingBusy;
            self.left_at = Some(clock::now());
        }
    }

    /// Whether requests come too late: their client goes on although it was sent GOAWAY long ago.
    pub fn refuses_requests(&self) -> bool {
        self.left_at
            .is_some_and(|at| clock::now() >= at + ClientWait::LastStream.limit(&self.timeouts))
    }

    pub fn is_leaving(&self) -> bool {
        matches!(
            self.state,
            RequestState::Leaving(_) | RequestState::LeavingBusy
        )
    }

    /// The client was sent the last GOAWAY.
    pub fn record_close(&mut self) {
        self.state = RequestState::Closed(clock::now());
    }

    /// Ready when the client has had enough time to take the last GOAWAY.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let RequestState::Closed(since) = self.state else {
            return Poll::Ready(());
        };
        self.timer
            .poll(cx, since + ClientWait::LingerPiece.limit(&self.timeouts))
    }

    /// Ready when something is due. `busy`: requests are under way.
    pub fn poll(&mut self, cx: &mut Context<'_>, traffic: &Traffic, busy: bool) -> Poll<Due> {
        self.observe(traffic, busy);
        loop {
            let (due, what) = self.next();
            ready!(self.timer.poll(cx, due));
            match what {
                Some(what) => return Poll::Ready(what),
                None => {
                    if self.look_after(cx, traffic) {
                        return Poll::Ready(Due::Close);
                    }
                }
            }
        }
    }

    fn observe(&mut self, traffic: &Traffic, busy: bool) {
        self.state = match (self.state, busy) {
            (RequestState::Busy, false) => RequestState::Idle(clock::now()),
            (RequestState::LeavingBusy, false) => RequestState::Leaving(clock::now()),
            (RequestState::Leaving(_), true) if !self.refuses_requests() => {
                RequestState::LeavingBusy
            }
            (state, _) => state,
        };
        if self.unacknowledged.is_some() {
            self.observe_settings(traffic);
        }
        if !traffic.unfinished.load(Relaxed) {
            self.unfinished = None;
            return;
        }
        let finished = traffic.finished.load(Relaxed);
        if self
            .unfinished
            .is_none_or(|(noticed, _)| noticed != finished)
        {
            self.unfinished = Some((finished, clock::now()));
        }
    }

    /// An upload over a slow line is no silence.
    fn observe_settings(&mut self, traffic: &Traffic) {
        let read = traffic.bytes_read.load(Relaxed);
        if traffic.acknowledged.load(Relaxed) {
            self.unacknowledged = None;
        } else if read <= AHEAD_OF_ACK
            && self.unacknowledged.is_some_and(|(before, _)| before < read)
        {
            self.unacknowledged = Some((read, clock::now()));
        }
    }

    /// The step that is due next, and when. `None`: the client is looked after.
    fn next(&self) -> (Instant, Option<Due>) {
        let mut next = (self.ping_due, None);
        let mut at_most = |due, what| {
            if due < next.0 {
                next = (due, Some(what));
            }
        };
        let limit = |wait: ClientWait| wait.limit(&self.timeouts);
        match self.state {
            RequestState::Fresh(since) => {
                at_most(since + limit(ClientWait::RequestHead), Due::Close)
            }
            RequestState::Leaving(since) => {
                at_most(since + limit(ClientWait::LastStream), Due::Close)
            }
            RequestState::Idle(since) => {
                at_most(since + limit(ClientWait::NextRequest), Due::GoAway)
            }
            RequestState::Busy | RequestState::LeavingBusy | RequestState::Closed(_) => {}
        }
        if let Some((_, since)) = self.unacknowledged {
            at_most(since + limit(ClientWait::SettingsAck), Due::SettingsTimeout);
        }
        if let Some((_, since)) = self.unfinished {
            at_most(since + limit(ClientWait::RequestHead), Due::Close);
        }
        next
    }

    /// Sends a PING if the client was silent. True: it did not answer the one before.
    fn look_after(&mut self, cx: &mut Context<'_>, traffic: &Traffic) -> bool {
        let read = traffic.bytes_read.load(Relaxed);
        let silent = std::mem::replace(&mut self.bytes_read, read) == read;
        if silent && self.pinged {
            return true;
        }
        let sent = self.ping.as_mut().is_some_and(|ping| {
            // Takes the answer to the one before, without which none can be sent.
            let _ = ping.poll_pong(cx);
            silent && ping.send_ping(Ping::opaque()).is_ok()
        });
        self.pinged = sent;
        let wait = if sent {
            ClientWait::PingAnswer
        } else {
            ClientWait::SignOfLife
        };
        self.ping_due = clock::now() + wait.limit(&self.timeouts);
        false
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn deadlines() -> Deadlines {
        Deadlines::new(ClientTimeouts::new(SECOND, 5 * SECOND, 20 * SECOND))
    }

    fn acknowledged() -> Traffic {
        let traffic = Traffic::default();
        traffic.acknowledged.store(true, Relaxed);
        traffic
    }

    /// The step that becomes due, and after how many seconds.
    async fn due(deadlines: &mut Deadlines, traffic: &Traffic, busy: bool) -> (Due, u64) {
        let begun = clock::now();
        let due = poll_fn(|cx| deadlines.poll(cx, traffic, busy)).await;
        (due, (clock::now() - begun).as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_has_a_heads_time_at_first_and_then_that_between_requests() {
        let (mut deadlines, traffic) = (deadlines(), acknowledged());
        assert_eq!(due(&mut deadlines, &traffic, false).await, (Due::Close, 1));
        deadlines.record_request();
        assert_eq!(due(&mut deadlines, &traffic, false).await, (Due::GoAway, 5));
        deadlines.record_go_away();
        assert_eq!(due(&mut deadlines, &traffic, false).await, (Due::Close, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn settings_must_be_acknowledged_whatever_else_comes() {
        let (mut deadlines, traffic) = (deadlines(), Traffic::default());
        deadlines.record_request();
        assert_eq!(
            due(&mut deadlines, &traffic, true).await,
            (Due::SettingsTimeout, 20)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_acknowledgement_may_wait_behind_a_slow_upload_but_not_behind_a_long_one() {
        let (mut deadlines, traffic) = (deadlines(), Traffic::default());
        deadlines.record_request();
        let mut upload = async |bytes| {
            traffic.bytes_read.fetch_add(bytes, Relaxed);
            tokio::time::timeout(SECOND * 15, due(&mut deadlines, &traffic, true)).await
        };
        for _ in 0..16 {
            assert!(upload(4096).await.is_err());
        }
        assert!(
            upload(AHEAD_OF_ACK)
                .await
                .is_ok_and(|(due, after)| due == Due::SettingsTimeout && after == 5)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_block_that_drips_gains_no_time() {
        let (mut deadlines, traffic) = (deadlines(), acknowledged());
        deadlines.record_request();
        traffic.unfinished.store(true, Relaxed);
        let mut drip = async || {
            traffic.bytes_read.fetch_add(1, Relaxed);
            tokio::time::timeout(SECOND * 3 / 5, due(&mut deadlines, &traffic, true)).await
        };
        assert!(drip().await.is_err());
        assert_eq!(drip().await.unwrap().0, Due::Close);
        // Blocks that end, and others that begin, are no drip.
        for finished in 1..9 {
            traffic.finished.store(finished, Relaxed);
            assert!(
                tokio::time::timeout(SECOND * 3 / 5, due(&mut deadlines, &traffic, true))
                    .await
                    .is_err()
            );
        }
    }
}
