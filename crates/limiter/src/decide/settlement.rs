//! Settles the reservations of requests whose cost only the response tells.
//!
//! Guarantees that each cost beyond its reservation is charged: in the store, or, while that is
//! away, to this node's bucket and as a debt (see [`crate::node::debt`]). A cost below the
//! reservation is refunded as far as it can be without admitting too much, which
//! [`bucket::covered_us`] argues. The bound: in any time t, at most burst + rate · t is admitted
//! (by a window: its quota), in tokens as settled. Beside it stand the costs that requests in
//! flight at the end of t have not been charged yet: at most their `max` less their reservation. A
//! node that dies settles nothing more, and its reservations stand. A call that fails is made again
//! until the store has confirmed it, and counts once (see [`crate::node::outbox`]).
//!
//! No request waits for a settlement. The queue is bounded: settlements beyond the bound are made
//! like those while the store is away.

use std::collections::VecDeque;
use std::sync::Arc;

use metrics::{Counter, counter};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::algorithm::quota::{Quota, Unspent};
use crate::algorithm::token_bucket::MAX_TICKS;
use crate::clock;
use crate::decide::decision::{DecidedBy, DecisionSource};
use crate::decide::store_client::StoreClient;
use crate::limit::definition::OnOutage;
use crate::node::Node;
use crate::store::BucketCharge;
use crate::store::adjustment::{Adjustment, Change};
use crate::store::memory::MemoryStore;
use crate::store::merged_charges::MergedCharge;

/// Settlements that wait for the store on a worker, about 200 bytes each.
const MAX_WAITING: usize = 4_096;

/// Settlements of one call.
const MAX_PER_CALL: usize = 64;

/// A worker has one.
pub struct Settler {
    memory: Arc<MemoryStore>,
    shared: Option<Arc<StoreClient>>,
    queue: Mutex<SettlementQueue>,
    idle: Notify,
    dropped: Counter,
}

#[derive(Default)]
struct SettlementQueue {
    waiting: VecDeque<Settlement>,
    running: bool,
}

/// Tokens that were taken before the cost was known: the charge, and who decided on it.
#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    pub charge: BucketCharge,
    pub on_outage: OnOutage,
    pub source: DecisionSource,
    /// Microseconds of this node's monotonic clock, not before it was granted.
    pub since_us: u64,
}

/// A correction on its way to the store.
#[derive(Debug)]
struct Settlement {
    charge: BucketCharge,
    on_outage: OnOutage,
    change: Change,
    /// Microseconds of this node's monotonic clock, not before the reservation was granted.
    since_us: u64,
}

/// The correction that settling a reservation made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettlementResult {
    More,
    Less,
    /// The cost was the reservation.
    Even,
    /// The cost was less, but the rest has flowed in since.
    Late,
}

/// The task that works on the queue, while it lives.
struct SettlementWorker {
    settler: Arc<Settler>,
    done: bool,
}

impl Settler {
    /// `shared`: access to the shared store, if there is one. Metrics go to the recorder that is
    /// installed by now.
    pub(crate) fn new(memory: Arc<MemoryStore>, shared: Option<Arc<StoreClient>>) -> Self {
        let dropped = counter!("tollgate_ratelimit_settlements_lost_total");
        Self {
            memory,
            shared,
            queue: Mutex::default(),
            idle: Notify::new(),
            dropped,
        }
    }

    /// Settles that the request cost `actual` tokens.
    pub(crate) fn settle(
        self: &Arc<Self>,
        reservation: Reservation,
        actual: u64,
    ) -> SettlementResult {
        let now_us = clock::monotonic_micros();
        let held_us = now_us.saturating_sub(reservation.since_us);
        let reserved = reservation.charge.cost;
        let change = change(
            reservation.charge.quota,
            [reserved, actual],
            reservation.source.taken_at_us,
            held_us,
            now_us,
        );
        let settled = match change {
            None if actual == reserved => return SettlementResult::Even,
            None => return SettlementResult::Late,
            Some(Change::Refund { .. }) => SettlementResult::Less,
            Some(Change::Charge { .. }) => SettlementResult::More,
        };
        let Some((client, change)) = self.shared.as_ref().zip(change) else {
            let Reservation {
                charge: BucketCharge { key, quota, .. },
                ..
            } = reservation;
            let adjustments = change.map(|change| Adjustment { key, quota, change });
            self.memory
                .adjust_at(&adjustments, clock::monotonic_micros());
            return settled;
        };
        match reservation.source.decided_by {
            // The request was let pass uncounted while the store was away.
            _ if !reservation.source.counted => return SettlementResult::Even,
            DecidedBy::Local if settled == SettlementResult::Less => {
                refund_locally(client, &reservation, actual, held_us);
            }
            _ => {
                let Reservation {
                    charge,
                    on_outage,
                    since_us,
                    ..
                } = reservation;
                self.send(
                    client,
                    Settlement {
                        charge,
                        on_outage,
                        change,
                        since_us,
                    },
                );
            }
        }
        settled
    }

    /// Waits until no settlement waits for the store.
    pub async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            if !self.queue.lock().running {
                return;
            }
            idle.await;
        }
    }

    fn send(self: &Arc<Self>, client: &Arc<StoreClient>, settlement: Settlement) {
        let runtime = Handle::try_current();
        let mut queue = self.queue.lock();
        // Behind a call that failed, charges of a bucket become one debt.
        let key = &settlement.charge.key;
        let takes = !client.is_away(key) && !client.node.outbox.holds(key);
        let (Ok(runtime), true) = (runtime, takes && queue.waiting.len() < MAX_WAITING) else {
            drop(queue);
            self.without_store(client, settlement);
            return;
        };
        queue.waiting.push_back(settlement);
        if !std::mem::replace(&mut queue.running, true) {
            drop(queue);
            let running = SettlementWorker {
                settler: self.clone(),
                done: false,
            };
            runtime.spawn(running.work(client.clone()));
        }
    }

    /// The settlements of the next call: several charges of a bucket are one.
    fn next(&self) -> Vec<Settlement> {
        let mut batch: Vec<Settlement> = Vec::new();
        let mut queue = self.queue.lock();
        while batch.len() < MAX_PER_CALL
            && let Some(next) = queue.waiting.pop_front()
        {
            match (
                batch
                    .iter_mut()
                    .find(|known| {
                        known.charge.key == next.charge.key
                            && known.charge.quota == next.charge.quota
                    })
                    .map(|known| &mut known.change),
                next.change,
            ) {
                (
                    Some(Change::Charge {
                        charge: sum,
                        since_us,
                    }),
                    Change::Charge {
                        charge,
                        since_us: last_us,
                    },
                ) => {
                    (*sum, *since_us) = (
                        sum.saturating_add(charge).min(MAX_TICKS),
                        last_us.max(*since_us),
                    );
                }
                _ => batch.push(next),
            }
        }
        queue.running = !batch.is_empty();
        batch
    }

    async fn call(&self, client: &Arc<StoreClient>, batch: Vec<Settlement>) {
        let node = &client.node;
        let (away, batch): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|one| client.is_away(&one.charge.key));
        away.into_iter()
            .for_each(|settlement| self.without_store(client, settlement));
        if batch.is_empty() {
            return;
        }
        let sent = node.outbox.send(
            batch
                .iter()
                .map(|settlement| settlement.adjustment(client))
                .collect(),
        );
        let results = client.adjust(&sent.batch).await;
        node.confirm(sent, &results);
        for (settlement, result) in batch.into_iter().zip(results) {
            // An outage starts from this node's copy of the bucket. What the store has not
            // confirmed is owed by this node, like what it admits alone.
            let charged = if result.is_ok() {
                settlement.adjustment(client).change
            } else {
                settlement.change
            };
            let Settlement {
                charge, on_outage, ..
            } = settlement;
            let (
                Change::Charge {
                    charge: owed,
                    since_us,
                },
                true,
            ) = (charged, on_outage.is_local())
            else {
                continue;
            };
            let weight = if result.is_ok() {
                1
            } else {
                self.parts(node, &charge)
            };
            let change = Change::Charge {
                charge: owed.saturating_mul(weight.into()).min(MAX_TICKS),
                since_us,
            };
            let adjustment = Adjustment {
                key: charge.key,
                quota: charge.quota,
                change,
            };
            self.memory
                .adjust_at([&adjustment], clock::monotonic_micros());
        }
    }

    /// Settles while the store is away, without a call: charges are debts, and a refund is dropped.
    fn without_store(&self, client: &StoreClient, settlement: Settlement) {
        let Settlement {
            charge,
            on_outage,
            change,
            ..
        } = settlement;
        let Change::Charge {
            charge: owed,
            since_us,
        } = change
        else {
            self.dropped.increment(1);
            return;
        };
        let node = &client.node;
        let now_us = clock::monotonic_micros();
        let parts = self.parts(node, &charge);
        let look = self
            .memory
            .take_at(std::slice::from_ref(&charge), 0, now_us, node.share.get());
        let known_us = look.levels.first().map_or(0, |level| level.reset_after_us);
        if on_outage.is_local() {
            let change = Change::Charge {
                charge: owed.saturating_mul(parts.into()).min(MAX_TICKS),
                since_us,
            };
            self.memory.adjust_at(
                [&Adjustment {
                    key: charge.key.clone(),
                    quota: charge.quota,
                    change,
                }],
                now_us,
            );
        }
        let cost = owed / charge.quota.charge(1).max(1);
        let at = self.memory.timestamp(charge.quota, now_us);
        node.debts
            .incur(&BucketCharge { cost, ..charge }, parts, known_us, at);
    }

    /// The nodes among which the limit is divided. A limit that is another node's alone during an
    /// outage is divided as well: that node knows of the cost as little as any.
    fn parts(&self, node: &Node, charge: &BucketCharge) -> u32 {
        let share = node.share.get();
        let key = charge.key.as_bytes();
        share
            .parts(key, charge.quota, charge.largest_cost)
            .unwrap_or(share.nodes())
    }
}

impl Reservation {
    /// The reservation of `charge`, which `source` has just granted.
    pub fn new(charge: BucketCharge, on_outage: OnOutage, source: DecisionSource) -> Self {
        Self {
            charge,
            on_outage,
            source,
            since_us: clock::monotonic_micros(),
        }
    }
}

impl SettlementWorker {
    async fn work(mut self, client: Arc<StoreClient>) {
        loop {
            let batch = self.settler.next();
            if batch.is_empty() {
                self.done = true;
                return;
            }
            self.settler.call(&client, batch).await;
        }
    }
}

impl Drop for SettlementWorker {
    fn drop(&mut self) {
        // Dropped with its runtime: the next one may begin.
        if !self.done {
            self.settler.queue.lock().running = false;
        }
        self.settler.idle.notify_waiters();
    }
}

impl Settlement {
    /// This settlement as the store is told of it. While shares are held back, a charge weighs as
    /// much more as that of a request, and so does a refund, unless its reservation may have been
    /// taken before: no more may come back than was charged.
    fn adjustment(&self, client: &StoreClient) -> Adjustment {
        let quota = self.charge.quota;
        let merged = MergedCharge::new(&self.charge);
        let share = &client.node.share;
        let mut change = self.change;
        match &mut change {
            Change::Charge { charge, .. } => {
                *charge = quota.charge_holding_back(share.held_back(&merged).part, *charge)
            }
            Change::Refund { charge, .. } => {
                let timeout_us = u64::try_from(client.timeout().as_micros()).unwrap_or(u64::MAX);
                let held = share.held_back_since(&merged, self.since_us.saturating_sub(timeout_us));
                *charge = quota.refund_holding_back(held, *charge);
            }
        }
        Adjustment {
            key: self.charge.key.clone(),
            quota: self.charge.quota,
            change,
        }
    }
}

/// Refunds where this node decided alone: a token weighs as much in its bucket as the limit has
/// parts, and was noted as a debt to the store.
fn refund_locally(client: &StoreClient, reservation: &Reservation, actual: u64, held_us: u64) {
    let Reservation {
        charge,
        source: DecisionSource { taken_at_us, .. },
        ..
    } = reservation;
    let node = &client.node;
    let now_us = clock::monotonic_micros();
    let key = charge.key.as_bytes();
    let share = node.share.get();
    let Some(parts) = share.parts(key, charge.quota, charge.largest_cost) else {
        return;
    };
    let part = charge.quota.shared_by(parts);
    if let Some(change) = change(part, [charge.cost, actual], *taken_at_us, held_us, now_us) {
        node.memory.adjust_at(
            [&Adjustment {
                key: charge.key.clone(),
                quota: charge.quota,
                change,
            }],
            now_us,
        );
    }
    let back = charge.quota.unspent(charge.cost, actual, held_us).charge;
    let from_us = node
        .memory
        .timestamp(charge.quota, *taken_at_us)
        .expires_at_us;
    node.debts
        .reduce(&charge.key, charge.quota, back, from_us, now_us);
}

/// The correction of a settlement at `now_us`, if there is anything to correct.
fn change(
    quota: Quota,
    [reserved, actual]: [u64; 2],
    taken_at_us: u64,
    held_us: u64,
    now_us: u64,
) -> Option<Change> {
    if actual >= reserved {
        let charge = quota.charge(actual - reserved).min(MAX_TICKS);
        return (charge > 0).then_some(Change::Charge {
            charge,
            since_us: now_us,
        });
    }
    let Unspent {
        charge: left,
        covered_us,
    } = quota.unspent(reserved, actual, held_us);
    let charge = quota.charge(reserved - actual);
    let taken_at_us = taken_at_us.saturating_add(covered_us);
    (left > 0).then_some(Change::Refund {
        charge,
        taken_at_us,
    })
}

#[cfg(test)]
mod tests;
