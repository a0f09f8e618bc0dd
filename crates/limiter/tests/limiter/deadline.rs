//! All that a request waits for the store takes one time limit at most.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tollgate_limiter::algorithm::concurrency::GrantedPermits;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::store::adjustment::{AdjustmentBatch, AdjustmentResult};
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::hash_reader::{FieldValue, HashReader};
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::{BucketCharge, Grant, PermitClaim, Store, StoreError, StoreFailure};
use tollgate_testing::node::{layer_that_asks_four_times, waiting_time};

const TIMEOUT: Duration = Duration::from_millis(20);

/// A store that never answers. Reads of plans take `plans`.
struct SilentStore {
    plans: Duration,
}

impl Store for SilentStore {
    fn take<'a>(
        &'a self,
        _: &'a [BucketCharge],
        _: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        Box::pin(pending())
    }

    fn adjust<'a>(&'a self, _: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        Box::pin(pending())
    }

    fn claim<'a>(
        &'a self,
        _: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        Box::pin(pending())
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }
}

impl HashReader for SilentStore {
    fn read<'a>(
        &'a self,
        _: &'a str,
        fields: &'a [Key],
    ) -> BoxFuture<'a, Result<Vec<FieldValue>, StoreError>> {
        Box::pin(async move {
            tokio::time::sleep(self.plans).await;
            Ok(vec![None; fields.len()])
        })
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_permits_and_tokens_together_wait_one_time_limit() {
    for plans in [0, 8, 15, 1_000].map(Duration::from_millis) {
        let breaker = Arc::new(Breaker::new());
        let share = Arc::new(FleetShare::expecting(1));
        let node = Node::new(Arc::new(MemoryStore::new(1_000)), breaker.clone(), share);
        let store = Arc::new(SilentStore { plans });
        let layer = layer_that_asks_four_times(
            Limiter::for_node(Arc::new(node), store.clone()).reading_plans(store),
        );
        for round in 0..3 {
            // Requests of one tenant share calls, and the breaker opens in one of the rounds.
            let tenants = [
                format!("a{round}"),
                format!("a{round}"),
                format!("b{round}"),
            ];
            let waits = join_all(tenants.iter().map(|tenant| waiting_time(&layer, tenant))).await;
            let longest = waits.iter().max().unwrap();
            assert!(
                *longest <= TIMEOUT + Duration::from_millis(1),
                "{longest:?}, plans in {plans:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_plan_does_not_make_the_store_of_buckets_look_away() {
    let breaker = Arc::new(Breaker::new());
    let node = Node::new(
        Arc::new(MemoryStore::new(1_000)),
        breaker.clone(),
        Arc::new(FleetShare::expecting(1)),
    );
    let store = Arc::new(SilentStore {
        plans: Duration::from_secs(1),
    });
    let layer = layer_that_asks_four_times(
        Limiter::for_node(Arc::new(node), store.clone()).reading_plans(store),
    );
    let tenants: Vec<String> = (0..10).map(|tenant| tenant.to_string()).collect();
    join_all(tenants.iter().map(|tenant| waiting_time(&layer, tenant))).await;
    assert!(!breaker.is_open(), "no bucket was asked for");
}
