//! A store whose answers a test gives itself, call by call.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollgate_limiter::algorithm::concurrency::GrantedPermits;
use tollgate_limiter::decide::decision::Decision;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::store::adjustment::{
    Adjustment, AdjustmentBatch, AdjustmentOutcome, AdjustmentResult,
};
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::{BucketCharge, Grant, PermitClaim, Store, StoreError, StoreFailure};

pub const TIMEOUT: Duration = Duration::from_millis(20);

/// Hands every call over, and waits for its answer for as long as the test takes.
pub struct ManualStore {
    calls: UnboundedSender<Call>,
    adjustments: UnboundedSender<Vec<Adjustment>>,
}

/// A call that waits for its answer.
pub struct Call {
    pub charges: Vec<BucketCharge>,
    pub units: u32,
    answer: oneshot::Sender<Result<Grant, StoreFailure>>,
}

impl ManualStore {
    pub fn open() -> (
        Self,
        UnboundedReceiver<Call>,
        UnboundedReceiver<Vec<Adjustment>>,
    ) {
        let ((calls, called), (adjustments, adjusted)) = (unbounded_channel(), unbounded_channel());
        (Self { calls, adjustments }, called, adjusted)
    }
}

impl Call {
    pub fn answer(self, result: Result<Grant, StoreFailure>) {
        // The request may have been dropped.
        let _ = self.answer.send(result);
    }

    /// Answers with the decision of `memory`.
    pub async fn answer_from(self, memory: &MemoryStore) {
        let grant = memory.take(&self.charges, self.units).await;
        self.answer(grant);
    }
}

impl Store for ManualStore {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        let (answer, answered) = oneshot::channel();
        let handed_over = self.calls.send(Call {
            charges: charges.to_vec(),
            units,
            answer,
        });
        Box::pin(async move {
            handed_over.map_err(|_| StoreError::Io)?;
            answered.await.unwrap_or(Err(StoreError::Io.into()))
        })
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        let handed_over = self.adjustments.send(batch.iter().cloned().collect());
        let result = handed_over
            .map(|()| AdjustmentOutcome::Applied)
            .map_err(|_| StoreError::Io);
        Box::pin(ready(vec![result; batch.len()]))
    }

    fn claim<'a>(
        &'a self,
        _: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        Box::pin(std::future::ready(Err(StoreError::Io)))
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }
}

/// A limiter of one node, and the store that its calls come to.
pub struct Fixture {
    pub limiter: Limiter,
    pub breaker: Arc<Breaker>,
    pub node: Arc<Node>,
    pub calls: UnboundedReceiver<Call>,
    pub adjusted: UnboundedReceiver<Vec<Adjustment>>,
    /// The buckets that answers are decided from.
    pub memory: MemoryStore,
}

impl Fixture {
    pub fn new() -> Self {
        let (store, calls, adjusted) = ManualStore::open();
        let breaker = Arc::new(Breaker::new());
        let share = Arc::new(FleetShare::expecting(1));
        let local = Arc::new(MemoryStore::new(100));
        let node = Arc::new(Node::new(local, breaker.clone(), share));
        let limiter = Limiter::for_node(node.clone(), Arc::new(store));
        Self {
            limiter,
            breaker,
            node,
            calls,
            adjusted,
            memory: MemoryStore::new(100),
        }
    }

    /// A request on its way: it has asked or boarded when this returns.
    pub async fn send(&self, charges: &[BucketCharge]) -> JoinHandle<Decision> {
        let limiter = self.limiter.clone();
        let charges = charges.to_vec();
        let request =
            tokio::spawn(async move { tollgate_testing::decide(&limiter, &charges).await });
        tokio::task::yield_now().await;
        request
    }

    pub async fn call(&mut self) -> Call {
        self.calls.recv().await.unwrap()
    }

    /// A request and the call it makes, if it makes one.
    pub async fn decide(&mut self, charges: &[BucketCharge]) -> (Decision, bool) {
        let request = self.send(charges).await;
        let call = self.calls.try_recv();
        let called = call.is_ok();
        if let Ok(call) = call {
            call.answer_from(&self.memory).await;
        }
        (request.await.unwrap(), called)
    }
}
