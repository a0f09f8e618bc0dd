//! The control plane: admin port, breaker and heartbeats, upkeep, reloads, and the drain at the
//! end.
//!
//! `plane` has its parts. `services` puts together what operators use, and `admin_ports` serves it.

mod admin_ports;
mod plane;
mod services;

use std::process::ExitCode;
use std::sync::Arc;

use admin_ports::{OpenAdminPorts, ServedAdminPorts};
use futures_util::future::pending;
pub use plane::ControlPlane;
use services::OperatorServices;
use tokio::sync::oneshot::Receiver;
use tokio::time::sleep;
use tollgate_limiter::node::recovery;
use tollgate_limiter::request::explanation::BucketUse;
use tollgate_limiter::store::Store;
use tollgate_limiter::store::inspect::ChangeNotice;
use tollgate_limiter::store::redis::heartbeat::Heartbeat;
use tollgate_limiter::store::redis::inspect::RedisInspector;

use super::exporter;
use super::optional::console::ConsoleControl;
use super::restart::attempts::Successor;
use super::restart::predecessor::{HandoverOffer, PreparedOffer};
use super::restart::systemd::{self, ServiceState};
use super::shared::{ADMIN_DRAIN, DENIAL_WINDOW, SharedState, UPKEEP};
use super::workers::Workers;
use tollgate_admin::state::LifecyclePhase;
use tollgate_gateway::observe::logging::background::LostLogLines;
use tollgate_gateway::observe::logging::line_budget::LineBudget;
use tollgate_limiter::clock;
use tollgate_proxy::upstream::discovery::own_ports;
use tollgate_proxy::upstream::watch::{discover, monitor};
use tollgate_wire::transport::listening_socket::SocketFile;

/// Why the gateway ends.
#[derive(Clone, Copy)]
enum ShutdownCause {
    Signal,
    TakenOver(Successor),
}

impl ControlPlane {
    /// Watches over the running gateway until a signal ends it, then drains it.
    ///
    /// # Errors
    /// When the gateway cannot begin to serve, when a worker or a task ends before its time, and
    /// when a second signal stops the drain.
    pub async fn run(mut self) -> anyhow::Result<ExitCode> {
        let gateway = self.shared.gateway.load_full();
        gateway
            .authenticators
            .values()
            .for_each(|one| one.start_upkeep());
        let services = OperatorServices::new(&self)?;
        let ports = OpenAdminPorts::new(&mut self, &services)?;
        own_ports::keep_out(ports.addresses());
        // Endpoints are looked for first: a request should find some.
        discover::first_answers(gateway.discovering_upstreams()).await;
        drop(gateway);
        let mut ports = self.begin_to_serve(&services, ports).await?;
        let (mut taken_over, offer) = self.handover.take().map(PreparedOffer::open).unzip();

        let console = ports.console.as_ref();
        let cause = self
            .watch_over(&services, console, taken_over.as_mut())
            .await?;
        services.state.readiness.enter(LifecyclePhase::Draining);
        systemd::notify(ServiceState::Stopping);
        self.end_offer(cause, offer, &ports);
        self.drain(services, &mut ports).await
    }

    /// Lets clients in. Everything that can fail has been done before, and nothing was accepted: a
    /// process that is too late to take over just ends.
    async fn begin_to_serve(
        &mut self,
        services: &OperatorServices,
        ports: OpenAdminPorts,
    ) -> anyhow::Result<ServedAdminPorts> {
        if let Some(predecessor) = self.predecessor.take() {
            tokio::task::spawn_blocking(|| predecessor.release()).await??;
        }
        std::mem::take(&mut self.reserved).listen();
        self.workers.serve();
        let ports = ports.serve(self, services)?;
        services.state.readiness.enter(LifecyclePhase::Serving);
        tracing::info!(
            workers = self.workers.threads.len(),
            version = env!("CARGO_PKG_VERSION"),
            "serving"
        );
        systemd::notify(ServiceState::Ready);
        Ok(ports)
    }

    /// Does what a running gateway needs from time to time, until something ends it.
    async fn watch_over(
        &mut self,
        services: &OperatorServices,
        console: Option<&ConsoleControl>,
        taken_over: Option<&mut Receiver<Successor>>,
    ) -> anyhow::Result<ShutdownCause> {
        let shared = &self.shared;
        tokio::select! {
            biased;
            () = self.reloader.run(&mut self.signals) => Ok(ShutdownCause::Signal),
            successor = taken_over_by(taken_over) => Ok(ShutdownCause::TakenOver(successor)),
            // The kernel would spread its connections over the others, which may well die of the
            // same bug.
            () = self.workers.lost() => anyhow::bail!("a worker ended before its time"),
            () = upkeep(shared) => unreachable_end(),
            () = exporter::forget_gone(&self.metrics, &shared.gateway) => unreachable_end(),
            () = take_samples(console) => unreachable_end(),
            () = guard_store(shared, &self.workers) => unreachable_end(),
            () = send_heartbeats(services.heartbeat.as_ref()) => unreachable_end(),
            () = discover::run(|| shared.gateway.load().discovering_upstreams().collect()) => unreachable_end(),
            () = monitor::run(|| shared.gateway.load().watched_upstreams().collect()) => unreachable_end(),
            () = follow_operators(services, shared) => unreachable_end(),
            () = watch_evictions(services.inspector.as_ref()) => unreachable_end(),
            () = services.team.run(self.metrics.clone(), shared.gateway.clone()) => unreachable_end(),
        }
    }

    /// Leaves the sockets and their files to a successor, or removes the files with the offer.
    fn end_offer(
        &mut self,
        cause: ShutdownCause,
        offer: Option<HandoverOffer>,
        ports: &ServedAdminPorts,
    ) {
        match cause {
            ShutdownCause::TakenOver(successor) => {
                tracing::info!(pid = successor.pid, "another gateway has taken over");
                if let Some(offer) = offer {
                    offer.leave_to_successor();
                }
                ports.drain(self.reloader.config.drain_timeout);
            }
            ShutdownCause::Signal => {
                if offer.is_none_or(HandoverOffer::withdraw) {
                    self.socket_files.drain(..).for_each(SocketFile::remove);
                }
            }
        }
    }

    /// Lets the requests in flight end: first those of clients, then those of operators.
    async fn drain(
        mut self,
        services: OperatorServices,
        ports: &mut ServedAdminPorts,
    ) -> anyhow::Result<ExitCode> {
        let limit = self.reloader.config.drain_timeout;
        tracing::info!(
            timeout_s = limit.as_secs_f64(),
            "draining: no new connections, requests in flight may end"
        );
        self.drain_signal.start(limit);
        let cut = tokio::select! {
            cut = self.workers.join() => cut?,
            // A second signal means: at once.
            () = self.signals.stop() => anyhow::bail!("stopped before the requests in flight had ended"),
        };
        // The others take over its share at once, however long the admin port takes.
        if let Some(heartbeat) = services.heartbeat {
            heartbeat.leave().await;
        }
        if let Some(log) = &self.reloader.access_log {
            log.flush();
        }
        // The admin port has shown how the drain goes until now. An operator who changes something
        // is told what has become of it.
        ports.drain(ADMIN_DRAIN);
        tokio::select! {
            () = ports.ended() => {}
            () = self.signals.stop() => anyhow::bail!("stopped before the requests of the admin port had ended"),
        }
        if let Some(inspector) = services.inspector {
            inspector.close().await;
        }
        tracing::info!(cut, "stopped");
        Ok(ExitCode::SUCCESS)
    }
}

/// Fails: a task that runs until it is dropped has ended, which is a bug, and the gateway must not
/// go on half alive.
fn unreachable_end() -> anyhow::Result<ShutdownCause> {
    anyhow::bail!("a task of the control plane ended")
}

/// Waits until another process has taken over.
async fn taken_over_by(taken_over: Option<&mut Receiver<Successor>>) -> Successor {
    if let Some(taken_over) = taken_over
        && let Ok(successor) = taken_over.await
    {
        return successor;
    }
    pending().await
}

/// Follows the changes that operators made on any node: to buckets, and to policies.
async fn follow_operators(services: &OperatorServices, shared: &SharedState) {
    let Some(inspector) = &services.inspector else {
        return pending().await;
    };
    inspector
        .listen(|notice| follow_change(notice, services, shared))
        .await;
}

async fn follow_change(notice: ChangeNotice, services: &OperatorServices, shared: &SharedState) {
    if services.team.takes_notice(&notice) {
        return;
    }
    let bucket = {
        let gateway = shared.gateway.load();
        let limit = gateway.limits.of_key(&notice.key);
        limit.map(|limit| limit.ask(notice.key.clone()))
    };
    // A limit that this node does not have holds nothing here.
    if let Some(charge) = bucket.as_ref().and_then(BucketUse::tokens) {
        services.state.buckets.follow(charge, &notice).await;
    }
}

/// Keeps what the console shows of the last minutes.
async fn take_samples(console: Option<&ConsoleControl>) {
    match console {
        Some(console) => console.sample().await,
        None => pending().await,
    }
}

/// Drops what nothing needs any more, every [`UPKEEP`].
async fn upkeep(shared: &SharedState) {
    let lost_log_lines = LostLogLines::new();
    let mut window_began = clock::now();
    loop {
        lost_log_lines.record();
        LineBudget::global().report();
        sleep(UPKEEP).await;
        if clock::now().saturating_duration_since(window_began) >= DENIAL_WINDOW {
            window_began = clock::now();
            let gateway = shared.gateway.load();
            if let Some(denials) = &gateway.limit_states.denials {
                denials.turn();
            }
        }
        shared.memory.sweep(clock::monotonic_micros());
        shared.memory.follow_clock();
        if let Some(fleet) = &shared.fleet {
            fleet.node.sweep(clock::monotonic_micros());
        }
    }
}

/// Opens the breaker while nobody asks a store that is away, and closes it again when the store is
/// back, as seen over every worker's connection.
async fn guard_store(shared: &SharedState, workers: &Workers) {
    if let Some(fleet) = &shared.fleet {
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        for store in &workers.stores {
            stores.push(Arc::new(store.clone()));
        }
        if let Some(first) = stores.first().cloned() {
            let node = &fleet.node;
            tokio::join!(
                recovery::watch(node.clone(), first),
                recovery::run_control(node.clone(), stores)
            );
        }
    }
    pending().await
}

async fn watch_evictions(inspector: Option<&RedisInspector>) {
    match inspector {
        Some(inspector) => inspector.watch_evictions().await,
        None => pending().await,
    }
}

async fn send_heartbeats(heartbeat: Option<&Heartbeat>) {
    match heartbeat {
        Some(heartbeat) => heartbeat.run().await,
        None => pending().await,
    }
}
