//! A gateway's limiter on Redis, put together as the gateway does, and how it notices outages and
//! their ends.

use std::convert::Infallible;
use std::future::ready;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderName, Request, Response};
use http_body_util::Full;
use tokio::task::JoinSet;
use tollgate_limiter::algorithm::concurrency::{GrantedPermits, Scope};
use tollgate_limiter::clock;
use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::layer::RateLimitLayer;
use tollgate_limiter::limit::algorithm::{Algorithm, Rate};
use tollgate_limiter::limit::definition::{Limit, LimitUse};
use tollgate_limiter::limit::key::{Key, KeyPart, KeySpec, OnMissing};
use tollgate_limiter::limit::plan::{PlanHash, PlanSource, Plans};
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::node::recovery::{run_control, watch};
use tollgate_limiter::store::adjustment::{AdjustmentBatch, AdjustmentResult};
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::redis::RedisStore;
use tollgate_limiter::store::redis::heartbeat::Heartbeat;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_limiter::store::{
    BucketCharge, Grant, PermitClaim, ServerId, Store, StoreError, StoreFailure,
};
use tower::{Layer, ServiceExt, service_fn};

use crate::{SECOND, charge, decide, eventually, in_time, shape};

const TEN: NonZeroU64 = NonZeroU64::new(10).unwrap();

/// A store on this server, once it is connected.
pub async fn connected(spec: &RedisSpec) -> RedisStore {
    let store = RedisStore::connect(spec).unwrap();
    let probe = [charge("warm-up", shape(1, SECOND, 1), 1)];
    eventually("the store connects", || async {
        store.take(&probe, 1).await.is_ok()
    })
    .await;
    store
}

/// A store that counts the calls that take and adjust.
pub struct CountingStore {
    pub store: RedisStore,
    calls: AtomicU64,
}

impl CountingStore {
    pub fn new(store: RedisStore) -> Self {
        Self {
            store,
            calls: AtomicU64::new(0),
        }
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Store for CountingStore {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.store.take(charges, units)
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.store.adjust(batch)
    }

    fn claim<'a>(
        &'a self,
        claims: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        self.store.claim(claims)
    }

    fn probe(&self, server: ServerId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.probe(server)
    }

    fn server_of(&self, key: &Key) -> ServerId {
        self.store.server_of(key)
    }

    fn server_of_permits(&self, key: &Key) -> ServerId {
        self.store.server_of_permits(key)
    }

    fn server_name(&self, server: ServerId) -> String {
        self.store.server_name(server)
    }

    fn timeout(&self) -> Duration {
        self.store.timeout()
    }
}

/// A node of two workers, with control tasks and a place in the fleet. Requests go through the
/// first worker's store.
pub struct LimiterNode {
    pub limiter: Limiter,
    /// Counts the calls of requests. The control task's go past it.
    pub store: Arc<CountingStore>,
    pub breaker: Arc<Breaker>,
    pub share: Arc<FleetShare>,
    _tasks: JoinSet<()>,
}

impl LimiterNode {
    pub fn start(spec: &RedisSpec) -> Self {
        let breaker = Arc::new(Breaker::new());
        let share = Arc::new(FleetShare::expecting(spec.expected_nodes));
        let workers = [(), ()].map(|()| RedisStore::connect(spec).unwrap().in_fleet(share.clone()));
        let store = Arc::new(CountingStore::new(workers[0].clone()));
        let node = Arc::new(Node::new(
            Arc::new(MemoryStore::new(10_000)),
            breaker.clone(),
            share.clone(),
        ));
        let limiter = Limiter::for_node(node.clone(), store.clone());
        let fleet = Heartbeat::join(spec, share.clone()).unwrap();
        let mut tasks = JoinSet::new();
        let workers = workers.map(|store| Arc::new(store) as Arc<dyn Store>);
        tasks.spawn(watch(node.clone(), workers[0].clone()));
        tasks.spawn(run_control(node, workers.into()));
        tasks.spawn(async move { fleet.run().await });
        Self {
            limiter,
            store,
            breaker,
            share,
            _tasks: tasks,
        }
    }

    pub async fn started(spec: &RedisSpec) -> Self {
        let node = Self::start(spec);
        eventually("Redis decides", || node.asks_redis()).await;
        node
    }

    pub async fn asks_redis(&self) -> bool {
        decide(
            &self.limiter,
            &[charge("warm-up", shape(10_000, SECOND, 10_000), 1)],
        )
        .await
        .decided_by
            == DecidedBy::Redis
    }

    /// Requests until the breaker is open: each is decided, in time.
    pub async fn notices_the_outage(&self) {
        self.notices_the_outage_of(&[charge("warm-up", shape(10_000, SECOND, 10_000), 1)])
            .await;
    }

    /// Like [`Self::notices_the_outage`], by requests for these buckets.
    pub async fn notices_the_outage_of(&self, buckets: &[BucketCharge]) {
        for _ in 0..20 {
            in_time("a request is decided", decide(&self.limiter, buckets)).await;
            if self.breaker.is_open() {
                return;
            }
        }
        panic!("the breaker stays closed");
    }

    pub async fn recovers(&self) {
        eventually("Redis decides again", || async {
            self.asks_redis().await && !self.breaker.is_open()
        })
        .await;
    }
}

/// Limits that ask the store four times for the first request of a tenant: for its plan, for
/// permits of two limits, and for tokens.
pub fn layer_that_asks_four_times(limiter: Limiter) -> RateLimitLayer {
    let source = PlanSource::Hash(PlanHash {
        name: "plans".into(),
        cache: Duration::from_secs(1),
    });
    let tokens = Limit {
        plans: Some(Plans {
            by: tenant(),
            source,
        }),
        ..limit_per_tenant("tokens")
    };
    let limits = [
        tokens,
        permits_per_tenant("first"),
        permits_per_tenant("second"),
    ];
    RateLimitLayer::of_uses(
        limiter,
        &limits.map(|limit| LimitUse {
            limit: Arc::new(limit),
            cost: None,
        }),
    )
    .unwrap()
}

fn tenant() -> KeyPart {
    KeyPart::Header(HeaderName::from_static("x-tenant"))
}

/// Ten tokens a second for each tenant.
fn limit_per_tenant(name: &str) -> Limit {
    let key = KeySpec {
        parts: vec![tenant()],
        on_missing: OnMissing::Share,
    };
    let rate = Rate {
        tokens: TEN,
        period_us: NonZeroU64::new(SECOND).unwrap(),
    };
    Limit::new(name, key, rate, TEN)
}

/// Ten requests at once for each tenant.
fn permits_per_tenant(name: &str) -> Limit {
    Limit {
        algorithm: Algorithm::Concurrency {
            most: TEN,
            scope: Scope::Fleet,
        },
        ..limit_per_tenant(name)
    }
}

/// How long a tenant's request waits at `layer`.
pub async fn waiting_time(layer: &RateLimitLayer, tenant: &str) -> Duration {
    let inner = service_fn(|_: Request<Full<Bytes>>| {
        ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    });
    let request = Request::builder()
        .header("x-tenant", tenant)
        .body(Full::default())
        .unwrap();
    let started = clock::now();
    layer.layer(inner).oneshot(request).await.unwrap();
    started.elapsed()
}
