//! A request's place in a line, from its joining to its decision.
//!
//! Guarantees that a request waits no longer than its bound, and makes room at once when it leaves,
//! for whatever reason. The first request without a turn makes the line's call, one at a time: on
//! behalf of all that are like it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout_at;

use crate::clock::{self, Instant};
use crate::decide::check::Checks;
use crate::decide::decision::Decision;
use crate::decide::limiter::Limiter;
use crate::decide::units::{DelayedDecision, UnitsCall};
use crate::limit::key::Key;
use crate::node::permits::FreePermitWatch;
use crate::request::queue::limit_queue::{Queue, TooLong, WaitingFor};
use crate::request::queue::line::{QueueStep, QueuedRequest, next_ticket};

/// The time at which a request came, among others: see [`Ticket::join`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalNumber(u64);

/// A request that may join a line.
#[derive(Clone, Copy)]
pub struct JoiningRequest<'a> {
    pub arrival: ArrivalNumber,
    pub checks: &'a Checks,
    pub limiter: &'a Limiter,
}

/// A place in a line. It is left when dropped.
pub struct Ticket {
    queue: Arc<Queue>,
    key: Key,
    number: u64,
    called: Arc<Notify>,
    joined_at: Instant,
    /// Sees the permits that come back, where one is waited for.
    freed: Option<FreePermitWatch>,
}

/// The call of a line. When it is dropped, the line's first request may make another.
struct LineCall {
    queue: Arc<Queue>,
    key: Key,
    line: u64,
    call: UnitsCall,
    started: Instant,
    ended: bool,
}

impl ArrivalNumber {
    /// Now, after all others so far.
    pub fn now() -> Self {
        Self(next_ticket())
    }
}

impl Ticket {
    /// Joins the line of a key. Where there is none, `retry_after` is how long until the bucket has
    /// room.
    ///
    /// # Errors
    /// When it is known by now that the wait would be in vain.
    pub fn join(
        queue: &Arc<Queue>,
        waiting_for: &WaitingFor<'_>,
        joining: JoiningRequest<'_>,
        retry_after: Duration,
    ) -> Result<Self, TooLong> {
        let now = clock::now();
        let key = waiting_for.key;
        let bounds = waiting_for.bounds;
        let request = joining.queued(waiting_for, now);
        let called = request.called.clone();
        let mut lines = queue.lock();
        let wait = lines.line(key).map_or(retry_after, |line| line.wait(now));
        if wait > bounds.max_wait || !lines.make_room(key, bounds.max_waiting.get()) {
            return Err(TooLong(wait));
        }
        let number = lines
            .join(key, request, now + retry_after)
            .ok_or(TooLong(wait))?;
        drop(lines);
        Ok(joining.ticket(queue, key, number, called, now))
    }

    /// Gives up a grant to requests that came before, and joins their line. `Continue`: no such
    /// request waits, so the grant stands.
    pub fn yield_grant(
        queue: &Arc<Queue>,
        waiting_for: &WaitingFor<'_>,
        joining: JoiningRequest<'_>,
        decision: Decision,
    ) -> ControlFlow<Self, Decision> {
        let now = clock::now();
        let key = waiting_for.key;
        let mut lines = queue.lock();
        if !lines
            .line(key)
            .is_some_and(|line| line.comes_before(joining.arrival.0, joining.checks, now))
        {
            return ControlFlow::Continue(decision);
        }
        let request = joining.queued(waiting_for, now);
        let called = request.called.clone();
        // There is a line, so there is a number.
        let number = lines
            .with(key, |line| line.join_granted(request, decision, now))
            .unwrap_or_default();
        drop(lines);
        ControlFlow::Break(joining.ticket(queue, key, number, called, now))
    }

    /// Waits for a decision on `checks`, which must be those of the request. After a denial it
    /// keeps its place, and [`Self::put_off`] follows. `None`: its turn does not come in time.
    pub async fn turn(&self, limiter: &Limiter, checks: &Checks) -> Option<Decision> {
        self.queue
            .lock()
            .with(&self.key, |line| line.replace_checks(self.number, checks));
        loop {
            match self.step() {
                QueueStep::Decided(decision) => return Some(decision),
                QueueStep::GiveUp => return None,
                QueueStep::Call(call) => self.call(limiter, call),
                QueueStep::Wait {
                    until,
                    for_permit: false,
                } => {
                    let _ = timeout_at(until, self.called.notified()).await;
                }
                QueueStep::Wait {
                    until,
                    for_permit: true,
                } => tokio::select! {
                    _ = timeout_at(until, self.called.notified()) => {}
                    () = until_free(self.freed.as_ref()) => self.put_off(Duration::ZERO),
                },
            }
        }
    }

    fn step(&self) -> QueueStep {
        let mut lines = self.queue.lock();
        let now = clock::now();
        let call_time = lines.call_time();
        lines
            .with(&self.key, |line| {
                line.step(&self.key, self.number, now, call_time)
            })
            .unwrap_or(QueueStep::GiveUp)
    }

    /// Makes the line's call: at once if it needs no store, in a task otherwise, which goes on when
    /// this request leaves.
    fn call(&self, limiter: &Limiter, call: UnitsCall) {
        let line = self.queue.lock().line(&self.key).map_or(0, |line| line.id);
        let queue = self.queue.clone();
        let key = self.key.clone();
        let started = clock::now();
        let mut call = LineCall {
            queue,
            key,
            line,
            call,
            started,
            ended: false,
        };
        match limiter.units_locally(&call.call) {
            Some(decisions) => call.end(decisions),
            None => {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    let decisions = limiter.units_by_store(&call.call).await;
                    call.end(decisions);
                });
            }
        }
    }

    /// Delays the first request without a turn, which was denied, by `retry_after`.
    pub fn put_off(&self, retry_after: Duration) {
        let ready_at = clock::now() + retry_after;
        self.queue
            .lock()
            .with(&self.key, |line| line.put_off(ready_at));
    }

    /// Like [`Self::put_off`], where another limit than the one waited for denied the request.
    pub fn put_off_by_another(&self, retry_after: Duration) {
        let ready_at = clock::now() + retry_after;
        self.queue
            .lock()
            .with(&self.key, |line| line.put_off_by_another(ready_at));
    }

    /// The time until this request's turn.
    pub fn wait(&self) -> Duration {
        let now = clock::now();
        self.queue
            .lock()
            .line(&self.key)
            .map_or(Duration::ZERO, |line| {
                line.ready_at().saturating_duration_since(now)
            })
    }

    /// The key that is waited for.
    pub fn key(&self) -> &Key {
        &self.key
    }
}

/// Waits until a permit may be free: forever, where none is waited for.
async fn until_free(watch: Option<&FreePermitWatch>) {
    match watch {
        Some(watch) => watch.until_free().await,
        None => std::future::pending().await,
    }
}

impl JoiningRequest<'_> {
    fn queued(&self, waiting_for: &WaitingFor<'_>, now: Instant) -> QueuedRequest {
        let may_advance = self.limiter.may_advance(self.checks, waiting_for.key);
        QueuedRequest {
            ticket: self.arrival.0,
            checks: Arc::new(self.checks.clone()),
            charge: Duration::from_micros(waiting_for.charge_us),
            advances: !waiting_for.refunded && may_advance,
            deadline: now + waiting_for.bounds.max_wait,
            called: Arc::new(Notify::new()),
        }
    }

    /// The place in the line of `key` that this request has joined.
    fn ticket(
        &self,
        queue: &Arc<Queue>,
        key: &Key,
        number: u64,
        called: Arc<Notify>,
        joined_at: Instant,
    ) -> Ticket {
        queue.count_joined();
        let mut needs = self.checks.permits.iter().map(|check| &check.need);
        let need = needs.find(|need| need.key == *key);
        Ticket {
            queue: queue.clone(),
            key: key.clone(),
            number,
            called,
            joined_at,
            freed: need.map(|need| self.limiter.permits().watch(need)),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let now = clock::now();
        self.queue
            .lock()
            .with(&self.key, |line| line.leave(self.number, now));
        self.queue
            .count_left(now.saturating_duration_since(self.joined_at));
    }
}

impl LineCall {
    fn end(&mut self, decisions: Vec<DelayedDecision>) {
        self.ended = true;
        let now = clock::now();
        let mut lines = self.queue.lock();
        if !decisions.is_empty() {
            lines.observe_call(now.saturating_duration_since(self.started));
        }
        lines.with(&self.key, |line| {
            if line.id == self.line {
                line.end_call(&self.call.checks, decisions, now);
            }
        });
    }
}

impl Drop for LineCall {
    fn drop(&mut self) {
        // Dropped with its runtime.
        if !self.ended {
            self.end(Vec::new());
        }
    }
}
