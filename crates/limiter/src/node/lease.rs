//! Leases: tokens taken ahead by a node, and spent in process by all of its workers.
//!
//! Guarantees that no token is spent longer than its limit's lease after the call for it was sent,
//! on this node's monotonic clock; [`TokenBucket::leased`] argues why the promise then stands.
//! Tokens left when most of that time has passed are to be given back; tokens left at its end are
//! lost, like those of a node that dies.
//!
//! A node's tokens of a key are sized by its recent demand in the lease's time, and by its fair
//! share of the bucket. While a changed configuration reaches the nodes, they disagree for that
//! long on the reserve, and on how much of the tokens given back has flowed in again.

use smallvec::SmallVec;

use crate::algorithm::level::Level;
use crate::algorithm::token_bucket::TokenBucket;
use crate::limit::key::Key;
use crate::node::bounded_table::BoundedTable;
use crate::store::BucketCharge;

/// Keys with leased tokens at a time, about 300 bytes each.
const CAPACITY: usize = 8_192;

/// Parts of the lease's time. The tokens cover half of it, so that they are spent before they
/// expire. More are taken once they cover less than a quarter, and not more often than every
/// eighth.
const COVER: u64 = 2;
const LOW: u64 = 4;
const PAUSE: u64 = 8;

/// A node has one.
pub(crate) struct Leases {
    table: BoundedTable<KeyLease>,
}

struct KeyLease {
    shape: TokenBucket,
    batches: SmallVec<[TokenBatch; 2]>,
    /// The level of the bucket in the store's last answer, and when its call was sent.
    level: Level,
    level_at_us: u64,
    demand: LeaseDemand,
    filled_us: u64,
}

/// The tokens of one call. A key's batches are in order, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TokenBatch {
    tokens: u64,
    source: LeaseSource,
}

/// The call that tokens came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseSource {
    /// On this node's monotonic clock, from before the call was sent.
    pub sent_us: u64,
    /// On the store's clock.
    pub taken_at_us: u64,
}

/// The tokens needed in the lease's time.
#[derive(Default)]
struct LeaseDemand {
    pace: u64,
    counted: u64,
    since_us: u64,
}

/// Tokens that a request spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpentLease {
    pub source: LeaseSource,
    pub level: Level,
    /// Tokens to take ahead now; mostly none.
    pub fill: u64,
}

impl Leases {
    pub fn new() -> Self {
        Self {
            table: BoundedTable::new(CAPACITY),
        }
    }

    /// Spends the cost of `charge`, from tokens that are valid for `life_us` more. `nodes` share
    /// the bucket.
    pub fn spend(
        &self,
        charge: &BucketCharge,
        nodes: u32,
        now_us: u64,
        life_us: u64,
    ) -> Option<SpentLease> {
        self.table.with(&charge.key, |lease| {
            let lease = lease.filter(|lease| Some(lease.shape) == charge.quota.token_bucket())?;
            let source = lease.spend(charge.cost, now_us, life_us)?;
            lease
                .demand
                .count(charge.cost, now_us, charge.quota.lease_us());
            Some(SpentLease {
                source,
                level: lease.level(now_us),
                fill: lease.fill(nodes, now_us),
            })
        })
    }

    /// Puts back tokens that another limit's denial made useless.
    pub fn give_back(&self, charge: &BucketCharge, source: LeaseSource) {
        self.table.with(&charge.key, |lease| {
            if let Some(lease) =
                lease.filter(|lease| Some(lease.shape) == charge.quota.token_bucket())
            {
                lease.put(TokenBatch {
                    tokens: charge.cost,
                    source,
                });
                lease.demand.counted = lease.demand.counted.saturating_sub(charge.cost);
            }
        });
    }

    /// Tokens to take ahead when the lease could not pay `charge`.
    pub fn lack(&self, charge: &BucketCharge, nodes: u32, now_us: u64) -> u64 {
        let Some(shape) = charge.quota.token_bucket() else {
            return 0;
        };
        self.table
            .upsert(
                &charge.key,
                || KeyLease::new(shape),
                |lease| lease.level_at_us,
                |lease: &mut KeyLease| {
                    lease.adopt(shape);
                    lease
                        .demand
                        .count(charge.cost, now_us, charge.quota.lease_us());
                    lease.fill(nodes, now_us)
                },
            )
            .0
    }

    /// Tokens to take ahead beside the `needed` ones, in a call that requests make anyway.
    pub fn ahead(&self, charge: &BucketCharge, needed: u64, nodes: u32, now_us: u64) -> u64 {
        let Some(shape) = charge.quota.token_bucket() else {
            return 0;
        };
        self.table
            .upsert(
                &charge.key,
                || KeyLease::new(shape),
                |lease| lease.level_at_us,
                |lease: &mut KeyLease| {
                    lease.adopt(shape);
                    lease.demand.count(needed, now_us, charge.quota.lease_us());
                    lease.filled_us = now_us;
                    lease.missing(nodes, now_us)
                },
            )
            .0
    }

    /// Adds `tokens` of the bucket of `charge`, and the level of the answer.
    pub fn deposit(&self, charge: &BucketCharge, tokens: u64, level: Level, source: LeaseSource) {
        let Some(shape) = charge.quota.token_bucket() else {
            return;
        };
        self.table.upsert(
            &charge.key,
            || KeyLease::new(shape),
            |lease| lease.level_at_us,
            |lease: &mut KeyLease| {
                lease.adopt(shape);
                (lease.level, lease.level_at_us) = (level, source.sent_us);
                if tokens > 0 {
                    lease.put(TokenBatch { tokens, source });
                }
            },
        );
    }

    /// Takes out the tokens left of one call.
    pub fn withdraw(&self, charge: &BucketCharge, source: LeaseSource) -> u64 {
        self.table.with(&charge.key, |lease| {
            let Some(lease) =
                lease.filter(|lease| Some(lease.shape) == charge.quota.token_bucket())
            else {
                return 0;
            };
            let place = lease
                .batches
                .iter()
                .position(|batch| batch.source == source);
            place.map_or(0, |place| lease.batches.remove(place).tokens)
        })
    }

    /// Drops the tokens of `key`.
    pub fn forget(&self, key: &Key) {
        self.table.remove(key);
    }
}

impl KeyLease {
    fn new(shape: TokenBucket) -> Self {
        Self {
            shape,
            batches: SmallVec::new(),
            level: Level::default(),
            level_at_us: 0,
            demand: LeaseDemand::default(),
            filled_us: 0,
        }
    }

    /// Drops tokens of another limit: they are worth nothing under this one.
    fn adopt(&mut self, shape: TokenBucket) {
        if self.shape != shape {
            *self = Self::new(shape);
        }
    }

    fn put(&mut self, batch: TokenBatch) {
        match self
            .batches
            .iter_mut()
            .find(|known| known.source == batch.source)
        {
            Some(known) => known.tokens = known.tokens.saturating_add(batch.tokens),
            None => self.batches.push(batch),
        }
    }

    fn spend(&mut self, tokens: u64, now_us: u64, life_us: u64) -> Option<LeaseSource> {
        let lease_us = self.shape.lease_us();
        self.batches
            .retain(|batch| batch.tokens > 0 && batch.ends_us(lease_us) >= now_us);
        let needed_us = now_us.saturating_add(life_us);
        let batch = self
            .batches
            .iter_mut()
            .find(|batch| batch.tokens >= tokens && batch.ends_us(lease_us) >= needed_us)?;
        batch.tokens -= tokens;
        Some(batch.source)
    }

    fn tokens_left(&self) -> u64 {
        self.batches
            .iter()
            .map(|batch| batch.tokens)
            .fold(0, u64::saturating_add)
    }

    /// The tokens of the lease and, by the last answer, of the bucket. Of the lease, only tokens
    /// that would be given back count: the others would count twice once they have flowed into the
    /// bucket again.
    fn level(&self, now_us: u64) -> Level {
        let flowing = self.shape.reserve().div_ceil(self.shape.emission());
        let lasting = self
            .batches
            .iter()
            .map(|batch| batch.tokens.saturating_sub(flowing))
            .fold(0, u64::saturating_add);
        Level {
            remaining: self.level.remaining.saturating_add(lasting),
            retry_after_us: 0,
            reset_after_us: self
                .level
                .reset_after_us
                .saturating_sub(now_us.saturating_sub(self.level_at_us)),
        }
    }

    /// Tokens to take ahead now.
    fn fill(&mut self, nodes: u32, now_us: u64) -> u64 {
        let due_us = self.filled_us.saturating_add(self.shape.lease_us() / PAUSE);
        if now_us < due_us || self.tokens_left() >= self.demand.pace / LOW {
            return 0;
        }
        self.filled_us = now_us;
        self.missing(nodes, now_us)
    }

    /// Tokens to take ahead, up to a node's fair share. That is its part of the tokens that flow in
    /// during the lease, or half of its part of the tokens in the bucket: then as many are left for
    /// nodes that charge later.
    fn missing(&self, nodes: u32, now_us: u64) -> u64 {
        let nodes = u64::from(nodes.max(1));
        let flowing = self.shape.reserve() / self.shape.emission() / nodes;
        let there = self.level.remaining / nodes / 2;
        let tokens_left = self
            .batches
            .iter()
            .filter(|batch| batch.source.sent_us.saturating_add(self.shape.lease_us()) > now_us)
            .map(|batch| batch.tokens)
            .fold(0, u64::saturating_add);
        (self.demand.pace / COVER)
            .min(flowing.max(there))
            .saturating_sub(tokens_left)
    }
}

impl LeaseDemand {
    /// Counts tokens. The pace follows a rise at once, and a fall by halves.
    fn count(&mut self, tokens: u64, now_us: u64, lease_us: u64) {
        self.counted = self.counted.saturating_add(tokens);
        let elapsed = now_us.saturating_sub(self.since_us).max(1);
        if elapsed < lease_us / LOW {
            return;
        }
        let seen = self.counted.saturating_mul(lease_us) / elapsed;
        let old = if elapsed > 4 * lease_us {
            seen
        } else {
            self.pace
        };
        self.pace = seen.max(seen.midpoint(old));
        (self.counted, self.since_us) = (0, now_us);
    }
}

impl TokenBatch {
    /// The end of its lease.
    fn ends_us(&self, lease_us: u64) -> u64 {
        self.source.sent_us.saturating_add(lease_us)
    }
}

#[cfg(test)]
mod tests;
