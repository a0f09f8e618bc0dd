//! The data plane: one worker per core, each with its own runtime, sockets, upstream connections and Redis connection.

use std::future::Future;
use std::net::TcpListener as StdListener;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::join_all;
use http::{Request, Response};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::node::recovery;
use tollgate_limiter::store::Store;
use tollgate_limiter::store::redis::RedisStore;

use super::{Common, UPKEEP};
use crate::body::Body;
use crate::error::Failure;
use crate::gateway::account::InFlight;
use crate::gateway::{WorkerListener, stack};
use crate::proxy::Proxy;
use crate::server::{self, Connection, Drained, Handler, ListenerSpec, Slots, worker};

/// How long a start waits for the store, before it goes on without.
const FIRST_CONTACT: Duration = Duration::from_secs(1);

/// A listener's part in one worker.
pub struct Door {
    pub socket: StdListener,
    pub spec: Arc<ListenerSpec>,
    pub slots: Slots,
}

/// What a worker hands to the control plane once it runs.
struct Started {
    in_flight: Arc<InFlight>,
    store: Option<RedisStore>,
}

/// The workers, as the control plane sees them.
pub struct Workers {
    pub threads: Vec<JoinHandle<anyhow::Result<Drained>>>,
    pub in_flight: Vec<Arc<InFlight>>,
    pub stores: Vec<RedisStore>,
    ended: Arc<Notify>,
}

/// Tells that its worker has ended, by a panic too.
struct Farewell(Arc<Notify>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Workers {
    /// Starts one for each set of doors, and returns once all of them serve.
    pub fn start(doors: Vec<Vec<Door>>, common: &Common) -> anyhow::Result<Self> {
        let (report, reports) = mpsc::channel();
        let mut workers = Self::none();
        for (index, doors) in doors.into_iter().enumerate() {
            let (common, report) = (common.clone(), report.clone());
            workers.spawn(index, move || work(common, doors, report))?;
        }
        drop(report);
        for started in reports {
            workers.in_flight.push(started.in_flight);
            workers.stores.extend(started.store);
        }
        // A worker that failed has ended without a report, and its error is what it returned.
        if workers.in_flight.len() < workers.threads.len() {
            for thread in workers.threads.into_iter().filter(JoinHandle::is_finished) {
                joined(thread)?;
            }
            anyhow::bail!("a worker did not start");
        }
        Ok(workers)
    }

    fn none() -> Self {
        Self { threads: Vec::new(), in_flight: Vec::new(), stores: Vec::new(), ended: Arc::default() }
    }

    fn spawn<F>(&mut self, index: usize, main: impl FnOnce() -> F + Send + 'static) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<Drained>>,
    {
        let farewell = Farewell(self.ended.clone());
        let thread = worker::spawn(index, move || async move {
            let _farewell = farewell;
            main().await
        });
        self.threads.push(thread.context("cannot start a worker")?);
        Ok(())
    }

    /// Waits until a worker has ended, which none does before it is told to.
    pub async fn lost(&self) {
        self.ended.notified().await;
    }

    /// Waits until all connections have ended or were cut; says how many were cut.
    pub async fn join(self) -> anyhow::Result<usize> {
        let threads = self.threads;
        let cut = tokio::task::spawn_blocking(move || threads.into_iter().map(joined).sum());
        cut.await?
    }
}

fn joined(thread: JoinHandle<anyhow::Result<Drained>>) -> anyhow::Result<usize> {
    let ended = thread.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?;
    ended.map(|drained| drained.cut)
}

/// One worker, from start to drain.
async fn work(common: Common, doors: Vec<Door>, report: mpsc::Sender<Started>) -> anyhow::Result<Drained> {
    let store = common.fleet.as_ref().map(|fleet| RedisStore::connect(&fleet.spec)).transpose()?;
    let limiter = match (&common.fleet, &store) {
        (Some(fleet), Some(store)) => {
            Limiter::of_node(fleet.node.clone(), Arc::new(store.clone())).reading_plans(Arc::new(store.clone()))
        }
        _ => Limiter::of_process(common.memory.clone(), common.slots.clone()),
    };
    if let (Some(fleet), Some(store)) = (&common.fleet, &store) {
        recovery::first_contact(&fleet.node.breaker, store, FIRST_CONTACT).await;
    }
    let proxy = Arc::new(Proxy::default());
    let in_flight = Arc::new(InFlight::default());
    let serving = doors.into_iter().enumerate().map(|(listener, door)| {
        let (gateway, proxy, in_flight) = (common.gateway.clone(), proxy.clone(), in_flight.clone());
        let entrance = WorkerListener { gateway, index: listener, limiter: limiter.clone(), proxy, in_flight };
        let drain = common.drain.clone();
        async move {
            let socket = TcpListener::from_std(door.socket)?;
            Ok(server::serve(socket, door.spec, entrance, door.slots, drain).await)
        }
    });
    let serving = join_all(serving);
    report.send(Started { in_flight: in_flight.clone(), store: store.clone() })?;
    drop(report);

    let ended: Vec<anyhow::Result<Drained>> = tokio::select! {
        ended = serving => ended,
        () = sweep(&proxy) => Vec::new(),
    };
    if let Some(store) = store {
        // What the last responses told of their costs: as long as a call may take, and it may have to wait for one.
        let _ = timeout(2 * store.timeout(), limiter.settled()).await;
        store.close().await;
    }
    let cut = ended.into_iter().map(|drained| drained.map(|drained| drained.cut)).sum::<anyhow::Result<usize>>()?;
    Ok(Drained { cut })
}

async fn sweep(proxy: &Proxy) {
    loop {
        sleep(UPKEEP).await;
        proxy.sweep();
    }
}

impl Handler for WorkerListener {
    fn handle(
        &self,
        connection: &Arc<Connection>,
        request: Request<Body>,
    ) -> impl Future<Output = Response<Body>> + Send {
        stack::serve(self.gateway.load_full(), self, connection.peer.ip(), request)
    }

    fn refuse(&self, connection: &Arc<Connection>, failure: Failure) -> Response<Body> {
        stack::refuse(&self.gateway.load(), self, connection.peer.ip(), failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_panics_does_not_go_unnoticed() {
        let mut workers = Workers::none();
        workers.spawn(0, || async { panic!("a bug, as told to") }).unwrap();
        tokio::time::timeout(Duration::from_secs(20), workers.lost()).await.unwrap();
        assert!(workers.join().await.is_err());
    }
}
