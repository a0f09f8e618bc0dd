//! The wires between the nodes of a simulated fleet and its server: calls take time, overtake each
//! other, and get lost.
//!
//! Guarantees that a wire answers when the store in Redis would: a call without an answer fails
//! when its connection has been silent for longer than the time limit, and the server carries out
//! no call whose deadline has passed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, pending};
use parking_lot::Mutex;
use tokio::time::{sleep, sleep_until, timeout};
use tollgate_limiter::algorithm::concurrency::GrantedPermits;
use tollgate_limiter::clock::{self, Instant};
use tollgate_limiter::store::adjustment::{
    Adjustment, AdjustmentBatch, AdjustmentOutcome, AdjustmentResult, Change,
};
use tollgate_limiter::store::{BucketCharge, Grant, PermitClaim, Store, StoreError, StoreFailure};

use super::schedule::{LossRates, Outage};
use super::server::{FleetView, with_redis};

/// The time limit of calls.
pub const TIMEOUT: Duration = Duration::from_millis(100);

/// A connection that is silent for longer than the time limit and this is replaced.
const SILENT_CONNECTION: Duration = Duration::from_millis(50);

/// The time limits that a correction may take.
const ADJUST_TIMEOUTS: u32 = 3;

/// The condition of a node's wires.
#[derive(Clone, Copy, Debug)]
pub struct WireCondition {
    /// Milliseconds of one way.
    pub latency: (u64, u64),
    /// Milliseconds that a call takes in all, at least.
    pub floor: u64,
    pub outage: Option<Outage>,
    pub losses: LossRates,
}

/// The state that the wires of a node share.
pub struct NodeWires {
    pub condition: Mutex<WireCondition>,
    pub view: Mutex<FleetView>,
    /// The process has ended without notice.
    pub is_dead: AtomicBool,
}

/// The wire of a worker.
pub struct WireStore {
    pub node: Arc<NodeWires>,
    pub random: Mutex<fastrand::Rng>,
}

/// A call that has reached the server.
struct Passage {
    sent: Instant,
    limit: Duration,
    back: Duration,
    is_reply_lost: bool,
}

/// Tokens that were taken for a node which may not hear of it.
struct UnheardGrant<'a> {
    charges: &'a [BucketCharge],
    units: u32,
    is_heard: bool,
}

impl Drop for UnheardGrant<'_> {
    fn drop(&mut self) {
        for charge in self.charges.iter().filter(|_| !self.is_heard) {
            with_redis(|redis| {
                redis.note_unheard(&charge.key, charge.cost * u64::from(self.units))
            });
        }
    }
}

impl WireStore {
    fn is_out(&self) -> Option<Outage> {
        self.node.condition.lock().outage
    }

    /// Carries a call to the server. Also returns the server's time after which it may change
    /// nothing.
    async fn carry_to_server(&self, limit: Duration) -> Result<(Passage, u64), StoreError> {
        let sent = clock::now();
        let deadline_us =
            with_redis(|redis| redis.now_us()) + u64::try_from(limit.as_micros()).unwrap();
        let condition = *self.node.condition.lock();
        let (mut out, mut back, is_request_lost, is_reply_lost) = {
            let mut random = self.random.lock();
            let mut way = || random.u64(condition.latency.0..=condition.latency.1);
            let out = way();
            let back = way();
            let mut lost = |percent| random.u32(0..100) < percent;
            (
                out,
                back,
                lost(condition.losses.requests),
                lost(condition.losses.replies),
            )
        };
        if out + back < condition.floor {
            (out, back) = (condition.floor / 2, condition.floor - condition.floor / 2);
        }
        self.end_if_dead().await;
        if condition.outage == Some(Outage::Refused) {
            return Err(StoreError::Io);
        }
        sleep(Duration::from_millis(out)).await;
        self.end_if_dead().await;
        let passage = Passage {
            sent,
            limit,
            back: Duration::from_millis(back),
            is_reply_lost,
        };
        if is_request_lost || self.is_out().is_some() {
            return Err(passage.silence().await);
        }
        while let Some(until) =
            with_redis(|redis| redis.stalled_until.get()).filter(|until| *until > clock::now())
        {
            sleep_until(until).await;
        }
        Ok((passage, deadline_us))
    }

    /// Carries a reply back.
    async fn carry_back(&self, passage: Passage) -> Result<(), StoreError> {
        if passage.is_reply_lost {
            return Err(passage.silence().await);
        }
        sleep(passage.back).await;
        self.end_if_dead().await;
        if self.is_out().is_some() || passage.sent.elapsed() > passage.limit + SILENT_CONNECTION {
            return Err(passage.silence().await);
        }
        Ok(())
    }

    async fn end_if_dead(&self) {
        if self.node.is_dead.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
    }

    fn view(&self) -> FleetView {
        self.node.view.lock().clone()
    }

    async fn adjusted(&self, batch: &AdjustmentBatch) -> Vec<AdjustmentResult> {
        if self.node.is_dead.load(Ordering::Relaxed) {
            return vec![Ok(AdjustmentOutcome::Applied); batch.len()];
        }
        let nodes = self.view().share.nodes();
        let (passage, deadline_us) = match self.carry_to_server(ADJUST_TIMEOUTS * TIMEOUT).await {
            Ok(arrived) => arrived,
            Err(error) => {
                note_lost_refunds(batch);
                return vec![Err(error); batch.len()];
            }
        };
        let results = with_redis(|redis| redis.adjust(batch, nodes, deadline_us));
        match self.carry_back(passage).await {
            Ok(()) => results,
            Err(error) => vec![Err(error); batch.len()],
        }
    }
}

impl Passage {
    /// Waits until the connection has been silent for too long.
    async fn silence(&self) -> StoreError {
        sleep_until(self.sent + self.limit + SILENT_CONNECTION).await;
        StoreError::Io
    }
}

/// A refund that is sent once and lost leaves its bucket emptier than it should be.
fn note_lost_refunds(batch: &AdjustmentBatch) {
    for Adjustment { key, quota, change } in batch.iter().filter(|_| batch.id.is_none()) {
        if let Change::Refund { charge, .. } = change {
            with_redis(|redis| redis.note_unheard(key, charge.div_ceil(quota.charge(1))));
        }
    }
}

impl Store for WireStore {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        Box::pin(async move {
            let view = self.view();
            let (passage, deadline_us) = self.carry_to_server(TIMEOUT).await?;
            let grant = with_redis(|redis| redis.take(charges, units, &view, deadline_us))?;
            let mut unheard = UnheardGrant {
                charges,
                units: grant.units,
                is_heard: false,
            };
            self.carry_back(passage).await?;
            unheard.is_heard = true;
            Ok(grant)
        })
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        Box::pin(async move {
            let results = timeout(ADJUST_TIMEOUTS * TIMEOUT, self.adjusted(batch)).await;
            results.unwrap_or_else(|_| vec![Err(StoreError::Timeout); batch.len()])
        })
    }

    fn claim<'a>(
        &'a self,
        claims: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        Box::pin(async move {
            if self.node.is_dead.load(Ordering::Relaxed) {
                return Ok(vec![GrantedPermits::default(); claims.len()]);
            }
            let claimed = async {
                let (passage, deadline_us) = self.carry_to_server(TIMEOUT).await?;
                let granted = with_redis(|redis| redis.claim(claims, deadline_us))?;
                self.carry_back(passage).await?;
                Ok(granted)
            };
            timeout(TIMEOUT, claimed)
                .await
                .unwrap_or(Err(StoreError::Timeout))
        })
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }
}
