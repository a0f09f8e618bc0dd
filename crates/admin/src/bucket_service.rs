//! Reads the level of a bucket and changes it, wherever the bucket lives.
//!
//! A reading always has a level and says where it is from. A change reaches all that is held of a
//! bucket: in the store, in this process, and by way of the store in every other node.

use std::sync::Arc;

use metrics::{Counter, counter};
use tollgate_limiter::algorithm::concurrency::{self, Scope};
use tollgate_limiter::algorithm::level::Level;
use tollgate_limiter::algorithm::quota::Quota;
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::decide::plans::cache::PlanQuery;
use tollgate_limiter::decide::plans::reader::PlanReader;
use tollgate_limiter::limit::definition::OnOutage;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::node::permits::PermitTable;
use tollgate_limiter::request::explanation::BucketUse;
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::inspect::{
    BeforeAndAfter, CacheListener, ChangeNotice, Inspect, TokenGrant,
};
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::{BucketCharge, ServerId, StoreError};

use tollgate_limiter::clock;

/// The buckets of a node and of its fleet.
pub struct BucketService {
    memory: Arc<MemoryStore>,
    permits: Arc<PermitTable>,
    fleet: Option<FleetBuckets>,
    /// The caches of buckets in this process, the memory among them.
    listeners: Vec<Arc<dyn CacheListener>>,
    changes: [Counter; 2],
}

/// The parts of a node that shares its buckets with a fleet.
pub struct FleetBuckets {
    pub inspect: Arc<dyn Inspect>,
    pub breaker: Arc<Breaker>,
    pub share: Arc<FleetShare>,
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
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
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
    /// Resolves metrics, so the recorder must be installed already. `listeners` are the caches
    /// beside the memory.
    pub fn new(
        memory: Arc<MemoryStore>,
        permits: Arc<PermitTable>,
        fleet: Option<FleetBuckets>,
        listeners: Vec<Arc<dyn CacheListener>>,
    ) -> Self {
        let mut all: Vec<Arc<dyn CacheListener>> = vec![memory.clone()];
        all.extend(listeners);
        let changes = ["grant", "reset"]
            .map(|action| counter!("tollgate_admin_changes_total", "action" => action));
        Self {
            memory,
            permits,
            fleet,
            listeners: all,
            changes,
        }
    }

    /// The bucket's level, as the next decision will find it. While the store is away, that is by
    /// `on_outage`.
    pub async fn peek(&self, bucket: &BucketUse, on_outage: OnOutage) -> BucketReading {
        let Some(fleet) = &self.fleet else {
            return self.local(bucket, Share::WHOLE, None);
        };
        if let BucketUse::Permits(need) = bucket
            && need.limit.scope() == Scope::Node
        {
            return self.local(bucket, Share::WHOLE, None);
        }
        let server = fleet.server_of(bucket);
        let mut error = String::new();
        if !fleet.breaker.is_open_for(server) {
            match fleet.level(bucket).await {
                Ok(level) => {
                    return BucketReading {
                        level,
                        source: LevelSource::Redis,
                        away: None,
                    };
                }
                Err(cause) => error = format!(" ({cause})"),
            }
        }
        let mut reading = self.local(bucket, fleet.share.get(), None);
        let decision = match on_outage.after(fleet.breaker.open_for(server)) {
            OnOutage::Local | OnOutage::LocalFor { .. } => {
                "this node decides by its share of the limit"
            }
            OnOutage::Allow => {
                reading.level = Level {
                    remaining: capacity(bucket),
                    ..Level::default()
                };
                "every request passes"
            }
            OnOutage::Deny => {
                reading.level = Level::DENIED_WITHOUT_STORE;
                "every request is denied"
            }
        };
        reading.away = Some(format!("the store is away{error}: {decision}"));
        reading
    }

    /// Reads plans, for the whole node. `false`: there was nothing to read, or nowhere.
    pub async fn read_plans(&self, queries: &[PlanQuery]) -> bool {
        match &self.fleet {
            Some(fleet) if !queries.is_empty() => {
                fleet.plans.read(queries).await;
                true
            }
            Some(_) | None => false,
        }
    }

    /// The level on this node, from which its share of the limit would go on if the store went away
    /// now.
    pub fn peek_local(&self, bucket: &BucketUse) -> BucketReading {
        let share = match &self.fleet {
            Some(fleet) => fleet.share.get(),
            None => Share::WHOLE,
        };
        self.local(bucket, share, None)
    }

    /// The change that `gift` would make.
    ///
    /// # Errors
    /// When the store could not be asked.
    pub async fn preview(
        &self,
        charge: &BucketCharge,
        gift: TokenGrant,
    ) -> Result<BucketChange, StoreError> {
        let (state, source) = match &self.fleet {
            Some(fleet) => (Some(fleet.inspect.peek(charge).await?), LevelSource::Redis),
            None => (
                self.memory
                    .peek_at(charge, clock::monotonic_micros(), Share::WHOLE),
                LevelSource::Local,
            ),
        };
        let before = state.ok_or(StoreError::Protocol)?;
        Ok(BucketChange {
            before: before.level(charge.cost),
            after: before.granted(gift).level(charge.cost),
            source,
            unannounced: None,
        })
    }

    /// Gives tokens back, in the whole fleet.
    ///
    /// # Errors
    /// When the store could not be asked. A node alone changes nothing then: its own buckets are a
    /// share that others do not know of.
    pub async fn apply(
        &self,
        charge: &BucketCharge,
        gift: TokenGrant,
    ) -> Result<BucketChange, StoreError> {
        let now_us = clock::monotonic_micros();
        let (BeforeAndAfter { before, after }, source, unannounced) = match &self.fleet {
            None => (
                self.memory.grant_at(charge, gift, now_us),
                LevelSource::Local,
                None,
            ),
            Some(fleet) => {
                let changed = fleet.inspect.grant(charge, gift).await?;
                let full_in_us = changed.after.full_in_us();
                self.lower(&charge.key, charge.quota, full_in_us);
                // After the change: announced before it, a node could learn the old level again
                // from a decision in between.
                let announced = fleet
                    .inspect
                    .publish(&ChangeNotice {
                        key: charge.key.clone(),
                        full_in_us,
                    })
                    .await;
                (changed, LevelSource::Redis, announced.err())
            }
        };
        self.changes[usize::from(gift == TokenGrant::All)].increment(1);
        Ok(BucketChange {
            before: before.level(charge.cost),
            after: after.level(charge.cost),
            source,
            unannounced,
        })
    }

    /// Applies a change that some node made of `charge`'s bucket. The level is read from the store
    /// anew: requests may have taken from the bucket since, and this node has noted them.
    pub async fn follow(&self, charge: &BucketCharge, notice: &ChangeNotice) {
        let state = match &self.fleet {
            Some(fleet) => fleet.inspect.peek(charge).await.ok(),
            None => None,
        };
        let full_in_us = state.map_or(notice.full_in_us, |state| state.full_in_us());
        self.lower(&charge.key, charge.quota, full_in_us);
    }

    /// Lowers what this process holds against a bucket to `full_in_us`.
    fn lower(&self, key: &Key, quota: Quota, full_in_us: u64) {
        let now_us = clock::monotonic_micros();
        for listener in &self.listeners {
            listener.lower(key, quota, full_in_us, now_us);
        }
    }

    fn local(&self, bucket: &BucketUse, share: Share, away: Option<String>) -> BucketReading {
        let level = match bucket {
            BucketUse::Permits(need) => {
                let part = need.limit.shared_by(share.nodes());
                concurrency::level(part, self.permits.in_use(&need.key), need.cost)
            }
            BucketUse::Tokens(charge) => {
                let state = self
                    .memory
                    .peek_at(charge, clock::monotonic_micros(), share);
                // The bucket is another node's. A request meets an empty one here, with a guess at
                // when to come back.
                let wait = charge.quota.pace_us(charge.cost);
                let elsewhere = Level {
                    remaining: 0,
                    retry_after_us: wait,
                    reset_after_us: wait,
                };
                state.map_or(elsewhere, |state| state.level(charge.cost))
            }
        };
        BucketReading {
            level,
            source: LevelSource::Local,
            away,
        }
    }
}

/// The level of a full bucket.
fn capacity(bucket: &BucketUse) -> u64 {
    match bucket {
        BucketUse::Tokens(charge) => charge.quota.burst(),
        BucketUse::Permits(need) => need.limit.most(),
    }
}

impl FleetBuckets {
    fn server_of(&self, bucket: &BucketUse) -> ServerId {
        match bucket {
            BucketUse::Tokens(charge) => self.inspect.server_of(&charge.key),
            BucketUse::Permits(need) => self.inspect.server_of_permits(&need.key),
        }
    }

    async fn level(&self, bucket: &BucketUse) -> Result<Level, StoreError> {
        match bucket {
            BucketUse::Tokens(charge) => Ok(self.inspect.peek(charge).await?.level(charge.cost)),
            BucketUse::Permits(need) => {
                let in_use = self.inspect.permits_in_use(&need.key).await?;
                Ok(concurrency::level(need.limit, in_use, need.cost))
            }
        }
    }
}
