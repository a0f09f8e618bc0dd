//! The data plane: one worker per core, each with its own runtime, sockets, upstream connections
//! and Redis connection.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::join_all;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::node::recovery;
use tollgate_limiter::store::Store;
use tollgate_limiter::store::redis::RedisStore;

use super::listeners::BoundListener;
use super::shared::{FleetMember, SharedState, UPKEEP};
use tollgate_gateway::account::InFlight;
use tollgate_gateway::{Worker, WorkerListener};
use tollgate_proxy::Proxy;
use tollgate_server::{self as server, Drain, Drained, worker};
use tollgate_wire::transport::listening_socket::AcceptingSocket;

/// The longest that a start waits for the store, before it goes on without.
const FIRST_CONTACT: Duration = Duration::from_secs(1);

/// The longest that a worker gives permits back at its end, or two calls to the store if those may
/// take longer.
const LAST_CLAIMS: Duration = Duration::from_secs(1);

/// The parts of a running worker that the control plane uses.
struct WorkerReport {
    in_flight: Arc<InFlight>,
    store: Option<RedisStore>,
}

/// The workers, as the control plane sees them.
pub struct Workers {
    pub threads: Vec<JoinHandle<anyhow::Result<Drained>>>,
    pub in_flight: Vec<Arc<InFlight>>,
    pub stores: Vec<RedisStore>,
    /// Whether the workers may serve.
    opening: watch::Sender<bool>,
    ended: Arc<Notify>,
}

/// Notifies when its worker ends, also by a panic.
struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Workers {
    /// Starts a worker for each list of listeners, and returns once all of them can serve.
    pub fn start(listeners: Vec<Vec<BoundListener>>, shared: &SharedState) -> anyhow::Result<Self> {
        let (report, reports) = mpsc::channel();
        let mut workers = Self::none();
        for (index, listeners) in listeners.into_iter().enumerate() {
            let shared = shared.clone();
            let report = report.clone();
            let opened = workers.opening.subscribe();
            workers.spawn(index, move || work(shared, listeners, report, opened))?;
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

    /// Accepts connections from now on.
    pub fn serve(&self) {
        self.opening.send_replace(true);
    }

    fn none() -> Self {
        let opening = watch::Sender::new(false);
        Self {
            threads: Vec::new(),
            in_flight: Vec::new(),
            stores: Vec::new(),
            opening,
            ended: Arc::default(),
        }
    }

    fn spawn<F>(
        &mut self,
        index: usize,
        main: impl FnOnce() -> F + Send + 'static,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<Drained>>,
    {
        let notify = NotifyOnDrop(self.ended.clone());
        let thread = worker::spawn(format!("worker-{index}"), move || async move {
            let _notify = notify;
            main().await
        });
        self.threads.push(thread.context("cannot start a worker")?);
        Ok(())
    }

    /// Waits until a worker has ended, which none does before the drain.
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
    let ended = thread
        .join()
        .map_err(|_| anyhow::anyhow!("a worker panicked"))?;
    ended.map(|drained| drained.cut)
}

/// Runs a worker, from start to drain.
async fn work(
    shared: SharedState,
    listeners: Vec<BoundListener>,
    report: mpsc::Sender<WorkerReport>,
    mut opened: watch::Receiver<bool>,
) -> anyhow::Result<Drained> {
    let mut store = None;
    let limiter = match &shared.fleet {
        Some(fleet) => {
            let connected = connect(fleet).await?;
            let shared_store = Arc::new(connected.clone());
            store = Some(connected);
            Limiter::for_node(fleet.node.clone(), shared_store.clone()).reading_plans(shared_store)
        }
        None => Limiter::for_process(shared.memory.clone(), shared.permits.clone()),
    };
    let process = shared.process.clone();
    let worker = Worker {
        limiter,
        proxy: Arc::new(Proxy::new(Arc::new(move || process.make_room()))),
        in_flight: Arc::new(InFlight::default()),
    };
    let mut serving = Vec::with_capacity(listeners.len());
    for (index, listener) in listeners.into_iter().enumerate() {
        let handler = WorkerListener {
            gateway: shared.gateway.clone(),
            index,
            worker: worker.clone(),
            tls: listener.tls.clone(),
        };
        serving.push(serve_listener(listener, handler, shared.drain.clone()));
    }
    let serving = join_all(serving);
    report.send(WorkerReport {
        in_flight: worker.in_flight.clone(),
        store: store.clone(),
    })?;
    drop(report);
    // Not before: another process may be the one that serves.
    if opened.wait_for(|is_open| *is_open).await.is_err() {
        return Ok(Drained { cut: 0 });
    }

    let ended: Vec<anyhow::Result<Drained>> = tokio::select! {
        ended = serving => ended,
        () = sweep(&worker.proxy, &shared) => Vec::new(),
    };
    if let Some(store) = store {
        // The last responses have to be settled: that takes one call, which may have to wait for
        // another.
        let calls = 2 * store.timeout();
        let _ = timeout(calls, worker.limiter.settled()).await;
        // The last worker to end gives back what the others left.
        let _ = timeout(LAST_CLAIMS.max(calls), worker.limiter.leave_permits()).await;
        store.close().await;
    }
    let mut cut = 0;
    for drained in ended {
        cut += drained?.cut;
    }
    Ok(Drained { cut })
}

/// The worker's own connection to the store, which may still be away.
async fn connect(fleet: &FleetMember) -> anyhow::Result<RedisStore> {
    let store = RedisStore::connect(&fleet.spec)?.in_fleet(fleet.node.share.clone());
    recovery::first_contact(&fleet.node, &store, FIRST_CONTACT).await;
    Ok(store)
}

async fn serve_listener(
    listener: BoundListener,
    handler: WorkerListener,
    drain: Drain,
) -> anyhow::Result<Drained> {
    let mut sockets = Vec::with_capacity(listener.sockets.len());
    for socket in listener.sockets {
        sockets.push(AcceptingSocket::try_from(socket)?);
    }
    Ok(server::serve(sockets, listener.spec, handler, listener.limit, drain).await)
}

async fn sweep(proxy: &Proxy, shared: &SharedState) {
    loop {
        sleep(UPKEEP).await;
        proxy.sweep();
        if let Some(keys) = shared.gateway.load().connection_keys() {
            proxy.retain(|key| keys.contains(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_panics_is_noticed() {
        let mut workers = Workers::none();
        workers
            .spawn(0, || async { panic!("a bug on purpose") })
            .unwrap();
        tokio::time::timeout(Duration::from_secs(20), workers.lost())
            .await
            .unwrap();
        assert!(workers.join().await.is_err());
    }
}
