//! A store that stalls again and again for a moment. What is admitted meanwhile is paid back, also
//! by a bucket that is always empty.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{sleep, sleep_until};
use tollgate_limiter::algorithm::concurrency::GrantedPermits;
use tollgate_limiter::clock::{self, Instant};
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::node::recovery::run_control;
use tollgate_limiter::store::adjustment::{AdjustmentBatch, AdjustmentResult};
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::{BucketCharge, Grant, PermitClaim, Store, StoreError, StoreFailure};
use tollgate_testing::{SECOND, charge, decide, shape};

const TIMEOUT: Duration = Duration::from_millis(20);
const STALL: Duration = Duration::from_millis(30);
const PERIOD: Duration = Duration::from_millis(400);

/// Stalls at the end of each period. A call that is too late changes nothing.
struct StallingStore {
    memory: MemoryStore,
    started: Instant,
}

impl StallingStore {
    async fn answers(&self) -> Result<(), StoreError> {
        let now = clock::now();
        let period = PERIOD.as_millis();
        let into = Duration::from_millis(((now - self.started).as_millis() % period) as u64);
        let stalled_since = PERIOD - STALL;
        match into
            .checked_sub(stalled_since)
            .map(|stalled| STALL - stalled)
        {
            Some(wait) if wait > TIMEOUT => {
                sleep(TIMEOUT).await;
                return Err(StoreError::Timeout);
            }
            Some(wait) => sleep(wait).await,
            None => sleep(Duration::from_millis(1)).await,
        }
        Ok(())
    }
}

impl Store for StallingStore {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        Box::pin(async move {
            self.answers().await?;
            self.memory.take(charges, units).await
        })
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        Box::pin(async move {
            match self.answers().await {
                Ok(()) => self.memory.adjust(batch).await,
                Err(error) => vec![Err(error); batch.len()],
            }
        })
    }

    fn claim<'a>(
        &'a self,
        claims: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        self.memory.claim(claims)
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }
}

#[tokio::test(start_paused = true)]
async fn a_contended_bucket_pays_back_all_that_was_admitted_in_stalls() {
    let rate = 300;
    let burst = 100;
    let limit = shape(rate, SECOND, burst);
    let store = Arc::new(StallingStore {
        memory: MemoryStore::new(100),
        started: clock::now(),
    });
    let breaker = Arc::new(Breaker::new());
    let share = Arc::new(FleetShare::expecting(1));
    let node = Arc::new(Node::new(Arc::new(MemoryStore::new(100)), breaker, share));
    let limiter = Limiter::for_node(node.clone(), store.clone());
    let control = tokio::spawn(run_control(node, vec![store as Arc<dyn Store>]));
    let admitted = Arc::new(AtomicU64::new(0));
    let started = clock::now();
    let mut pace = started;
    while started.elapsed() < Duration::from_secs(20) {
        let limiter = limiter.clone();
        let admitted = admitted.clone();
        tokio::spawn(async move {
            let granted = decide(&limiter, &[charge("k", limit, 1)]).await.granted;
            admitted.fetch_add(u64::from(granted), Ordering::Relaxed);
        });
        pace += Duration::from_millis(1);
        sleep_until(pace).await;
    }
    let due = burst + rate * 20;
    let admitted = admitted.load(Ordering::Relaxed);
    // The debt of the last stall is still to be paid back.
    let last = rate * u64::try_from((STALL + TIMEOUT).as_millis()).unwrap() / 1_000;
    println!("{admitted} of {due}");
    assert!(
        admitted <= due + last && admitted * 100 >= due * 90,
        "{admitted} of {due}"
    );
    control.abort();
}
