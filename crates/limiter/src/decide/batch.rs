//! Coalesces calls: requests with the same checks that come while a call for them is in flight share the next call.
//!
//! The first request calls at once. Those that come meanwhile join a batch. When the call ends, the batch goes as one
//! call of as many units, and the units granted go to its requests in the order they came. A hot key costs one call per
//! round trip, not one per request.
//!
//! Guarantees that a request waits no longer than the store's time limit from its own start, whatever becomes of the
//! others: a request that is dropped takes none of them along. When a call is slow, the next batch does not wait for
//! its end.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{sleep_until, timeout_at};

use crate::algorithm::level::Level;
use crate::clock::{self, Instant};
use crate::decide::check::TokenChecks;
use crate::decide::decision::{DecidedBy, Decision};
use crate::decide::store_client::StoreClient;
use crate::node::Node;
use crate::store::{self, BucketCharge, Grant, Levels};

/// A batch that has waited for this part of the time limit goes without waiting for the call before it: it needs most
/// of the time for its own call.
const LEAD_TIME_PARTS: u32 = 4;

/// The batches of one worker.
pub(crate) struct Batcher {
    pub client: Arc<StoreClient>,
    groups: Mutex<HashTable<BatchGroup>>,
    /// Seeded: clients choose their keys.
    hasher: RandomState,
}

/// Requests with the same checks.
struct BatchGroup {
    checks: Arc<TokenChecks>,
    in_flight: u32,
    next_batch: Batch,
    /// A [`BatchTimer`] runs for the next batch. There is one for all of its requests: a timer for each would cost more
    /// than all the rest of their wait.
    timer_running: bool,
}

/// Requests that share a call. None came later than a quarter of the time limit after the first, whose deadline counts
/// for all of them.
#[derive(Default)]
struct Batch {
    since: Option<Instant>,
    waiters: VecDeque<Waiter>,
}

type Waiter = oneshot::Sender<Decision>;

enum Role {
    Leader(Leader),
    Member(oneshot::Receiver<Decision>),
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
    finished: bool,
}

/// The call of a request that makes it itself. When it ends or is dropped, the next batch goes.
struct Leader(Option<BatchCall>);

/// Sends the next batch in time.
struct BatchTimer {
    handle: GroupHandle,
    finished: bool,
}

impl Batcher {
    pub fn new(client: Arc<StoreClient>) -> Self {
        Self { client, groups: Mutex::default(), hasher: RandomState::new() }
    }

    pub fn node(&self) -> &Node {
        &self.client.node
    }

    /// Takes a unit for these checks. `None`: the store did not decide in time.
    pub async fn take(self: &Arc<Self>, checks: &TokenChecks) -> Option<Decision> {
        match self.join(checks) {
            Role::Leader(leader) => {
                let grant = self.client.take(checks, 1).await?;
                drop(leader);
                Some(unit(checks.charges(), &grant, 0))
            }
            Role::Member(answer) => answer.await.ok(),
        }
    }

    fn join(self: &Arc<Self>, checks: &TokenChecks) -> Role {
        let hash = self.hash(checks);
        let mut groups = self.groups.lock();
        let Some(group) = groups.find_mut(hash, |group| *group.checks == *checks) else {
            let checks = Arc::new(checks.clone());
            let group =
                BatchGroup { checks: checks.clone(), in_flight: 1, next_batch: Batch::default(), timer_running: false };
            groups.insert_unique(hash, group, |group| self.hash(&group.checks));
            return Role::Leader(Leader::of(GroupHandle { batcher: self.clone(), checks, hash }));
        };
        let handle = || GroupHandle { batcher: self.clone(), checks: group.checks.clone(), hash };
        if group.in_flight == 0 {
            group.in_flight = 1;
            return Role::Leader(Leader::of(handle()));
        }
        let since = *group.next_batch.since.get_or_insert_with(clock::now);
        if !group.timer_running {
            group.timer_running = true;
            tokio::spawn(run_timer(BatchTimer { handle: handle(), finished: false }, since + self.lead_time()));
        }
        let (waiter, answer) = oneshot::channel();
        group.next_batch.waiters.push_back(waiter);
        Role::Member(answer)
    }

    fn lead_time(&self) -> Duration {
        self.client.timeout() / LEAD_TIME_PARTS
    }

    /// A hash of the keys alone: the rest of the checks seldom differs, and would cost as much again.
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
        let mut found = groups.find_entry(self.hash, |group| *group.checks == *self.checks).ok()?;
        let result = act(found.get_mut());
        if found.get().in_flight == 0 && !found.get().timer_running {
            found.remove();
        }
        Some(result)
    }
}

impl BatchGroup {
    /// The requests that still wait, in the order they came.
    fn take_next_batch(&mut self) -> Batch {
        let mut batch = std::mem::take(&mut self.next_batch);
        batch.waiters.retain(|waiter| !waiter.is_closed());
        batch
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
            let _ = waiter.send(decision);
        }
        if !batch.waiters.is_empty() {
            batch.call(&client, &call.handle.checks).await;
        }
        match call.next() {
            Some(next) => batch = next,
            None => return,
        }
    }
}

impl Batch {
    /// Makes one call for all of its requests.
    async fn call(self, client: &Arc<StoreClient>, checks: &TokenChecks) {
        let units = u32::try_from(self.waiters.len()).unwrap_or(u32::MAX);
        let deadline = self.since.unwrap_or_else(clock::now) + client.timeout();
        let mut call = pin!(client.take(checks, units));
        let Ok(grant) = timeout_at(deadline, &mut call).await else {
            // The waiters learn of the timeout by being dropped. The result of the call still has to be learned.
            drop(self.waiters);
            call.await;
            return;
        };
        let Some(grant) = grant else { return };
        for (index, waiter) in (0..).zip(self.waiters) {
            // A request that was dropped meanwhile has spent its unit.
            let _ = waiter.send(unit(checks.charges(), &grant, index));
        }
    }
}

impl BatchCall {
    /// The batch of the next call. `None`: there is none, and this call has ended. While the store is away there is no
    /// next call.
    fn next(&mut self) -> Option<Batch> {
        let breaker = &self.handle.batcher.client.node.breaker;
        let next = self.handle.with(|group| {
            let batch = group.take_next_batch();
            if !batch.waiters.is_empty() && !breaker.is_open() {
                return Some(batch);
            }
            group.in_flight -= 1;
            None
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
    fn of(handle: GroupHandle) -> Self {
        Self(Some(BatchCall { handle, finished: false }))
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let Some(mut call) = self.0.take() else { return };
        if let (Some(batch), Ok(runtime)) = (call.next(), Handle::try_current()) {
            runtime.spawn(run_calls(call, batch));
        }
    }
}

/// Sends the next batch when it has waited long enough for the call before it: from `at` on, as long as requests join.
async fn run_timer(mut timer: BatchTimer, mut at: Instant) {
    loop {
        sleep_until(at).await;
        match timer.check() {
            Some(next) => at = next,
            None => return,
        }
    }
}

impl BatchTimer {
    /// Sends the next batch if it is late. Else: when to check again.
    fn check(&mut self) -> Option<Instant> {
        let (now, lead_time) = (clock::now(), self.handle.batcher.lead_time());
        let late = self.handle.with(|group| {
            let at = group.next_batch.since.map(|since| since + lead_time);
            if let Some(at) = at.filter(|at| *at > now) {
                return Ok(at);
            }
            group.timer_running = false;
            let batch = group.take_next_batch();
            group.in_flight += u32::from(!batch.waiters.is_empty());
            Err(batch)
        });
        self.finished = !matches!(late, Some(Ok(_)));
        match late? {
            Ok(at) => return Some(at),
            Err(batch) if batch.waiters.is_empty() => {}
            Err(batch) => {
                drop(tokio::spawn(run_calls(BatchCall { handle: self.handle.clone(), finished: false }, batch)))
            }
        }
        None
    }
}

impl Drop for BatchTimer {
    fn drop(&mut self) {
        // Dropped with its runtime: another timer must be able to start.
        if !self.finished {
            self.handle.with(|group| group.timer_running = false);
        }
    }
}

/// The decision on the request at `index` of a batch. Its levels are those right after it, not after the requests
/// behind it.
pub(crate) fn unit(charges: &[BucketCharge], grant: &Grant, index: u32) -> Decision {
    let behind = u64::from(grant.units.saturating_sub(index.saturating_add(1)));
    let granted = index < grant.units;
    let level = |(charge, level): (&BucketCharge, &Level)| {
        if !granted {
            return *level;
        }
        let tokens = store::cost_of(charges, charge).saturating_mul(behind);
        Level {
            remaining: level.remaining.saturating_add(tokens),
            retry_after_us: 0,
            reset_after_us: level.reset_after_us.saturating_sub(charge.quota.flow_us(tokens)),
        }
    };
    let levels: Levels = charges.iter().zip(&grant.levels).map(level).collect();
    Decision::new(DecidedBy::Redis, granted, grant.at_us, levels)
}
