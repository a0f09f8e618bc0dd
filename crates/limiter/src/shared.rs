//! A limiter for a process that shares its limits with others through Redis.
//!
//! [`SharedLimiter`] has all that the promise needs: a place in the fleet, kept by heartbeats; a
//! task that finds out when Redis decides again; and one that hears of buckets that operators
//! reset. Its tasks run as long as a limiter made of it lives.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::clock;
use crate::decide::limiter::Limiter;
use crate::node::breaker::Breaker;
use crate::node::{Node, recovery};
use crate::store::Store;
use crate::store::fleet_share::FleetShare;
use crate::store::inspect::ChangeNotice;
use crate::store::memory::MemoryStore;
use crate::store::redis::heartbeat::Heartbeat;
use crate::store::redis::inspect::RedisInspector;
use crate::store::redis::spec::RedisSpec;
use crate::store::redis::{ConnectError, RedisStore};

/// Buckets kept in this process at most, for outages.
const MAX_LOCAL_BUCKETS: usize = 100_000;

/// How long a start waits for Redis. After that, its absence is an outage like any other.
const FIRST_CONTACT: Duration = Duration::from_secs(1);

/// The longest that permits are given back at the end.
const LAST_CLAIMS: Duration = Duration::from_secs(1);

/// Between two looks for local buckets that are full again.
const SWEEP: Duration = Duration::from_secs(2);

/// A process's place in a fleet that shares its limits.
///
/// ```no_run
/// # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate_limiter::{Limit, RateLimitLayer, SharedLimiter, client_ip};
///
/// let redis = SharedLimiter::connect("redis://127.0.0.1:6379").await?;
/// let layer = RateLimitLayer::new(&redis, [Limit::per_second("per-client", 10).key(client_ip())])?;
/// // … serve, and at the end of the process:
/// redis.leave().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SharedLimiter {
    limiter: Limiter,
    share: Arc<FleetShare>,
    member: Arc<FleetTasks>,
}

/// The tasks of a process in the fleet. They end with it.
struct FleetTasks {
    heartbeat: Arc<Heartbeat>,
    store: RedisStore,
    inspector: RedisInspector,
    tasks: Vec<AbortHandle>,
    /// Whether the connections are closed already.
    left: AtomicBool,
}

impl SharedLimiter {
    /// Connects to the Redis at `url` (`redis://[user:password@]host[:port][/database]`,
    /// `rediss://` for TLS, `redis+unix://`, `redis-sentinel://`, `redis-cluster://`), with the
    /// defaults of [`RedisSpec::new`]. Must run in a tokio runtime. A Redis that is away is an
    /// outage like any other, and no error.
    ///
    /// # Errors
    /// When the URL is not one, or TLS cannot be set up.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::connect_with(&RedisSpec::new(url)).await
    }

    /// Connects as `spec` says.
    ///
    /// # Errors
    /// When the URL is not one, or TLS cannot be set up.
    pub async fn connect_with(spec: &RedisSpec) -> Result<Self, ConnectError> {
        let share = Arc::new(FleetShare::expecting(spec.expected_nodes));
        let heartbeat = Arc::new(Heartbeat::join(spec, share.clone())?);
        let store = RedisStore::connect(spec)?.in_fleet(share.clone());
        let memory = Arc::new(MemoryStore::new(MAX_LOCAL_BUCKETS));
        let node = Arc::new(Node::new(memory, Arc::new(Breaker::new()), share.clone()));
        let inspector = RedisInspector::connect(spec)?;
        let stores: Vec<Arc<dyn Store>> = vec![Arc::new(store.clone())];
        let beating = heartbeat.clone();
        let tasks = vec![
            tokio::spawn(async move { beating.run().await }).abort_handle(),
            tokio::spawn(recovery::run_control(node.clone(), stores)).abort_handle(),
            tokio::spawn(recovery::watch(node.clone(), Arc::new(store.clone()))).abort_handle(),
            tokio::spawn(sweep(node.clone())).abort_handle(),
            tokio::spawn(follow_operators(inspector.clone(), node.clone())).abort_handle(),
            tokio::spawn(watch_evictions(inspector.clone())).abort_handle(),
        ];
        let left = AtomicBool::new(false);
        let member = Arc::new(FleetTasks {
            heartbeat,
            store: store.clone(),
            inspector,
            tasks,
            left,
        });
        // From here on a caller who gives up waiting closes the connections.
        recovery::first_contact(&node, &store, FIRST_CONTACT).await;
        let limiter =
            Limiter::for_node(node, Arc::new(store.clone())).reading_plans(Arc::new(store));
        let limiter = limiter.keeping(member.clone());
        Ok(Self {
            limiter,
            share,
            member,
        })
    }

    /// A limiter of this process. Clones are cheap.
    pub fn limiter(&self) -> Limiter {
        self.limiter.clone()
    }

    /// The processes of the fleet that were last seen, this one included: during an outage, each
    /// enforces its part of so many.
    pub fn processes(&self) -> u32 {
        self.share.get().nodes()
    }

    /// Settles what requests turned out to cost, gives back permits that no request uses, and
    /// leaves the fleet in order, so that the others need not wait for this process's silence. For
    /// the end of the process: its limiters decide locally from then on.
    pub async fn leave(&self) {
        self.limiter.settled().await;
        let _ = timeout(LAST_CLAIMS, self.limiter.leave_permits()).await;
        self.member.tasks.iter().for_each(AbortHandle::abort);
        if !self.member.left.swap(true, Ordering::Relaxed) {
            close(
                &self.member.heartbeat,
                &self.member.store,
                &self.member.inspector,
            )
            .await;
        }
    }
}

impl From<&SharedLimiter> for Limiter {
    fn from(shared: &SharedLimiter) -> Self {
        shared.limiter()
    }
}

impl Drop for FleetTasks {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        if let (false, Ok(runtime)) = (self.left.load(Ordering::Relaxed), Handle::try_current()) {
            let heartbeat = self.heartbeat.clone();
            let store = self.store.clone();
            let inspector = self.inspector.clone();
            runtime.spawn(async move { close(&heartbeat, &store, &inspector).await });
        }
    }
}

async fn close(heartbeat: &Heartbeat, store: &RedisStore, inspector: &RedisInspector) {
    heartbeat.leave().await;
    store.close().await;
    inspector.close().await;
}

/// Drops what this process holds against buckets that an operator reset or gave tokens to, at any
/// process of the fleet.
async fn follow_operators(inspector: RedisInspector, node: Arc<Node>) {
    inspector
        .listen(|notice: ChangeNotice| {
            let now_us = clock::monotonic_micros();
            node.memory
                .lower_stored(&notice.key, notice.full_in_us, now_us);
            node.lower_caches(&notice.key, notice.full_in_us, now_us);
            ready(())
        })
        .await;
}

async fn watch_evictions(inspector: RedisInspector) {
    inspector.watch_evictions().await;
}

async fn sweep(node: Arc<Node>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let now_us = clock::monotonic_micros();
        node.memory.sweep(now_us);
        node.memory.follow_clock();
        node.sweep(now_us);
    }
}
