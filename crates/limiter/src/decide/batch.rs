//! One call for many: requests that ask the same while a call for it is in flight go together with the next one.
//!
//! The first asks at once. Those that come meanwhile board in turn, and when that call lands they leave together, as one
//! call of as many units; the units granted are theirs in the order they came. So a hot key costs a call per round trip.
//!
//! Guarantees that each waits no longer than the store's time limit from its own start, whatever became of the others: a
//! request that is dropped takes none of them along. When a call is slow, those who board do not wait for it to land.
//! Refuses to know what a request does without an answer.

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

/// After this part of the time limit, those who board leave without waiting for the call before them: they need most of
/// it for their own.
const HURRY: u32 = 4;

/// One worker's calls in flight.
pub(crate) struct Batcher {
    pub client: Arc<StoreClient>,
    groups: Mutex<HashTable<BatchGroup>>,
    /// Seeded: clients choose their keys.
    hasher: RandomState,
}

/// Those who ask the same.
struct BatchGroup {
    checks: Arc<TokenChecks>,
    in_flight: u32,
    boarding: Batch,
    /// Somebody sees to it that those who board leave in time. It stays until then: a timer for each of them would cost
    /// more than all the rest of their wait.
    watched: bool,
}

/// Those who leave together. None came later than a quarter of the time limit after the first, whose time all are held to.
#[derive(Default)]
struct Batch {
    since: Option<Instant>,
    waiters: VecDeque<Waiter>,
}

type Waiter = oneshot::Sender<Decision>;

enum Role {
    Leader(Leader),
    Board(oneshot::Receiver<Decision>),
}

/// A group, by what it asks.
#[derive(Clone)]
struct GroupHandle {
    batcher: Arc<Batcher>,
    checks: Arc<TokenChecks>,
    hash: u64,
}

/// A call in flight, counted until it lands.
struct BatchCall {
    place: GroupHandle,
    landed: bool,
}

/// The flight of a request that makes the call itself. Whoever boarded leaves when it ends, also when it is dropped.
struct Leader(Option<BatchCall>);

/// Who has those who board leave in time.
struct Departure {
    place: GroupHandle,
    over: bool,
}

impl Batcher {
    pub fn new(client: Arc<StoreClient>) -> Self {
        Self { client, groups: Mutex::default(), hasher: RandomState::new() }
    }

    pub fn node(&self) -> &Node {
        &self.client.node
    }

    /// One unit of what is asked, or `None` when the store did not decide in time.
    pub async fn take(self: &Arc<Self>, checks: &TokenChecks) -> Option<Decision> {
        match self.board(checks) {
            Role::Leader(lead) => {
                let grant = self.client.take(checks, 1).await?;
                drop(lead);
                Some(unit(checks.charges(), &grant, 0))
            }
            Role::Board(answer) => answer.await.ok(),
        }
    }

    fn board(self: &Arc<Self>, checks: &TokenChecks) -> Role {
        let hash = self.hash(checks);
        let mut groups = self.groups.lock();
        let Some(group) = groups.find_mut(hash, |group| *group.checks == *checks) else {
            let checks = Arc::new(checks.clone());
            let group = BatchGroup { checks: checks.clone(), in_flight: 1, boarding: Batch::default(), watched: false };
            groups.insert_unique(hash, group, |group| self.hash(&group.checks));
            return Role::Leader(Leader::of(GroupHandle { batcher: self.clone(), checks, hash }));
        };
        let place = || GroupHandle { batcher: self.clone(), checks: group.checks.clone(), hash };
        if group.in_flight == 0 {
            group.in_flight = 1;
            return Role::Leader(Leader::of(place()));
        }
        let since = *group.boarding.since.get_or_insert_with(clock::now);
        if !group.watched {
            group.watched = true;
            tokio::spawn(watch(Departure { place: place(), over: false }, since + self.hurry()));
        }
        let (waiter, answer) = oneshot::channel();
        group.boarding.waiters.push_back(waiter);
        Role::Board(answer)
    }

    fn hurry(&self) -> Duration {
        self.client.patience() / HURRY
    }

    /// Of the keys alone: what else is asked differs by little, and would cost as much again.
    fn hash(&self, checks: &TokenChecks) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for charge in checks.charges() {
            hasher.write(charge.key.as_bytes());
        }
        hasher.finish()
    }
}

impl GroupHandle {
    /// Lets `act` on the group. One that nobody needs any more is gone afterwards.
    fn with<R>(&self, act: impl FnOnce(&mut BatchGroup) -> R) -> Option<R> {
        let mut groups = self.batcher.groups.lock();
        let mut found = groups.find_entry(self.hash, |group| *group.checks == *self.checks).ok()?;
        let result = act(found.get_mut());
        if found.get().in_flight == 0 && !found.get().watched {
            found.remove();
        }
        Some(result)
    }
}

impl BatchGroup {
    /// Those who still wait, in the order they came.
    fn leave(&mut self) -> Batch {
        let mut party = std::mem::take(&mut self.boarding);
        party.waiters.retain(|waiter| !waiter.is_closed());
        party
    }
}

/// One call after the other, as long as somebody boards.
async fn fly(mut flight: BatchCall, mut party: Batch) {
    let client = flight.place.batcher.client.clone();
    loop {
        // The call before may have left tokens, or a denial, for these as well.
        while let Some(waiter) = party.waiters.pop_front() {
            let Some(verdict) = client.known(&flight.place.checks) else {
                party.waiters.push_front(waiter);
                break;
            };
            let _ = waiter.send(verdict);
        }
        if !party.waiters.is_empty() {
            party.fly(&client, &flight.place.checks).await;
        }
        match flight.next() {
            Some(next) => party = next,
            None => return,
        }
    }
}

impl Batch {
    /// One call for all of them.
    async fn fly(self, client: &Arc<StoreClient>, checks: &TokenChecks) {
        let units = u32::try_from(self.waiters.len()).unwrap_or(u32::MAX);
        let due = self.since.unwrap_or_else(clock::now) + client.patience();
        let mut call = pin!(client.take(checks, units));
        let Ok(grant) = timeout_at(due, &mut call).await else {
            // Dropping the waiters tells them. What becomes of the call is to be learned all the same.
            drop(self.waiters);
            call.await;
            return;
        };
        let Some(grant) = grant else { return };
        for (index, waiter) in (0..).zip(self.waiters) {
            // One that left meanwhile has spent its unit.
            let _ = waiter.send(unit(checks.charges(), &grant, index));
        }
    }
}

impl BatchCall {
    /// Those of the next call, or nobody: then this one has landed. While the store is away there is no next call.
    fn next(&mut self) -> Option<Batch> {
        let breaker = &self.place.batcher.client.node.breaker;
        let next = self.place.with(|group| {
            let party = group.leave();
            if !party.waiters.is_empty() && !breaker.is_open() {
                return Some(party);
            }
            group.in_flight -= 1;
            None
        });
        let next = next.flatten();
        self.landed = next.is_none();
        next
    }
}

impl Drop for BatchCall {
    fn drop(&mut self) {
        // Torn down in the air, with its runtime: who boarded is told by being dropped.
        while !self.landed && self.next().is_some() {}
    }
}

impl Leader {
    fn of(place: GroupHandle) -> Self {
        Self(Some(BatchCall { place, landed: false }))
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let Some(mut flight) = self.0.take() else { return };
        if let (Some(party), Ok(runtime)) = (flight.next(), Handle::try_current()) {
            runtime.spawn(fly(flight, party));
        }
    }
}

/// Has those who board leave when they have waited long enough for the call before them: from `at` on, as long as somebody
/// boards.
async fn watch(mut watch: Departure, mut at: Instant) {
    loop {
        sleep_until(at).await;
        match watch.look() {
            Some(next) => at = next,
            None => return,
        }
    }
}

impl Departure {
    /// When to look again, if those who board are not late yet.
    fn look(&mut self) -> Option<Instant> {
        let (now, hurry) = (clock::now(), self.place.batcher.hurry());
        let late = self.place.with(|group| {
            let at = group.boarding.since.map(|since| since + hurry);
            if let Some(at) = at.filter(|at| *at > now) {
                return Ok(at);
            }
            group.watched = false;
            let party = group.leave();
            group.in_flight += u32::from(!party.waiters.is_empty());
            Err(party)
        });
        self.over = !matches!(late, Some(Ok(_)));
        match late? {
            Ok(at) => return Some(at),
            Err(party) if party.waiters.is_empty() => {}
            Err(party) => drop(tokio::spawn(fly(BatchCall { place: self.place.clone(), landed: false }, party))),
        }
        None
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        // Torn down with its runtime: another one must be able to watch.
        if !self.over {
            self.place.with(|group| group.watched = false);
        }
    }
}

/// What the request at `index` hears of a call for several: what was left after it, not after those behind it.
fn unit(charges: &[BucketCharge], grant: &Grant, index: u32) -> Decision {
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
