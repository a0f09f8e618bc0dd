//! Reads the level of a bucket and changes it, wherever the bucket lives.
//!
//! A reading always has a level and says where it is from. A change reaches all that is held of a bucket: in the store,
//! in this process, and by way of the store in every other node.

use std::sync::Arc;

use metrics::{Counter, counter};

use crate::clock;
use crate::rate_limit::breaker::Breaker;
use crate::rate_limit::decision::Level;
use crate::rate_limit::in_flight::{self, Scope};
use crate::rate_limit::key::Key;
use crate::rate_limit::plan_cache::Lookup;
use crate::rate_limit::plan_reader::PlanReader;
use crate::rate_limit::quota::Quota;
use crate::rate_limit::share::{Share, ShareCell};
use crate::rate_limit::slots::Slots;
use crate::store::inspect::{Changed, Gift, Holder, Inspect, Notice};
use crate::store::memory::MemoryStore;
use crate::store::{Ask, StoreError};

/// The buckets of a node and of its fleet.
pub struct BucketService {
    memory: Arc<MemoryStore>,
    slots: Arc<Slots>,
    fleet: Option<FleetBuckets>,
    /// All that keeps something of buckets in this process, the memory among them.
    holders: Vec<Arc<dyn Holder>>,
    changes: [Counter; 2],
}

/// The parts of a node that shares its buckets with a fleet.
pub struct FleetBuckets {
    pub inspect: Arc<dyn Inspect>,
    pub breaker: Arc<Breaker>,
    pub share: Arc<ShareCell>,
    pub plans: Arc<PlanReader>,
}

/// The level of a bucket, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketReading {
    pub level: Level,
    pub source: LevelSource,
    /// Why the store was not asked, or did not answer. Decisions are local meanwhile.
    pub away: Option<String>,
}

/// The place that a level was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LevelSource {
    Redis,
    Local,
}

/// A change of a bucket, made or previewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketChange {
    pub before: Level,
    pub after: Level,
    pub source: LevelSource,
    /// Why other nodes may not know of the change.
    pub unannounced: Option<StoreError>,
}

impl BucketService {
    /// Resolves its metrics, so the recorder must be installed already. `holders` are those beside the memory.
    pub fn new(
        memory: Arc<MemoryStore>,
        slots: Arc<Slots>,
        fleet: Option<FleetBuckets>,
        holders: Vec<Arc<dyn Holder>>,
    ) -> Self {
        let own: Arc<dyn Holder> = memory.clone();
        let holders = std::iter::once(own).chain(holders).collect();
        let changes = ["grant", "reset"].map(|action| counter!("tollgate_admin_changes_total", "action" => action));
        Self { memory, slots, fleet, holders, changes }
    }

    /// The bucket's level, as the next decision will find it.
    pub async fn peek(&self, ask: &Ask) -> BucketReading {
        let Some(fleet) = &self.fleet else { return self.local(ask, Share::WHOLE, None) };
        if ask.quota.in_flight().is_some_and(|slots| slots.scope() == Scope::Node) {
            return self.local(ask, Share::WHOLE, None);
        }
        let away = if fleet.breaker.is_open() {
            "the store is away: this node decides by its share of the limit".to_owned()
        } else {
            match fleet.inspect.peek(ask).await {
                Ok(seen) => {
                    return BucketReading { level: seen.level(ask.cost), source: LevelSource::Redis, away: None };
                }
                Err(error) => format!("the store is away: {error}"),
            }
        };
        self.local(ask, fleet.share.get(), Some(away))
    }

    /// Reads plans, for the whole node. `false`: there was nothing to read, or nowhere.
    pub async fn read_plans(&self, lookups: &[Lookup]) -> bool {
        let Some(fleet) = self.fleet.as_ref().filter(|_| !lookups.is_empty()) else { return false };
        fleet.plans.read(lookups).await;
        true
    }

    /// The level on this node, from which its share of the limit would go on if the store went away now.
    pub fn peek_local(&self, ask: &Ask) -> BucketReading {
        let share = self.fleet.as_ref().map_or(Share::WHOLE, |fleet| fleet.share.get());
        self.local(ask, share, None)
    }

    /// The change that `gift` would make.
    ///
    /// # Errors
    /// When the store could not be asked.
    pub async fn preview(&self, ask: &Ask, gift: Gift) -> Result<BucketChange, StoreError> {
        let (seen, source) = match &self.fleet {
            Some(fleet) => (Some(fleet.inspect.peek(ask).await?), LevelSource::Redis),
            None => (self.memory.peek_at(ask, clock::monotonic_micros(), Share::WHOLE), LevelSource::Local),
        };
        let before = seen.ok_or(StoreError::Protocol)?;
        Ok(BucketChange {
            before: before.level(ask.cost),
            after: before.given(gift).level(ask.cost),
            source,
            unannounced: None,
        })
    }

    /// Gives tokens back, in the whole fleet.
    ///
    /// # Errors
    /// When the store could not be asked. A node alone changes nothing then: its own buckets are a share that others do
    /// not know of.
    pub async fn apply(&self, ask: &Ask, gift: Gift) -> Result<BucketChange, StoreError> {
        let now_us = clock::monotonic_micros();
        let (Changed { before, after }, source, unannounced) = match &self.fleet {
            None => (self.memory.give_at(ask, gift, now_us), LevelSource::Local, None),
            Some(fleet) => {
                let changed = fleet.inspect.give(ask, gift).await?;
                let full_in_us = changed.after.full_in_us();
                self.lower(&ask.key, ask.quota, full_in_us);
                // After the change: announced before it, a node could learn the old level again from a decision in
                // between.
                let announced = fleet.inspect.tell(&Notice { key: ask.key.clone(), full_in_us }).await;
                (changed, LevelSource::Redis, announced.err())
            }
        };
        self.changes[usize::from(gift == Gift::All)].increment(1);
        Ok(BucketChange { before: before.level(ask.cost), after: after.level(ask.cost), source, unannounced })
    }

    /// Applies a change that some node made of `ask`'s bucket. The level is read from the store anew: requests may have
    /// taken from the bucket since, and this node has noted them.
    pub async fn follow(&self, ask: &Ask, notice: &Notice) {
        let seen = match &self.fleet {
            Some(fleet) => fleet.inspect.peek(ask).await.ok(),
            None => None,
        };
        let full_in_us = seen.map_or(notice.full_in_us, |seen| seen.full_in_us());
        self.lower(&ask.key, ask.quota, full_in_us);
    }

    /// Lowers what this process holds against a bucket to `full_in_us`.
    fn lower(&self, key: &Key, quota: Quota, full_in_us: u64) {
        let now_us = clock::monotonic_micros();
        self.holders.iter().for_each(|holder| holder.lower(key, quota, full_in_us, now_us));
    }

    fn local(&self, ask: &Ask, share: Share, away: Option<String>) -> BucketReading {
        if ask.quota.in_flight().is_some() {
            let part = ask.quota.shared_by(share.nodes());
            let level = part.in_flight().map(|part| in_flight::level(part, self.slots.in_use(&ask.key), ask.cost));
            return BucketReading { level: level.unwrap_or_default(), source: LevelSource::Local, away };
        }
        let seen = self.memory.peek_at(ask, clock::monotonic_micros(), share);
        // The bucket is another node's. A request meets an empty one here, with a guess at when to come back.
        let wait = ask.quota.pace_us(ask.cost);
        let elsewhere = Level { remaining: 0, retry_after_us: wait, reset_after_us: wait };
        BucketReading { level: seen.map_or(elsewhere, |seen| seen.level(ask.cost)), source: LevelSource::Local, away }
    }
}
