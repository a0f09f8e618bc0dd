//! The requests of one batch, the batches of one set of checks, and the call of a batch.
//!
//! Guarantees that each request of a batch has its answer by its deadline, and the units granted in
//! the order they came.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::algorithm::level::Level;
use crate::clock::{self, Instant};
use crate::decide::call::late_call::LateCall;
use crate::decide::call::take_call::{Late, TakeCall};
use crate::decide::check::TokenChecks;
use crate::decide::decision::{DecidedBy, Decision, DecisionSource};
use crate::decide::store_client::StoreClient;
use crate::store::{self, BucketCharge, Grant, Levels};

/// A batch waits for this part of the time limit at least, also when its own call will hardly end
/// in time: a slow store must not be called for each request.
pub(crate) const LEAST_WAIT_PARTS: u32 = 16;

/// Calls of a batch in flight at a time. Each is given up at the deadline of its requests.
const MAX_CALLS: u32 = LEAST_WAIT_PARTS;

/// Requests with the same checks.
pub(crate) struct BatchGroup {
    pub checks: Arc<TokenChecks>,
    pub in_flight: u32,
    /// The number of the newest call, while that is in flight.
    pub newest: Option<u64>,
    calls: u64,
    pub next_batch: Batch,
    /// When the timer of the next batch looks after it, if there is one. There is one for all of
    /// its requests: a timer for each would cost more than all the rest of their wait.
    pub timer_at: Option<Instant>,
}

/// Requests that share a call.
#[derive(Default)]
pub(crate) struct Batch {
    /// When it goes without waiting for the call before it.
    pub leave_at: Option<Instant>,
    pub waiters: VecDeque<Waiter>,
}

/// The decision, or the call that a request gave up.
pub(crate) type BatchAnswer = Result<Decision, Arc<LateCall>>;

/// A request that waits. It learns of a failure by the drop of `answer`.
pub(crate) struct Waiter {
    pub answer: oneshot::Sender<BatchAnswer>,
    pub deadline: Instant,
}

/// The next batch, as its timer finds it.
pub(crate) enum TimerFinding {
    /// Another timer looks after it, or there is none.
    Done,
    LookAt(Instant),
    Leaves(u64, Batch),
}

impl BatchGroup {
    pub fn new(checks: Arc<TokenChecks>) -> Self {
        Self {
            checks,
            in_flight: 0,
            newest: None,
            calls: 0,
            next_batch: Batch::default(),
            timer_at: None,
        }
    }

    /// Counts a call that begins: its number.
    pub fn begin_call(&mut self) -> u64 {
        self.in_flight += 1;
        self.calls += 1;
        self.newest = Some(self.calls);
        self.calls
    }

    pub fn end_call(&mut self, number: u64) {
        self.in_flight -= 1;
        self.newest = self.newest.filter(|newest| *newest != number);
    }

    /// The requests that still wait, in the order they came.
    pub fn take_next_batch(&mut self) -> Batch {
        let mut batch = std::mem::take(&mut self.next_batch);
        batch.waiters.retain(|waiter| !waiter.answer.is_closed());
        batch
    }

    /// The next batch, when its timer looks after it.
    pub fn look(&mut self, now: Instant) -> TimerFinding {
        let batch = &mut self.next_batch;
        match batch.leave_at {
            None => TimerFinding::Done,
            Some(leave_at) if leave_at > now => TimerFinding::LookAt(leave_at),
            // The end of a call sends it, or its requests give up here.
            Some(_) if self.in_flight >= MAX_CALLS => {
                drop(batch.expired(now));
                let next = batch.waiters.iter().map(|waiter| waiter.deadline).min();
                batch.leave_at = batch.leave_at.filter(|_| next.is_some());
                next.map_or(TimerFinding::Done, TimerFinding::LookAt)
            }
            Some(_) => {
                let batch = self.take_next_batch();
                if batch.waiters.is_empty() {
                    return TimerFinding::Done;
                }
                TimerFinding::Leaves(self.begin_call(), batch)
            }
        }
    }
}

impl Batch {
    /// Makes one call for all of its requests. Those whose time is over meanwhile give up, and when
    /// none is left, the call goes on without this batch.
    pub async fn call(mut self, client: &Arc<StoreClient>, checks: &Arc<TokenChecks>) {
        drop(self.expired(clock::now()));
        if self.waiters.is_empty() {
            return;
        }
        let mut call = TakeCall::new(
            client,
            checks,
            u32::try_from(self.waiters.len()).unwrap_or(u32::MAX),
        );
        let mut late = None::<Arc<LateCall>>;
        let mut gave_up = 0;
        while let Some(deadline) = self.waiters.iter().map(|waiter| waiter.deadline).min() {
            match call.answer_by(deadline).await {
                Ok(Some(grant)) => {
                    if let Some(late) = late {
                        late.answered(grant.units.min(gave_up), grant.at_us);
                    }
                    return self.hand_out(checks.charges(), &grant, gave_up);
                }
                // The waiters learn of it by being dropped.
                Ok(None) => return,
                Err(Late) => {
                    let late = late.get_or_insert_with(|| call.late());
                    for waiter in self.expired(deadline) {
                        gave_up += 1;
                        let _ = waiter.answer.send(Err(late.clone()));
                    }
                }
            }
        }
        if let Some(late) = late {
            call.give_up(late);
        }
    }

    /// Takes out the requests whose time is over.
    fn expired(&mut self, now: Instant) -> VecDeque<Waiter> {
        let (expired, left) = std::mem::take(&mut self.waiters)
            .into_iter()
            .partition(|waiter| waiter.deadline <= now);
        self.waiters = left;
        expired
    }

    /// Gives the units granted to its requests, behind those `before` that gave up.
    fn hand_out(self, charges: &[BucketCharge], grant: &Grant, before: u32) {
        for (index, waiter) in (before..).zip(self.waiters) {
            // A request that was dropped meanwhile has spent its unit.
            let _ = waiter.answer.send(Ok(unit(charges, grant, index)));
        }
    }
}

/// The decision on the request at `index` of a batch. Its levels are those right after it, not
/// after the requests behind it.
pub(crate) fn unit(charges: &[BucketCharge], grant: &Grant, index: u32) -> Decision {
    let behind = u64::from(grant.units.saturating_sub(index.saturating_add(1)));
    let granted = index < grant.units;
    let levels: Levels = charges
        .iter()
        .zip(&grant.levels)
        .map(|(charge, level)| {
            if !granted {
                return *level;
            }
            let tokens = store::cost_of(charges, charge).saturating_mul(behind);
            Level {
                remaining: level.remaining.saturating_add(tokens),
                retry_after_us: if behind == 0 && charge.quota.tokens_expire() {
                    level.retry_after_us
                } else {
                    0
                },
                reset_after_us: level
                    .reset_after_us
                    .saturating_sub(charge.quota.flow_us(tokens)),
            }
        })
        .collect();
    let decision = Decision::new(DecidedBy::Redis, granted, grant.at_us, levels);
    if grant.foreign.is_empty() {
        decision
    } else {
        decision.with_sources(sources(charges, grant))
    }
}

/// The sources of a decision where the store could not decide on some of the charges.
fn sources(charges: &[BucketCharge], grant: &Grant) -> Vec<DecisionSource> {
    let local = DecisionSource {
        decided_by: DecidedBy::Local,
        taken_at_us: clock::monotonic_micros(),
        counted: true,
    };
    let shared = DecisionSource {
        decided_by: DecidedBy::Redis,
        taken_at_us: grant.at_us,
        counted: true,
    };
    (0..charges.len())
        .map(|place| {
            if grant.foreign.contains(&place) {
                local
            } else {
                shared
            }
        })
        .collect()
}
