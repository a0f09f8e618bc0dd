//! One call for many: requests that ask the same while a call for it is in flight go together with the next one.
//!
//! The first asks at once. Those that come meanwhile board in turn, and when that call lands they leave together, as one
//! call of as many units; the units granted are theirs in the order they came. So a hot key costs a call per round trip.
//!
//! Guarantees that each waits no longer than the store's time limit from its own start, whatever became of the others: a
//! request that is dropped takes none of them along. When a call is slow, those who board do not wait for it to land.
//! Refuses to know what a request does without an answer.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::calls::Caller;
use super::decision::{DecidedBy, Level};
use super::node::Node;
use super::verdict::Verdict;
use crate::clock;
use crate::store::{self, Ask, Grant, Levels};

/// After this part of the time limit, those who board leave without waiting for the call before them: they need most of
/// it for their own.
const HURRY: u32 = 4;

/// One worker's calls in flight.
pub(super) struct Coalescer {
    pub caller: Arc<Caller>,
    groups: Mutex<HashMap<Arc<[Ask]>, Group>>,
}

/// Those who ask the same.
#[derive(Default)]
struct Group {
    in_flight: u32,
    boarding: VecDeque<Waiter>,
}

type Waiter = oneshot::Sender<Verdict>;

enum Role {
    Lead(Lead),
    Board(oneshot::Receiver<Verdict>),
}

/// A call in flight, counted until it lands.
struct Flight {
    coalescer: Arc<Coalescer>,
    asks: Arc<[Ask]>,
    landed: bool,
}

/// The flight of a request that makes the call itself. Whoever boarded leaves when it ends, also when it is dropped.
struct Lead(Option<Flight>);

impl Coalescer {
    pub fn new(caller: Arc<Caller>) -> Self {
        Self { caller, groups: Mutex::default() }
    }

    pub fn node(&self) -> &Node {
        &self.caller.node
    }

    /// One unit of what is asked, or `None` when the store did not decide in time.
    pub async fn take(self: &Arc<Self>, asks: &[Ask]) -> Option<Verdict> {
        match self.board(asks) {
            Role::Lead(lead) => {
                let grant = self.caller.take(asks, 1).await?;
                drop(lead);
                Some(unit(asks, &grant, 0))
            }
            Role::Board(mut answer) => {
                let (started, patience) = (clock::now(), self.caller.patience());
                if let Ok(answer) = timeout_at(started + patience / HURRY, &mut answer).await {
                    return answer.ok();
                }
                self.hurry(asks);
                timeout_at(started + patience, answer).await.ok()?.ok()
            }
        }
    }

    fn board(self: &Arc<Self>, asks: &[Ask]) -> Role {
        let mut groups = self.groups.lock();
        if let Some(group) = groups.get_mut(asks) {
            let (waiter, answer) = oneshot::channel();
            group.boarding.push_back(waiter);
            return Role::Board(answer);
        }
        let asks: Arc<[Ask]> = asks.into();
        groups.insert(asks.clone(), Group { in_flight: 1, boarding: VecDeque::new() });
        Role::Lead(Lead(Some(Flight { coalescer: self.clone(), asks, landed: false })))
    }

    /// Lets those who board leave now.
    fn hurry(self: &Arc<Self>, asks: &[Ask]) {
        let mut groups = self.groups.lock();
        let Some((asks, _)) = groups.get_key_value(asks) else { return };
        let asks = asks.clone();
        let Some(group) = groups.get_mut(&asks) else { return };
        let waiters = group.leave();
        if !waiters.is_empty() {
            group.in_flight += 1;
            drop(groups);
            tokio::spawn(fly(Flight { coalescer: self.clone(), asks, landed: false }, waiters));
        }
    }
}

impl Group {
    /// Those who still wait, in the order they came.
    fn leave(&mut self) -> VecDeque<Waiter> {
        let mut waiters = std::mem::take(&mut self.boarding);
        waiters.retain(|waiter| !waiter.is_closed());
        waiters
    }
}

/// One call after the other, as long as somebody boards.
async fn fly(mut flight: Flight, mut waiters: VecDeque<Waiter>) {
    loop {
        // The call before may have left tokens, or a denial, for these as well.
        while let Some(waiter) = waiters.pop_front() {
            let Some(verdict) = flight.coalescer.caller.known(&flight.asks) else {
                waiters.push_front(waiter);
                break;
            };
            let _ = waiter.send(verdict);
        }
        let units = u32::try_from(waiters.len()).unwrap_or(u32::MAX);
        // Without an answer the waiters are dropped, which tells them.
        if units > 0
            && let Some(grant) = flight.coalescer.caller.take(&flight.asks, units).await
        {
            for (index, waiter) in (0..).zip(waiters) {
                // One that left meanwhile has spent its unit.
                let _ = waiter.send(unit(&flight.asks, &grant, index));
            }
        }
        match flight.next() {
            Some(next) => waiters = next,
            None => return,
        }
    }
}

impl Flight {
    /// Those of the next call, or nobody: then this one has landed. While the store is away there is no next call.
    fn next(&mut self) -> Option<VecDeque<Waiter>> {
        let mut groups = self.coalescer.groups.lock();
        let group = groups.get_mut(&self.asks)?;
        let waiters = group.leave();
        if !waiters.is_empty() && !self.coalescer.caller.node.breaker.is_open() {
            return Some(waiters);
        }
        self.landed = true;
        group.in_flight -= 1;
        if group.in_flight == 0 {
            groups.remove(&self.asks);
        }
        None
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // Torn down in the air, with its runtime: who boarded is told by being dropped.
        while !self.landed && self.next().is_some() {}
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        let Some(mut flight) = self.0.take() else { return };
        if let (Some(waiters), Ok(runtime)) = (flight.next(), Handle::try_current()) {
            runtime.spawn(fly(flight, waiters));
        }
    }
}

/// What the request at `index` hears of a call for several: what was left after it, not after those behind it.
fn unit(asks: &[Ask], grant: &Grant, index: u32) -> Verdict {
    let behind = u64::from(grant.units.saturating_sub(index.saturating_add(1)));
    let granted = index < grant.units;
    let level = |(ask, level): (&Ask, &Level)| {
        if !granted {
            return *level;
        }
        let tokens = store::cost_of(asks, ask).saturating_mul(behind);
        Level {
            remaining: level.remaining.saturating_add(tokens),
            retry_after_us: 0,
            reset_after_us: level.reset_after_us.saturating_sub(ask.quota.flow_us(tokens)),
        }
    };
    let levels: Levels = asks.iter().zip(&grant.levels).map(level).collect();
    Verdict::new(DecidedBy::Redis, granted, grant.at_us, levels)
}
