//! The time limits of an HTTP/2 connection: the waits of [`ClientWait`] that are no stream's own.
//!
//! A connection has the time of a head for its first request, preface and SETTINGS included. A
//! frame or header block that has begun has that time, too, even while other requests are under
//! way: nothing else can be read meanwhile.

use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use h2::{Ping, PingPong};

use super::client_socket::Traffic;
use tollgate_limiter::clock::{self, Instant};
use tollgate_wire::http::deadline::{ClientTimeouts, ClientWait, Wait as _};
use tollgate_wire::http::timer::Timer;

/// Bytes that a client may have under way when our SETTINGS reach it, before its acknowledgement:
/// content of 65 535 bytes, its frames, and heads.
const AHEAD_OF_ACK: u64 = 128 * 1024;

/// The step that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The client is asked to make no more requests.
    GoAway,
    /// The connection ends.
    Close,
    /// The connection ends: the client has not acknowledged our SETTINGS (RFC 9113 §6.5.3).
    SettingsTimeout,
}

/// The waits of one connection.
pub struct Deadlines {
    timeouts: ClientTimeouts,
    timer: Timer,
    state: RequestState,
    /// The progress of a client that has not acknowledged our SETTINGS, in bytes.
    unacknowledged: Option<Progress>,
    /// The time of the first GOAWAY.
    left_at: Option<Instant>,
    /// The progress in finished units before the unfinished one.
    unfinished: Option<Progress>,
    ping: Option<PingPong>,
    /// The time of the next check for signs of life.
    ping_due: Instant,
    pinged: bool,
    /// The bytes read at the latest check for signs of life.
    bytes_read: u64,
}

/// A count that grows, and the time since when it has not.
#[derive(Clone, Copy, Debug)]
struct Progress {
    count: u64,
    since: Instant,
}

/// The requests of a connection.
#[derive(Clone, Copy, Debug)]
enum RequestState {
    /// No request has come, since this time.
    Fresh(Instant),
    /// Requests are under way.
    Busy,
    /// No request is under way, since this time.
    Idle(Instant),
    /// GOAWAY was sent, and requests are under way.
    LeavingBusy,
    /// GOAWAY was sent, and no request is under way since this time.
    Leaving(Instant),
    /// All requests were dropped, at this time.
    Closed(Instant),
}

impl Deadlines {
    pub fn new(timeouts: ClientTimeouts) -> Self {
        let now = clock::now();
        Self {
            timeouts,
            timer: Timer::default(),
            state: RequestState::Fresh(now),
            unacknowledged: Some(Progress {
                count: 0,
                since: now,
            }),
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

    /// Records that a request has come.
    pub fn record_request(&mut self) {
        if let RequestState::Fresh(_) | RequestState::Idle(_) = self.state {
            self.state = RequestState::Busy;
        }
    }

    /// Records that the client was sent GOAWAY.
    pub fn record_go_away(&mut self) {
        if !self.is_leaving() {
            self.state = RequestState::LeavingBusy;
            self.left_at = Some(clock::now());
        }
    }

    /// Whether requests come too late: the client was sent GOAWAY long ago, and makes requests all
    /// the same.
    pub fn refuses_requests(&self) -> bool {
        match self.left_at {
            Some(left_at) => clock::now() >= left_at + ClientWait::LastStream.limit(&self.timeouts),
            None => false,
        }
    }

    /// Whether no request has come yet.
    pub fn awaits_first_request(&self) -> bool {
        matches!(self.state, RequestState::Fresh(_))
    }

    pub fn is_leaving(&self) -> bool {
        matches!(
            self.state,
            RequestState::Leaving(_) | RequestState::LeavingBusy
        )
    }

    /// Records that the client was sent the last GOAWAY.
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
            let next = self.next();
            ready!(self.timer.poll(cx, next.at));
            if let Some(due) = next.due {
                return Poll::Ready(due);
            }
            if self.is_dead(cx, traffic) {
                return Poll::Ready(Due::Close);
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
        match self.unfinished {
            Some(noticed) if noticed.count == finished => {}
            Some(_) | None => self.unfinished = Some(Progress::now(finished)),
        }
    }

    /// Observes a client that has not acknowledged our SETTINGS. An upload over a slow line is no
    /// silence.
    fn observe_settings(&mut self, traffic: &Traffic) {
        let read = traffic.bytes_read.load(Relaxed);
        if traffic.acknowledged.load(Relaxed) {
            self.unacknowledged = None;
        } else if let Some(before) = self.unacknowledged
            && before.count < read
            && read <= AHEAD_OF_ACK
        {
            self.unacknowledged = Some(Progress::now(read));
        }
    }

    /// The step that comes next.
    fn next(&self) -> NextStep {
        let mut next = NextStep {
            at: self.ping_due,
            due: None,
        };
        match self.state {
            RequestState::Fresh(since) => {
                next.reduce(self.end(ClientWait::RequestHead, since), Due::Close);
            }
            RequestState::Leaving(since) => {
                next.reduce(self.end(ClientWait::LastRequest, since), Due::Close);
            }
            RequestState::Idle(since) => {
                next.reduce(self.end(ClientWait::NextRequest, since), Due::GoAway);
            }
            RequestState::Busy | RequestState::LeavingBusy | RequestState::Closed(_) => {}
        }
        if let Some(progress) = self.unacknowledged {
            let end = self.end(ClientWait::SettingsAck, progress.since);
            next.reduce(end, Due::SettingsTimeout);
        }
        if let Some(progress) = self.unfinished {
            next.reduce(
                self.end(ClientWait::RequestHead, progress.since),
                Due::Close,
            );
        }
        next
    }

    fn end(&self, wait: ClientWait, since: Instant) -> Instant {
        since + wait.limit(&self.timeouts)
    }

    /// Whether the client did not answer a PING. Sends a PING to a client that was silent.
    fn is_dead(&mut self, cx: &mut Context<'_>, traffic: &Traffic) -> bool {
        let read = traffic.bytes_read.load(Relaxed);
        let silent = std::mem::replace(&mut self.bytes_read, read) == read;
        if silent && self.pinged {
            return true;
        }
        self.pinged = false;
        if let Some(ping) = &mut self.ping {
            // Takes the answer to the PING before: no other can be sent without it.
            let _ = ping.poll_pong(cx);
            self.pinged = silent && ping.send_ping(Ping::opaque()).is_ok();
        }
        let wait = if self.pinged {
            ClientWait::PingAnswer
        } else {
            ClientWait::SignOfLife
        };
        self.ping_due = clock::now() + wait.limit(&self.timeouts);
        false
    }
}

/// The next step, and its time.
struct NextStep {
    at: Instant,
    /// The step. `None`: a check for signs of life.
    due: Option<Due>,
}

impl NextStep {
    /// Takes `due` as the next step, if it comes before the present one.
    fn reduce(&mut self, at: Instant, due: Due) {
        if at < self.at {
            self.at = at;
            self.due = Some(due);
        }
    }
}

impl Progress {
    fn now(count: u64) -> Self {
        Self {
            count,
            since: clock::now(),
        }
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

    /// The step that becomes due, and the seconds before it.
    async fn due(deadlines: &mut Deadlines, traffic: &Traffic, busy: bool) -> (Due, u64) {
        let begun = clock::now();
        let due = poll_fn(|cx| deadlines.poll(cx, traffic, busy)).await;
        (due, (clock::now() - begun).as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_has_a_heads_time_at_first_and_then_that_between_requests() {
        let mut deadlines = deadlines();
        let traffic = acknowledged();
        assert_eq!(due(&mut deadlines, &traffic, false).await, (Due::Close, 1));
        deadlines.record_request();
        assert_eq!(due(&mut deadlines, &traffic, false).await, (Due::GoAway, 5));
        deadlines.record_go_away();
        assert_eq!(due(&mut deadlines, &traffic, false).await, (Due::Close, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_requests_does_not_have_the_time_of_a_head_to_leave() {
        let mut deadlines = Deadlines::new(ClientTimeouts::new(SECOND * 9, SECOND, SECOND));
        let traffic = acknowledged();
        deadlines.record_request();
        deadlines.record_go_away();
        assert_eq!(due(&mut deadlines, &traffic, false).await, (Due::Close, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn settings_must_be_acknowledged_whatever_else_comes() {
        let mut deadlines = deadlines();
        let traffic = Traffic::default();
        deadlines.record_request();
        assert_eq!(
            due(&mut deadlines, &traffic, true).await,
            (Due::SettingsTimeout, 20)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_acknowledgement_may_wait_behind_a_slow_upload_but_not_behind_a_long_one() {
        let mut deadlines = deadlines();
        let traffic = Traffic::default();
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
        let mut deadlines = deadlines();
        let traffic = acknowledged();
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
