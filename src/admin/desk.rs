//! Looks at buckets and changes them, wherever they live.
//!
//! Guarantees that a look always has an answer, and says whose it is; and that a change reaches all that is held of a
//! bucket: in the store, in this process, and by way of the store in every other node. Knows nothing of HTTP.

use std::sync::Arc;

use metrics::{Counter, counter};
use tollgate_limiter::algorithm::concurrency;
use tollgate_limiter::algorithm::concurrency::Scope;
use tollgate_limiter::algorithm::level::Level;
use tollgate_limiter::algorithm::quota::Quota;
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::decide::plans::cache::PlanQuery;
use tollgate_limiter::decide::plans::reader::PlanReader;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::node::fleet_share::FleetShare;
use tollgate_limiter::node::permits::PermitTable;
use tollgate_limiter::request::explanation::BucketUse;
use tollgate_limiter::store::inspect::{BeforeAndAfter, BucketChange, CacheListener, Inspect, TokenGrant};
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::{BucketCharge, StoreError};

use crate::clock;

/// The buckets of a node and of its fleet.
pub struct Desk {
    memory: Arc<MemoryStore>,
    slots: Arc<PermitTable>,
    fleet: Option<Fleet>,
    /// What keeps something of buckets in this process; the memory among them.
    holders: Vec<Arc<dyn CacheListener>>,
    changes: [Counter; 2],
}

/// What a node of a fleet has more.
pub struct Fleet {
    pub inspect: Arc<dyn Inspect>,
    pub breaker: Arc<Breaker>,
    pub share: Arc<FleetShare>,
    pub plans: Arc<PlanReader>,
}

/// What was seen of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    pub level: Level,
    pub source: Source,
    /// Why the store was not asked, or did not answer. Decisions are local meanwhile.
    pub away: Option<String>,
}

/// Who said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Redis,
    Local,
}

/// What a change came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub before: Level,
    pub after: Level,
    pub source: Source,
    /// Why other nodes may not have been told.
    pub untold: Option<StoreError>,
}

impl Desk {
    /// Resolves its metrics, so the recorder must be installed already. `holders` are those beside the memory.
    pub fn new(
        memory: Arc<MemoryStore>,
        slots: Arc<PermitTable>,
        fleet: Option<Fleet>,
        holders: Vec<Arc<dyn CacheListener>>,
    ) -> Self {
        let itself: Arc<dyn CacheListener> = memory.clone();
        let holders = std::iter::once(itself).chain(holders).collect();
        let changes = ["grant", "reset"].map(|action| counter!("tollgate_admin_changes_total", "action" => action));
        Self { memory, slots, fleet, holders, changes }
    }

    /// The bucket's level, as the next decision will find it. Changes nothing.
    pub async fn peek(&self, query: &BucketUse) -> Look {
        let Some(fleet) = &self.fleet else { return self.local(query, Share::WHOLE, None) };
        if let BucketUse::Permits(need) = query
            && need.limit.scope() == Scope::Node
        {
            return self.local(query, Share::WHOLE, None);
        }
        let away = if fleet.breaker.is_open() {
            "the store is away: this node decides by its share of the limit".to_owned()
        } else {
            match peek_fleet(fleet, query).await {
                Ok(level) => return Look { level, source: Source::Redis, away: None },
                Err(error) => format!("the store is away: {error}"),
            }
        };
        self.local(query, fleet.share.get(), Some(away))
    }

    /// Reads plans, for the whole node. `false`: there was nothing to read, or nowhere.
    pub async fn read_plans(&self, lookups: &[PlanQuery]) -> bool {
        let Some(fleet) = self.fleet.as_ref().filter(|_| !lookups.is_empty()) else { return false };
        fleet.plans.read(lookups).await;
        true
    }

    /// What this node holds: where its share of the limit would go on from if the store went away now.
    pub fn peek_local(&self, query: &BucketUse) -> Look {
        let share = self.fleet.as_ref().map_or(Share::WHOLE, |fleet| fleet.share.get());
        self.local(query, share, None)
    }

    /// What `gift` would come to.
    ///
    /// # Errors
    /// When the store could not be asked.
    pub async fn rehearse(&self, charge: &BucketCharge, gift: TokenGrant) -> Result<Given, StoreError> {
        let (seen, source) = match &self.fleet {
            Some(fleet) => (Some(fleet.inspect.peek(charge).await?), Source::Redis),
            None => (self.memory.peek_at(charge, clock::monotonic_micros(), Share::WHOLE), Source::Local),
        };
        let before = seen.ok_or(StoreError::Protocol)?;
        Ok(Given {
            before: before.level(charge.cost),
            after: before.given(gift).level(charge.cost),
            source,
            untold: None,
        })
    }

    /// Gives back, in the whole fleet.
    ///
    /// # Errors
    /// When the store could not be asked. A node alone changes nothing then: its own buckets are a share that others do not
    /// know of.
    pub async fn give(&self, charge: &BucketCharge, gift: TokenGrant) -> Result<Given, StoreError> {
        let now_us = clock::monotonic_micros();
        let (BeforeAndAfter { before, after }, source, untold) = match &self.fleet {
            None => (self.memory.give_at(charge, gift, now_us), Source::Local, None),
            Some(fleet) => {
                let changed = fleet.inspect.give(charge, gift).await?;
                let full_in_us = changed.after.full_in_us();
                self.lower(&charge.key, charge.quota, full_in_us);
                // After the change: told before, a node could learn the old level again from a decision in between.
                let told = fleet.inspect.tell(&BucketChange { key: charge.key.clone(), full_in_us }).await;
                (changed, Source::Redis, told.err())
            }
        };
        self.changes[usize::from(gift == TokenGrant::All)].increment(1);
        Ok(Given { before: before.level(charge.cost), after: after.level(charge.cost), source, untold })
    }

    /// Takes over a change that some node made of `charge`'s bucket. Goes by what the store says now: requests may have taken
    /// from the bucket since, and were noted here.
    pub async fn take_over(&self, charge: &BucketCharge, notice: &BucketChange) {
        let seen = match &self.fleet {
            Some(fleet) => fleet.inspect.peek(charge).await.ok(),
            None => None,
        };
        let full_in_us = seen.map_or(notice.full_in_us, |seen| seen.full_in_us());
        self.lower(&charge.key, charge.quota, full_in_us);
    }

    /// Lets go of what this process holds against a bucket beyond `full_in_us`.
    fn lower(&self, key: &Key, quota: Quota, full_in_us: u64) {
        let now_us = clock::monotonic_micros();
        self.holders.iter().for_each(|holder| holder.lower(key, quota, full_in_us, now_us));
    }

    fn local(&self, query: &BucketUse, share: Share, away: Option<String>) -> Look {
        let level = match query {
            BucketUse::Permits(need) => {
                let part = need.limit.shared_by(share.nodes());
                concurrency::level(part, self.slots.in_use(&need.key), need.cost)
            }
            BucketUse::Tokens(charge) => {
                let seen = self.memory.peek_at(charge, clock::monotonic_micros(), share);
                // Of a bucket that is another node's, as a request meets it here: nothing, and a guess at when to come back.
                let wait = charge.quota.pace_us(charge.cost);
                let elsewhere = Level { remaining: 0, retry_after_us: wait, reset_after_us: wait };
                seen.map_or(elsewhere, |seen| seen.level(charge.cost))
            }
        };
        Look { level, source: Source::Local, away }
    }
}

async fn peek_fleet(fleet: &Fleet, query: &BucketUse) -> Result<Level, StoreError> {
    match query {
        BucketUse::Tokens(charge) => Ok(fleet.inspect.peek(charge).await?.level(charge.cost)),
        BucketUse::Permits(need) => {
            let used = fleet.inspect.permits_in_use(&need.key).await?;
            Ok(concurrency::level(need.limit, used, need.cost))
        }
    }
}
