//! The batches of one worker, by their checks: who calls, who waits, and when the next batch goes.
//!
//! Guarantees that a request that is dropped takes none of the others along, and that a batch never
//! waits for nothing: a call, a timer, or both are there to send it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::sleep_until;

use crate::clock::{self, Instant};
use crate::decide::batch::group::{
    Batch, BatchAnswer, BatchGroup, LEAST_WAIT_PARTS, TimerFinding, Waiter, unit,
};
use crate::decide::call::late_call::NoAnswer;
use crate::decide::call::take_call::TakeCall;
use crate::decide::check::TokenChecks;
use crate::decide::decision::Decision;
use crate::decide::store_client::StoreClient;
use crate::node::Node;

/// A batch waits for the call before it for this part of the time limit at most.
const LONGEST_WAIT_PARTS: u32 = 4;

/// Beside what a call usually takes, a batch leaves this part of the time limit for it, and
/// [`SPARE_TIME`] for timers.
const SPARE_PARTS: u32 = 20;
const SPARE_TIME: Duration = Duration::from_millis(1);

/// The batches of one worker.
pub(crate) struct Batcher {
    pub client: Arc<StoreClient>,
    groups: Mutex<HashTable<BatchGroup>>,
    /// Seeded: clients choose their keys.
    hasher: RandomState,
}

enum Role {
    Leader(Leader),
    Member(oneshot::Receiver<BatchAnswer>),
}

/// A group, found by its checks.
#[derive(Clone)]
struct GroupHandle {
    batcher: Arc<Batcher>,
    checks: Arc<TokenChecks>,
    hash: u64,
}

/// A call in flight, counted in its group until it ends.
struct BatchCall {
    handle: GroupHandle,
    number: u64,
    finished: bool,
}

/// The call of a request that makes it itself. When it ends or is dropped, the next batch goes.
struct Leader(BatchCall);

/// Sends the next batch in time.
struct BatchTimer {
    handle: GroupHandle,
    at: Instant,
    finished: bool,
}

impl Batcher {
    pub fn new(client: Arc<StoreClient>) -> Self {
        Self {
            client,
            groups: Mutex::default(),
            hasher: RandomState::new(),
        }
    }

    pub fn node(&self) -> &Node {
        &self.client.node
    }

    /// Takes a unit for these checks, if the store decides by `deadline`.
    pub async fn take(
        self: &Arc<Self>,
        checks: &TokenChecks,
        deadline: Instant,
    ) -> Result<Decision, NoAnswer> {
        match self.join(checks, deadline) {
            Role::Leader(leader) => {
                let call = TakeCall::new(&self.client, &leader.0.handle.checks, 1);
                let grant = call.grant_by(deadline).await?;
                Ok(unit(checks.charges(), &grant, 0))
            }
            Role::Member(answer) => match answer.await {
                Ok(decided) => decided.map_err(|late| NoAnswer(Some(late))),
                Err(_) => Err(NoAnswer(None)),
            },
        }
    }

    fn join(self: &Arc<Self>, checks: &TokenChecks, deadline: Instant) -> Role {
        let hash = self.hash(checks);
        let mut groups = self.groups.lock();
        let Some(group) = groups.find_mut(hash, |group| *group.checks == *checks) else {
            let checks = Arc::new(checks.clone());
            let mut group = BatchGroup::new(checks.clone());
            let number = group.begin_call();
            groups.insert_unique(hash, group, |group| self.hash(&group.checks));
            return Role::Leader(Leader::new(self.handle(checks, hash), number));
        };
        if group.in_flight == 0 {
            let handle = self.handle(group.checks.clone(), hash);
            return Role::Leader(Leader::new(handle, group.begin_call()));
        }
        let leave_at = self.leave_at(deadline);
        if group.timer_at.is_none_or(|at| leave_at < at) {
            // A timer that was to look later ends when it does.
            tokio::spawn(run_timer(BatchTimer {
                handle: self.handle(group.checks.clone(), hash),
                at: leave_at,
                finished: false,
            }));
            group.timer_at = Some(leave_at);
        }
        let (answer, decided) = oneshot::channel();
        let batch = &mut group.next_batch;
        batch.leave_at = Some(batch.leave_at.map_or(leave_at, |at| at.min(leave_at)));
        batch.waiters.push_back(Waiter { answer, deadline });
        Role::Member(decided)
    }

    fn handle(self: &Arc<Self>, checks: Arc<TokenChecks>, hash: u64) -> GroupHandle {
        GroupHandle {
            batcher: self.clone(),
            checks,
            hash,
        }
    }

    /// When a request with this deadline goes without waiting for the call before it: it leaves the
    /// time for a call.
    fn leave_at(&self, deadline: Instant) -> Instant {
        let limit = self.client.timeout();
        let needed = self.client.typical_duration() + limit / SPARE_PARTS + SPARE_TIME;
        let wait = limit
            .saturating_sub(needed)
            .clamp(limit / LEAST_WAIT_PARTS, limit / LONGEST_WAIT_PARTS);
        deadline - (limit - wait)
    }

    /// A hash of the keys alone: the rest of the checks seldom differs, and would cost as much
    /// again.
    fn hash(&self, checks: &TokenChecks) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for charge in checks.charges() {
            hasher.write(charge.key.as_bytes());
        }
        hasher.finish()
    }
}

impl GroupHandle {
    /// Lets `act` work on the group. A group without calls and timer is removed afterwards.
    fn with<R>(&self, act: impl FnOnce(&mut BatchGroup) -> R) -> Option<R> {
        let mut groups = self.batcher.groups.lock();
        let mut found = groups
            .find_entry(self.hash, |group| *group.checks == *self.checks)
            .ok()?;
        let result = act(found.get_mut());
        if found.get().in_flight == 0 && found.get().timer_at.is_none() {
            found.remove();
        }
        Some(result)
    }
}

/// Makes one call after the other, as long as requests join.
async fn run_calls(mut call: BatchCall, mut batch: Batch) {
    let client = call.handle.batcher.client.clone();
    loop {
        // The call before may have left tokens, or a denial, for these requests as well.
        while let Some(waiter) = batch.waiters.pop_front() {
            let Some(decision) = client.known(&call.handle.checks) else {
                batch.waiters.push_front(waiter);
                break;
            };
            let _ = waiter.answer.send(Ok(decision));
        }
        batch.call(&client, &call.handle.checks).await;
        match call.next() {
            Some(next) => batch = next,
            None => return,
        }
    }
}

impl BatchCall {
    /// The batch of the next call. `None`: there is none, or it waits for a newer call, and this
    /// one has ended. While the store is away there is no next call.
    fn next(&mut self) -> Option<Batch> {
        let client = &self.handle.batcher.client;
        let next = self.handle.with(|group| {
            group.end_call(self.number);
            if group.newest.is_some()
                && !client.is_any_away(&group.checks)
                && group.next_batch.leave_at.is_none_or(|at| at > clock::now())
            {
                return None;
            }
            let batch = group.take_next_batch();
            if batch.waiters.is_empty() || client.is_any_away(&group.checks) {
                return None;
            }
            self.number = group.begin_call();
            Some(batch)
        });
        let next = next.flatten();
        self.finished = next.is_none();
        next
    }
}

impl Drop for BatchCall {
    fn drop(&mut self) {
        // Dropped with its runtime: the requests of the batch learn of it by being dropped.
        while !self.finished && self.next().is_some() {}
    }
}

impl Leader {
    fn new(handle: GroupHandle, number: u64) -> Self {
        Self(BatchCall {
            handle,
            number,
            finished: false,
        })
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let Some(batch) = self.0.next() else { return };
        if let Ok(runtime) = Handle::try_current() {
            let BatchCall { handle, number, .. } = &self.0;
            runtime.spawn(run_calls(
                BatchCall {
                    handle: handle.clone(),
                    number: *number,
                    finished: false,
                },
                batch,
            ));
            self.0.finished = true;
        }
    }
}

/// Sends the next batch when it has waited long enough for the call before it, as long as requests
/// join.
async fn run_timer(mut timer: BatchTimer) {
    loop {
        sleep_until(timer.at).await;
        if !timer.check() {
            return;
        }
    }
}

impl BatchTimer {
    /// Sends the next batch if it is due. `true`: to be checked again.
    fn check(&mut self) -> bool {
        let now = clock::now();
        let at = self.at;
        let finding = self.handle.with(|group| {
            if group.timer_at != Some(at) {
                return TimerFinding::Done;
            }
            let finding = group.look(now);
            group.timer_at = match finding {
                TimerFinding::LookAt(next) => Some(next),
                TimerFinding::Done | TimerFinding::Leaves(..) => None,
            };
            finding
        });
        self.finished = true;
        match finding.unwrap_or(TimerFinding::Done) {
            TimerFinding::LookAt(next) => (self.at, self.finished) = (next, false),
            TimerFinding::Leaves(number, batch) => {
                let call = BatchCall {
                    handle: self.handle.clone(),
                    number,
                    finished: false,
                };
                drop(tokio::spawn(run_calls(call, batch)));
            }
            TimerFinding::Done => {}
        }
        !self.finished
    }
}

impl Drop for BatchTimer {
    fn drop(&mut self) {
        // Dropped with its runtime: another timer must be able to start.
        if !self.finished {
            let at = self.at;
            self.handle
                .with(|group| group.timer_at = group.timer_at.filter(|known| *known != at));
        }
    }
}
