//! The task of an HTTP/2 connection: accepts streams, keeps its deadlines, and ends it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::Reason;
use h2::server::Connection;

use super::client_socket::ClientSocket;
use super::deadlines::{Deadlines, Due};
use super::session::H2Session;
use super::stream;
use crate::connection_limit::ClientActivity;
use crate::drain::Drain;
use crate::handler::Handler;
use tollgate_limiter::clock;
use tollgate_wire::http::h1::upgrade::Io;

/// Asks a connection to end in order: the server drains, or another connection needs room.
#[derive(Clone, Copy)]
pub struct LeaveSignal<'a> {
    pub drain: &'a Drain,
    pub activity: &'a ClientActivity,
}

impl LeaveSignal<'_> {
    fn is_given(self) -> bool {
        self.drain.has_begun() || self.activity.must_close()
    }
}

/// A connection that speaks HTTP/2.
pub struct H2Connection<H, S> {
    http: Connection<ClientSocket<S>, Bytes>,
    session: Arc<H2Session<H>>,
    deadlines: Deadlines,
    /// The connection ends as soon as its GOAWAY is written.
    closing: bool,
    /// Requests were under way when they were last counted, or the connection was leaving: it could
    /// not make room.
    busy: bool,
}

impl<H: Handler, S: Io> H2Connection<H, S> {
    pub fn new(mut http: Connection<ClientSocket<S>, Bytes>, session: Arc<H2Session<H>>) -> Self {
        let mut deadlines = Deadlines::new(session.timeouts);
        deadlines.ping_with(http.ping_pong());
        Self {
            http,
            session,
            deadlines,
            closing: false,
            busy: true,
        }
    }

    /// Serves until the connection ends. Its streams end with it.
    pub async fn serve(mut self, leave: LeaveSignal<'_>) -> Result<(), h2::Error> {
        // Polled once: from then on a drain wakes this task, which then checks whether it has
        // begun.
        let mut waiting = leave.drain.clone();
        let mut begun = pin!(waiting.begun());
        poll_fn(|cx| {
            self.session.waker.register(cx.waker());
            leave.activity.wake(cx.waker());
            Poll::Ready(begun.as_mut().poll(cx).is_ready())
        })
        .await;
        poll_fn(|cx| self.poll(cx, leave)).await
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        leave: LeaveSignal<'_>,
    ) -> Poll<Result<(), h2::Error>> {
        loop {
            if let Poll::Ready(ended) = self.poll_accept(cx) {
                return Poll::Ready(ended);
            }
            if self.closing {
                // A client that does not read its GOAWAY is not waited for.
                return self.deadlines.poll_closed(cx).map(Ok);
            }
            let traffic = &self.session.traffic;
            if let Some(violation) = traffic.violation() {
                self.close(violation.reason());
            } else if leave.activity.must_close() && !self.http.has_streams() {
                // Another client waits, and this one may be gone. NO_ERROR says which requests were
                // not begun.
                self.close(Reason::NO_ERROR);
            } else if leave.is_given() && !self.deadlines.is_leaving() {
                self.go_away();
            } else if traffic.write_blocked.load(Relaxed) || !self.session.reset_broken() {
                let busy = self.http.has_streams();
                self.record_activity(busy, leave.activity);
                match ready!(self.deadlines.poll(cx, &self.session.traffic, busy)) {
                    Due::GoAway => self.go_away(),
                    // Requests that were not begun may go elsewhere: NO_ERROR says so.
                    Due::Close => self.close(Reason::NO_ERROR),
                    Due::SettingsTimeout => self.close(Reason::SETTINGS_TIMEOUT),
                }
            }
        }
    }

    fn record_activity(&mut self, busy: bool, activity: &ClientActivity) {
        let busy = busy || self.deadlines.is_leaving();
        if std::mem::replace(&mut self.busy, busy) != busy {
            if busy {
                activity.set_active()
            } else if self.deadlines.awaits_first_request() {
                activity.set_unused(clock::now())
            } else {
                activity.set_idle(clock::now())
            }
        }
    }

    /// Serves new streams, and moves all streams on. Ready when the connection has ended.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let mut arrived = None;
        while let Some(accepted) = ready!(pin!(self.http.accept()).poll(cx)) {
            let (request, mut sender) = accepted?;
            if self.deadlines.refuses_requests() {
                sender.send_reset(Reason::REFUSED_STREAM);
                continue;
            }
            self.deadlines.record_request();
            // The clock is read once for streams that came together.
            let arrived = *arrived.get_or_insert_with(clock::now);
            tokio::spawn(stream::serve(
                Arc::clone(&self.session),
                request,
                sender,
                arrived,
            ));
        }
        Poll::Ready(Ok(()))
    }

    /// Asks the client to make no more requests. Requests under way go on.
    fn go_away(&mut self) {
        self.http.graceful_shutdown();
        self.deadlines.record_go_away();
    }

    /// Ends the connection, with all its streams.
    fn close(&mut self, reason: Reason) {
        self.http.abrupt_shutdown(reason);
        self.deadlines.record_close();
        self.closing = true;
    }
}
