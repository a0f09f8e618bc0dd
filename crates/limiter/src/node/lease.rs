//! Tokens taken ahead: a node's stock, spent in process by all of its workers.
//!
//! Guarantees that no token is spent longer than its limit's lease after it was asked for, on this node's monotonic clock
//! from before the call was sent; `TokenBucket::leased` says why the promise then stands. What is left when most of that time
//! has passed is for giving back; what is left at its end is lost, as it is when the node dies.
//! A stock is sized by what the node lately needed in the lease's time, and by its fair share of what the bucket has.
//! Nodes whose configurations differ, while a change reaches them, disagree on the reserve for that long, and on how much of
//! what they give back has flowed in again.
//! Refuses to know calls.

use smallvec::SmallVec;

use crate::algorithm::level::Level;
use crate::algorithm::token_bucket::TokenBucket;
use crate::limit::key::Key;
use crate::node::bounded_table::BoundedTable;
use crate::store::BucketCharge;

/// Limits and keys with a stock at a time, about 300 bytes each.
const PLACES: usize = 8_192;

/// Parts of the lease's time. A stock covers a half of it, so that what was taken is spent before it is late; it is filled
/// up once it covers less than a quarter, not more often than every eighth.
const COVER: u64 = 2;
const LOW: u64 = 4;
const PAUSE: u64 = 8;

/// One per node.
pub(crate) struct Leases {
    table: BoundedTable<Stock>,
}

struct Stock {
    shape: TokenBucket,
    batches: SmallVec<[Batch; 2]>,
    /// What the store last said of the bucket, and when.
    level: Level,
    heard_us: u64,
    demand: Demand,
    filled_us: u64,
}

/// Tokens of one call, oldest first in the stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Batch {
    tokens: u64,
    source: Source,
}

/// Where tokens came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// Of this node's monotonic clock, from before the call was sent.
    pub sent_us: u64,
    /// Of the store's clock.
    pub taken_at_us: u64,
}

/// Tokens needed in the lease's time.
#[derive(Default)]
struct Demand {
    pace: u64,
    counted: u64,
    since_us: u64,
}

/// Tokens that a request spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spent {
    pub source: Source,
    pub level: Level,
    /// Tokens to take before the stock runs out; mostly none.
    pub fill: u64,
}

impl Leases {
    pub fn new() -> Self {
        Self { table: BoundedTable::new(PLACES) }
    }

    /// Spends what `charge` costs, from tokens that live for `life_us` more. `nodes` share the bucket.
    pub fn spend(&self, charge: &BucketCharge, nodes: u32, now_us: u64, life_us: u64) -> Option<Spent> {
        self.table.with(&charge.key, |stock| {
            let stock = stock.filter(|stock| Some(stock.shape) == charge.quota.token_bucket())?;
            let source = stock.spend(charge.cost, now_us, life_us)?;
            stock.demand.count(charge.cost, now_us, charge.quota.lease_us());
            Some(Spent { source, level: stock.level(now_us), fill: stock.fill(nodes, now_us) })
        })
    }

    /// Puts back what another limit's denial made useless.
    pub fn put_back(&self, charge: &BucketCharge, source: Source) {
        self.table.with(&charge.key, |stock| {
            if let Some(stock) = stock.filter(|stock| Some(stock.shape) == charge.quota.token_bucket()) {
                stock.put(Batch { tokens: charge.cost, source });
                stock.demand.counted = stock.demand.counted.saturating_sub(charge.cost);
            }
        });
    }

    /// Tokens to take because `charge` could not be paid from stock.
    pub fn lack(&self, charge: &BucketCharge, nodes: u32, now_us: u64) -> u64 {
        let Some(shape) = charge.quota.token_bucket() else { return 0 };
        let lack = |stock: &mut Stock| {
            stock.adopt(shape);
            stock.demand.count(charge.cost, now_us, charge.quota.lease_us());
            stock.fill(nodes, now_us)
        };
        self.table.upsert(&charge.key, || Stock::new(shape), |stock| stock.heard_us, lack).0
    }

    /// Tokens to ask for beside the `needed` ones, when requests have to charge anyway.
    pub fn ahead(&self, charge: &BucketCharge, needed: u64, nodes: u32, now_us: u64) -> u64 {
        let Some(shape) = charge.quota.token_bucket() else { return 0 };
        let ahead = |stock: &mut Stock| {
            stock.adopt(shape);
            stock.demand.count(needed, now_us, charge.quota.lease_us());
            stock.filled_us = now_us;
            stock.missing(nodes, now_us)
        };
        self.table.upsert(&charge.key, || Stock::new(shape), |stock| stock.heard_us, ahead).0
    }

    /// Keeps `tokens` of `charge`'s bucket, and what the store said of it.
    pub fn deposit(&self, charge: &BucketCharge, tokens: u64, level: Level, source: Source) {
        let Some(shape) = charge.quota.token_bucket() else { return };
        let deposit = |stock: &mut Stock| {
            stock.adopt(shape);
            (stock.level, stock.heard_us) = (level, source.sent_us);
            if tokens > 0 {
                stock.put(Batch { tokens, source });
            }
        };
        self.table.upsert(&charge.key, || Stock::new(shape), |stock| stock.heard_us, deposit);
    }

    /// Takes out what is left of a call's tokens.
    pub fn withdraw(&self, charge: &BucketCharge, source: Source) -> u64 {
        self.table.with(&charge.key, |stock| {
            let Some(stock) = stock.filter(|stock| Some(stock.shape) == charge.quota.token_bucket()) else { return 0 };
            let place = stock.batches.iter().position(|batch| batch.source == source);
            place.map_or(0, |place| stock.batches.remove(place).tokens)
        })
    }

    /// Drops what there is of `key`.
    pub fn forget(&self, key: &Key) {
        self.table.remove(key);
    }
}

impl Stock {
    fn new(shape: TokenBucket) -> Self {
        Self {
            shape,
            batches: SmallVec::new(),
            level: Level::default(),
            heard_us: 0,
            demand: Demand::default(),
            filled_us: 0,
        }
    }

    /// Tokens of another limit are worth nothing under this one.
    fn adopt(&mut self, shape: TokenBucket) {
        if self.shape != shape {
            *self = Self::new(shape);
        }
    }

    fn put(&mut self, batch: Batch) {
        match self.batches.iter_mut().find(|known| known.source == batch.source) {
            Some(known) => known.tokens = known.tokens.saturating_add(batch.tokens),
            None => self.batches.push(batch),
        }
    }

    fn spend(&mut self, tokens: u64, now_us: u64, life_us: u64) -> Option<Source> {
        let lease_us = self.shape.lease_us();
        let ends = |batch: &Batch| batch.source.sent_us.saturating_add(lease_us);
        self.batches.retain(|batch| batch.tokens > 0 && ends(batch) >= now_us);
        let lives = |batch: &&mut Batch| batch.tokens >= tokens && ends(batch) >= now_us.saturating_add(life_us);
        let batch = self.batches.iter_mut().find(lives)?;
        batch.tokens -= tokens;
        Some(batch.source)
    }

    fn kept(&self) -> u64 {
        self.batches.iter().map(|batch| batch.tokens).fold(0, u64::saturating_add)
    }

    /// What is in stock and, as last heard, in the bucket. Of what is in stock, only what would be given back: the rest would
    /// be told of twice, if it is in the bucket again by then.
    fn level(&self, now_us: u64) -> Level {
        let flowing = self.shape.reserve().div_ceil(self.shape.emission());
        let lasting =
            self.batches.iter().map(|batch| batch.tokens.saturating_sub(flowing)).fold(0, u64::saturating_add);
        Level {
            remaining: self.level.remaining.saturating_add(lasting),
            retry_after_us: 0,
            reset_after_us: self.level.reset_after_us.saturating_sub(now_us.saturating_sub(self.heard_us)),
        }
    }

    /// What to fill up now.
    fn fill(&mut self, nodes: u32, now_us: u64) -> u64 {
        let due_us = self.filled_us.saturating_add(self.shape.lease_us() / PAUSE);
        if now_us < due_us || self.kept() >= self.demand.pace / LOW {
            return 0;
        }
        self.filled_us = now_us;
        self.missing(nodes, now_us)
    }

    /// A node's fair share is its part of what flows in during the lease, or half of its part of what is there: then as much
    /// is left for nodes that charge later.
    fn missing(&self, nodes: u32, now_us: u64) -> u64 {
        let nodes = u64::from(nodes.max(1));
        let flowing = self.shape.reserve() / self.shape.emission() / nodes;
        let there = self.level.remaining / nodes / 2;
        let lives = |batch: &&Batch| batch.source.sent_us.saturating_add(self.shape.lease_us()) > now_us;
        let kept = self.batches.iter().filter(lives).map(|batch| batch.tokens).fold(0, u64::saturating_add);
        (self.demand.pace / COVER).min(flowing.max(there)).saturating_sub(kept)
    }
}

impl Demand {
    /// Follows a rise at once, and a fall by halves.
    fn count(&mut self, tokens: u64, now_us: u64, lease_us: u64) {
        self.counted = self.counted.saturating_add(tokens);
        let elapsed = now_us.saturating_sub(self.since_us).max(1);
        if elapsed < lease_us / LOW {
            return;
        }
        let seen = self.counted.saturating_mul(lease_us) / elapsed;
        let old = if elapsed > 4 * lease_us { seen } else { self.pace };
        self.pace = seen.max(seen.midpoint(old));
        (self.counted, self.since_us) = (0, now_us);
    }
}

#[cfg(test)]
mod tests;
