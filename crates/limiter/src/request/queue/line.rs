//! The line of one key: requests that wait, and the turns that are theirs.
//!
//! Guarantees first come, first served: the first turn is always the first request's. A turn
//! belongs to the line, so that of a request which leaves goes to the one behind. Knows no clock
//! and asks nobody.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Instant;
use crate::decide::check::Checks;
use crate::decide::decision::Decision;
use crate::decide::units::{DelayedDecision, UnitsCall};
use crate::limit::key::Key;

/// Tokens are charged so long before they are there, plus the time of two calls. A stall of the
/// machine shorter than a half of it loses none. It is as long as a leased token may live, since
/// both bound how late a token is spent.
const ADVANCE: Duration = Duration::from_millis(50);

/// The longest time of a call that the advance allows for.
const LONGEST_CALL: Duration = Duration::from_millis(50);

/// The requests that wait for one key, in the order they came.
pub(super) struct KeyLine {
    /// The line among all that the queue has had.
    pub id: u64,
    waiters: VecDeque<QueuedRequest>,
    /// The turns of the first requests, in order.
    turns: VecDeque<ScheduledTurn>,
    /// The time at which the first request without a turn may pass, as far as is known.
    ready_at: Instant,
    /// Another limit of that request denied it: it is not asked for, nor in advance, before this.
    not_before: Option<Instant>,
    /// A call for the first request without a turn is under way.
    calling: bool,
    /// The denial that the first request without a turn has to look at.
    denied: Option<Decision>,
}

/// A request that waits.
pub(super) struct QueuedRequest {
    pub ticket: u64,
    pub checks: Arc<Checks>,
    /// Time in which the bucket yields one such request. 0: what is waited for is a permit, and
    /// nobody knows the time.
    pub charge: Duration,
    /// Whether its tokens may be charged in advance.
    pub advances: bool,
    pub deadline: Instant,
    pub called: Arc<Notify>,
}

/// A granted request's time to go on.
struct ScheduledTurn {
    at: Instant,
    decision: Decision,
    checks: Arc<Checks>,
}

/// The next step of a request in line.
pub(super) enum QueueStep {
    /// The request has left the line, granted; or is denied, and still in it.
    Decided(Decision),
    /// The turn of the request does not come in time.
    GiveUp,
    /// The request makes the line's call. [`KeyLine::end_call`] follows.
    Call(UnitsCall),
    Wait {
        until: Instant,
        for_permit: bool,
    },
}

/// The number of a request that comes now. Later ones are greater.
pub(super) fn next_ticket() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl KeyLine {
    /// A line whose first request may pass at `ready_at`.
    pub fn new(id: u64, ready_at: Instant) -> Self {
        let waiters = VecDeque::new();
        let turns = VecDeque::new();
        Self {
            id,
            waiters,
            turns,
            ready_at,
            not_before: None,
            calling: false,
            denied: None,
        }
    }

    /// Requests in line.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Requests without a turn.
    pub fn waiting(&self) -> usize {
        self.waiters.len() - self.turns.len()
    }

    /// The least wait of one more request: until the others have passed.
    pub fn wait(&self, now: Instant) -> Duration {
        let Some(first) = self.waiters.get(self.turns.len()) else {
            return self.ready_at.saturating_duration_since(now);
        };
        let others = self
            .waiters
            .iter()
            .skip(self.turns.len() + 1)
            .map(|waiter| waiter.charge);
        self.ready_at.saturating_duration_since(now) + first.charge + others.sum::<Duration>()
    }

    /// Adds a request, at its place among those that came before and after it: its ticket. Where
    /// turns behind that place are for other checks, it goes to the end.
    pub fn join(&mut self, mut request: QueuedRequest) -> u64 {
        let mut place = self
            .waiters
            .partition_point(|waiter| waiter.ticket < request.ticket);
        if self
            .turns
            .iter()
            .skip(place)
            .any(|turn| !same(&turn.checks, &request.checks))
        {
            (place, request.ticket) = (self.waiters.len(), next_ticket());
        }
        let ticket = request.ticket;
        self.waiters.insert(place, request);
        self.call_from(place);
        ticket
    }

    /// Whether a grant at `now` to the request of `arrival`, which is not in line, is due to one
    /// that came before it.
    pub fn comes_before(&self, arrival: u64, checks: &Checks, now: Instant) -> bool {
        let place = self.turns_by(now);
        let earlier = self
            .waiters
            .get(place)
            .is_some_and(|first| first.ticket < arrival);
        earlier
            && self
                .waiters
                .iter()
                .skip(place)
                .take(self.turns.len() + 1 - place)
                .all(|waiter| *waiter.checks == *checks)
    }

    /// Adds a granted request of which [`Self::comes_before`] says so: its grant is the first turn
    /// to come.
    pub fn join_granted(
        &mut self,
        request: QueuedRequest,
        decision: Decision,
        now: Instant,
    ) -> u64 {
        let place = self.turns_by(now);
        let checks = request.checks.clone();
        let ticket = self.join(request);
        self.turns.insert(
            place,
            ScheduledTurn {
                at: now,
                decision,
                checks,
            },
        );
        self.call_from(place);
        ticket
    }

    /// The turns that have come.
    fn turns_by(&self, now: Instant) -> usize {
        self.turns.partition_point(|turn| turn.at <= now)
    }

    /// Removes the last request, if it has no turn: it makes room for another key.
    pub fn remove_last(&mut self) {
        if self.waiting() > 0
            && let Some(last) = self.waiters.pop_back()
        {
            last.called.notify_one();
        }
    }

    /// Takes a request out at `now`. Its turn, if it has one, goes to those behind.
    pub fn leave(&mut self, ticket: u64, now: Instant) {
        let Some(place) = self.place(ticket) else {
            return;
        };
        let for_permit = self
            .waiters
            .remove(place)
            .is_some_and(|waiter| waiter.charge.is_zero());
        if place == self.turns.len() {
            // A permit may have come back for it just now. The next one looks.
            if for_permit {
                self.ready_at = now;
            }
            // The denial was this request's. The next one asks by itself.
            self.denied = None;
        }
        self.pass_on(place);
        self.call_from(place);
    }

    /// Gives the turns from `place` on to the requests that are there now. A turn that is for other
    /// checks is dropped.
    fn pass_on(&mut self, place: usize) {
        let turns = self.turns.iter().skip(place);
        let fitting = turns
            .zip(self.waiters.iter().skip(place))
            .take_while(|(turn, waiter)| same(&turn.checks, &waiter.checks))
            .count();
        self.turns.remove(place + fitting);
    }

    /// Wakes the requests with a turn from `place` on, and the first one without.
    fn call_from(&self, place: usize) {
        for waiter in self.waiters.iter().take(self.turns.len() + 1).skip(place) {
            waiter.called.notify_one();
        }
    }

    /// The next step of a request, at `now`. `call_time`: how long a call takes.
    pub fn step(&mut self, key: &Key, ticket: u64, now: Instant, call_time: Duration) -> QueueStep {
        let Some(place) = self.place(ticket) else {
            return QueueStep::GiveUp;
        };
        let deadline = self.waiters[place].deadline;
        if let Some(turn) = self.turns.get(place) {
            let at = turn.at;
            if at <= now && at <= deadline {
                return self.pass(place);
            }
            return if at > deadline {
                QueueStep::GiveUp
            } else {
                QueueStep::Wait {
                    until: at,
                    for_permit: false,
                }
            };
        }
        if place > self.turns.len() || self.calling {
            return if now >= deadline {
                QueueStep::GiveUp
            } else {
                QueueStep::Wait {
                    until: deadline,
                    for_permit: false,
                }
            };
        }
        match self.denied.take() {
            Some(denied) => QueueStep::Decided(denied),
            None => self.first_step(key, place, now, call_time.min(LONGEST_CALL)),
        }
    }

    fn pass(&mut self, place: usize) -> QueueStep {
        self.waiters.remove(place);
        self.turns
            .remove(place)
            .map_or(QueueStep::GiveUp, |turn| QueueStep::Decided(turn.decision))
    }

    /// The step of the first request without a turn.
    fn first_step(
        &mut self,
        key: &Key,
        place: usize,
        now: Instant,
        call_time: Duration,
    ) -> QueueStep {
        let first = &self.waiters[place];
        let for_permit = first.charge.is_zero();
        if now >= first.deadline || (self.ready_at > first.deadline && !for_permit) {
            return QueueStep::GiveUp;
        }
        let (lead, advance) = if first.advances {
            (ADVANCE / 2 + call_time, ADVANCE + 2 * call_time)
        } else {
            (Duration::ZERO, Duration::ZERO)
        };
        if let Some(until) = self.not_before.filter(|until| *until > now) {
            return QueueStep::Wait {
                until: until.min(first.deadline),
                for_permit: false,
            };
        }
        if self.ready_at > now + lead {
            return QueueStep::Wait {
                until: (self.ready_at - lead).min(first.deadline),
                for_permit,
            };
        }
        let checks = first.checks.clone();
        let equal = self
            .waiters
            .iter()
            .skip(place)
            .take_while(|waiter| same(&waiter.checks, &checks));
        let (units, last) = if for_permit {
            (1, first.deadline)
        } else {
            equal.fold((0, now), |(units, last), waiter| {
                (units + 1, last.max(waiter.deadline))
            })
        };
        self.calling = true;
        // A turn after the last deadline would be nobody's. It comes later than it was charged for
        // by the time of the call, and requests that come meanwhile are refused if it is too far
        // off. Less than up to the first turn would be denied, and asked for again at once.
        let [left, needed] =
            [last, self.ready_at].map(|until| until.saturating_duration_since(now));
        let advance = advance.min((left / 2).max(needed));
        QueueStep::Call(UnitsCall {
            checks,
            key: key.clone(),
            units,
            advance,
        })
    }

    /// Ends a call, with the decisions that it led to by `now`. There are none when it was dropped.
    pub fn end_call(
        &mut self,
        checks: &Arc<Checks>,
        decisions: Vec<DelayedDecision>,
        now: Instant,
    ) {
        self.calling = false;
        let before = self.turns.len();
        for DelayedDecision {
            decision,
            wait,
            in_advance,
        } in decisions
        {
            let Some(waiter) = self
                .waiters
                .get(self.turns.len())
                .filter(|waiter| same(&waiter.checks, checks))
            else {
                // The requests that asked have left meanwhile.
                break;
            };
            if decision.granted {
                // A turn is never before that of an earlier request.
                let at = self
                    .turns
                    .back()
                    .map_or(now + wait, |last| last.at.max(now + wait));
                self.ready_at = at + waiter.charge;
                self.turns.push_back(ScheduledTurn {
                    at,
                    decision,
                    checks: checks.clone(),
                });
            } else {
                if waiter.advances && !in_advance {
                    // The store is away. Before its tokens are there, the request would be denied
                    // again at once.
                    self.not_before = Some(now + retry_after(&decision));
                }
                self.denied = Some(decision);
            }
        }
        self.call_from(before);
    }

    /// Delays the first request without a turn, which was denied, until `ready_at`.
    pub fn put_off(&mut self, ready_at: Instant) {
        self.ready_at = ready_at;
    }

    /// Like [`Self::put_off`], where another limit denied it: nothing in advance helps against
    /// that.
    pub fn put_off_by_another(&mut self, ready_at: Instant) {
        (self.ready_at, self.not_before) = (ready_at, Some(ready_at));
    }

    /// The time at which the first request without a turn may pass.
    pub fn ready_at(&self) -> Instant {
        self.ready_at
    }

    /// Asks with `checks` for a request from now on: a limit that degrades dropped out.
    pub fn replace_checks(&mut self, ticket: u64, checks: &Checks) {
        if let Some(place) = self
            .place(ticket)
            .filter(|place| *place >= self.turns.len())
        {
            let waiter = &mut self.waiters[place];
            if *waiter.checks != *checks {
                waiter.checks = Arc::new(checks.clone());
            }
        }
    }

    fn place(&self, ticket: u64) -> Option<usize> {
        self.waiters
            .binary_search_by_key(&ticket, |waiter| waiter.ticket)
            .ok()
    }
}

/// The longest time that a limit of a denied request makes it wait.
fn retry_after(denied: &Decision) -> Duration {
    let levels = denied.levels.iter().chain(&denied.permit_levels);
    Duration::from_micros(
        levels
            .map(|level| level.retry_after_us)
            .max()
            .unwrap_or_default(),
    )
}

fn same(one: &Arc<Checks>, other: &Arc<Checks>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}
