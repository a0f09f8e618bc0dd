//! How long a connection may make us wait, with one timer for its whole life.
//!
//! The timer is armed early rather than often: when it fires, what is being waited for by then decides whether time is up.
//! So an ordinary request arms nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep_until};

use crate::clock::{self, Instant};
use crate::server::{LONGEST_WAIT, ListenerSpec};

/// What the client is to do next. Two equal waits are one wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Send its first byte, since it connected.
    FirstByte(Instant),
    /// Send another request, since the last one ended.
    Request(Instant),
    /// Send the rest of this header section, counted from the connection's first.
    HeadRest(u64),
    /// Send more of a body, after this many reads.
    Body(u64),
    /// Nothing: it is our turn.
    Turn,
}

/// The limits and the timer.
#[derive(Debug)]
pub struct Patience {
    header: Duration,
    keepalive: Duration,
    body: Duration,
    wait: Wait,
    since: Instant,
    stalled: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    pub fn new(spec: &ListenerSpec) -> Self {
        Self {
            header: spec.header_timeout.min(LONGEST_WAIT),
            keepalive: spec.keepalive_timeout.min(LONGEST_WAIT),
            body: spec.body_timeout.min(LONGEST_WAIT),
            wait: Wait::Turn,
            since: clock::now(),
            stalled: None,
            timer: None,
        }
    }

    /// Ready once the client has taken too long over `wait`.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, wait: Wait) -> Poll<()> {
        loop {
            let due = self.due(wait);
            ready!(self.poll_timer(cx, due));
            if wait != Wait::Turn && clock::now() >= due {
                return Poll::Ready(());
            }
        }
    }

    /// Ready once a write has been stuck for too long.
    pub fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let due = *self.stalled.get_or_insert_with(clock::now) + self.body;
        loop {
            ready!(self.poll_timer(cx, due));
            if clock::now() >= due {
                return Poll::Ready(());
            }
        }
    }

    /// A write went through.
    pub fn wrote(&mut self) {
        self.stalled = None;
    }

    /// Whether the client leaves what we wrote unread.
    pub fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// Ready at `due`.
    pub fn poll_until(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        while clock::now() < due {
            ready!(self.poll_timer(cx, due));
        }
        Poll::Ready(())
    }

    fn due(&mut self, wait: Wait) -> Instant {
        if wait != self.wait {
            self.wait = wait;
            if matches!(wait, Wait::HeadRest(_) | Wait::Body(_)) {
                self.since = clock::now();
            }
        }
        match wait {
            Wait::FirstByte(since) => since + self.header,
            Wait::Request(since) => since + self.keepalive,
            Wait::HeadRest(_) => self.since + self.header,
            Wait::Body(_) => self.since + self.body,
            Wait::Turn => self.next_look(),
        }
    }

    /// While it is our turn nothing is due, but the connection's task must wake now and then: the wait that follows a
    /// response begins without anyone telling.
    fn next_look(&self) -> Instant {
        match &self.timer {
            Some(timer) if !timer.is_elapsed() => timer.deadline(),
            _ => clock::now() + self.keepalive,
        }
    }

    /// Ready at `due` or before.
    fn poll_timer(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.is_elapsed() || timer.deadline() > due {
            timer.as_mut().reset(due);
        }
        timer.as_mut().poll(cx)
    }
}
