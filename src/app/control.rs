//! The control plane: admin port, breaker and heartbeats, upkeep, reloads, and the drain at the
//! end.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use futures_util::future::pending;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::oneshot::{self, Receiver};
use tokio::time::sleep;
use tollgate_limiter::decide::plans::reader::PlanReader;
use tollgate_limiter::node::recovery;
use tollgate_limiter::request::denied_keys::DenialWatch;
use tollgate_limiter::request::explanation::BucketUse;
use tollgate_limiter::store::Store;
use tollgate_limiter::store::inspect::{CacheListener, ChangeNotice, Inspect};
use tollgate_limiter::store::redis::heartbeat::Heartbeat;
use tollgate_limiter::store::redis::inspect::RedisInspector;

use super::exporter::{self, Exporter};
use super::listeners::{AdminSockets, ReservedSockets};
use super::node_report;
use super::policies::follower;
use super::policies::handle::Policies;
use super::reload::Reloader;
use super::restart::attempts::Successor;
use super::restart::predecessor::{HandoverOffer, PreparedOffer};
use super::restart::successor::Predecessor;
use super::restart::systemd::{self, ServiceState};
use super::rollout::watch::{self as rollout, WatchedGateway};
use super::shared::{ADMIN_DRAIN, DENIAL_WINDOW, FleetMember, SharedState, UPKEEP};
use super::signals::Signals;
use super::workers::Workers;
use crate::admin::AdminPages;
use crate::admin::accounts::AccountService;
use crate::admin::accounts::cookie::SessionCookies;
use crate::admin::accounts::provider::ProviderSignIn;
use crate::admin::browser_guard::OwnOrigins;
use crate::admin::bucket_service::{BucketService, FleetBuckets};
use crate::admin::fleet_nodes::{FleetNodes, OwnReport};
use crate::admin::pages::health::{MAX_RENDERINGS, MAX_RENDERINGS_PER_CLIENT};
use crate::admin::policy_service::{PolicyService, tells_of_policies};
use crate::admin::server::answers::AnswerBound;
use crate::admin::state::{AdminState, LifecyclePhase, Readiness};
use crate::config::{AdminSpec, Config};
use crate::console::state::{ConsoleParts, ConsoleState, FleetParts};
use crate::console::tokens::FormTokens;
use crate::identity::upkeep::follow_issuer;
use crate::observe::logging::background::LostLogLines;
use crate::observe::recorder::MetricsHandle;
use crate::server::{Drain, DrainSignal, drain, worker};
use crate::transport::listening_socket::SocketFile;
use crate::upstream::discovery::own_ports;
use crate::upstream::watch::{discover, monitor};
use crate::{admin, clock, console};

/// Everything that the control plane watches over.
pub struct ControlPlane {
    pub reloader: Reloader,
    pub signals: Signals,
    pub shared: SharedState,
    pub workers: Workers,
    pub admin: AdminSockets,
    pub metrics: MetricsHandle,
    pub drain_signal: DrainSignal,
    /// Of a gateway that can be taken over from.
    pub handover: Option<PreparedOffer>,
    /// Of the Unix sockets that clients connect to.
    pub socket_files: Vec<SocketFile>,
    /// Of a gateway that takes over.
    pub predecessor: Option<Predecessor>,
    pub reserved: ReservedSockets,
}

/// Why the gateway ends.
enum ShutdownCause {
    Signal,
    TakenOver(Successor),
}

impl ControlPlane {
    /// Watches over the running gateway until a signal ends it, then drains it.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let Self {
            mut reloader,
            mut signals,
            shared,
            workers,
            admin,
            metrics,
            drain_signal,
            handover,
            predecessor,
            socket_files,
            reserved,
        } = self;
        shared
            .gateway
            .load()
            .authenticators
            .values()
            .for_each(follow_issuer);
        let readiness = Readiness::default();
        let exporter = Arc::new(Exporter::new(
            metrics.clone(),
            &shared,
            workers.in_flight.clone(),
            reloader.policies.clone(),
        ));
        let rendering = exporter.clone();
        let inspector = shared
            .fleet
            .as_ref()
            .map(|fleet| RedisInspector::connect(&fleet.spec))
            .transpose()?;
        let buckets = Arc::new(bucket_service(&shared, inspector.as_ref()));
        let report = node_report::of_node(
            reloader.config.node_name.clone(),
            &shared,
            reloader.status.clone(),
        );
        let heartbeat = shared
            .fleet
            .as_ref()
            .map(|fleet| heartbeat(fleet, report.clone()))
            .transpose()?;
        let id = heartbeat.as_ref().map(|heartbeat| heartbeat.id().into());
        let fleet = inspector
            .clone()
            .map(|inspector| Arc::new(inspector) as Arc<dyn Inspect>)
            .zip(id);
        let state = AdminState {
            readiness: readiness.clone(),
            render: Arc::new(move || rendering.render()),
            renderings: Arc::new(AnswerBound::new(MAX_RENDERINGS, MAX_RENDERINGS_PER_CLIENT)),
            gateway: shared.gateway.clone(),
            buckets: buckets.clone(),
            nodes: Arc::new(FleetNodes::new(report, fleet)),
            origins: Arc::new(own_origins(&reloader.config)),
            accounts: reloader
                .policies
                .as_deref()
                .map(|policies| account_service(policies, &reloader.config))
                .transpose()?,
            policies: reloader
                .policies
                .as_ref()
                .map(|policies| policy_service(policies, inspector.as_ref())),
        };
        let (admin_drain_signal, admin_drain) = drain::channel();
        let AdminSockets { admin, probes } = admin;
        let admin = admin
            .map(|(_, socket)| accepting(socket, "admin port open"))
            .transpose()?;
        let probes = probes
            .map(|(_, socket)| accepting(socket, "probe port open"))
            .transpose()?;
        let probes = probes.map(TcpListener::from_std).transpose()?;
        let counting = exporter.clone();
        let console = |listener: &StdListener| {
            Ok::<_, anyhow::Error>(ConsoleState::new(ConsoleParts {
                admin: state.clone(),
                address: listener.local_addr()?,
                config: reloader.status.clone(),
                metrics: metrics.clone(),
                in_flight: Arc::new(move || counting.in_flight()),
                fleet: fleet_parts(&shared),
                started: clock::now(),
                tokens: FormTokens::new()
                    .map_err(|_| anyhow::anyhow!("the system has no random numbers"))?,
                live: Mutex::default(),
            }))
        };
        let console = admin.as_ref().map(console).transpose()?;

        own_ports::keep_out(own_addresses(admin.as_ref(), probes.as_ref()));
        // Their endpoints are looked for first: a request should find some.
        discover::first_answers(shared.gateway.load().discovering_upstreams()).await;
        // Everything that can fail has been done, and nothing was accepted yet: a process that is
        // too late just ends.
        if let Some(predecessor) = predecessor {
            tokio::task::spawn_blocking(|| predecessor.release()).await??;
        }
        reserved.listen();
        workers.serve();
        let policy_pages = state.policies.clone();
        let router = admin::router(state.clone());
        let router = console.iter().fold(router, |pages, console| {
            pages.merge(console::router(console.clone()))
        });
        let hsts = reloader
            .config
            .admin
            .as_ref()
            .and_then(|admin| admin.hsts.clone());
        let gateway = shared.gateway.clone();
        let probe_pages = AdminPages {
            router: admin::probes(state),
            gateway: gateway.clone(),
            tls: None,
            hsts: None,
        };
        let pages = AdminPages {
            router,
            gateway,
            tls: reloader.tls.admin(),
            hsts,
        };
        if let Some(listener) = probes {
            tokio::spawn(serve_admin(listener, probe_pages, admin_drain.clone()));
        }
        // Its pages may take long to make, and nothing else is to wait for them.
        let (admin_ends, admin_ended) = oneshot::channel::<()>();
        let admin_page_server = |listener| {
            worker::spawn("admin".to_owned(), move || async {
                match TcpListener::from_std(listener) {
                    Ok(listener) => serve_admin(listener, pages, admin_drain).await,
                    Err(error) => tracing::error!(%error, "the admin port failed"),
                }
                drop(admin_ends);
            })
        };
        admin
            .map(admin_page_server)
            .transpose()
            .context("cannot start the thread of the admin port")?;
        readiness.enter(LifecyclePhase::Serving);
        tracing::info!(
            workers = workers.threads.len(),
            version = env!("CARGO_PKG_VERSION"),
            "serving"
        );
        systemd::notify(ServiceState::Ready);
        // Not before: whoever asked meanwhile has asked the predecessor.
        let policies = reloader.policies.clone();
        let watched = policies
            .clone()
            .zip(policy_pages)
            .map(|(policies, service)| WatchedGateway {
                policies,
                service,
                metrics: metrics.clone(),
                gateway: shared.gateway.clone(),
            });
        let (mut taken_over, offer) = handover.map(PreparedOffer::open).unzip();
        let cause = tokio::select! {
            biased;
            () = reloader.run(&mut signals) => ShutdownCause::Signal,
            successor = taken_over_by(taken_over.as_mut()) => ShutdownCause::TakenOver(successor),
            // The kernel would spread its connections over the others, which may well die of the
            // same bug.
            () = workers.lost() => anyhow::bail!("a worker ended before its time"),
            () = upkeep(&shared) => unreachable_end()?,
            () = exporter::forget_gone(&metrics, &shared.gateway) => unreachable_end()?,
            () = take_samples(console.as_ref()) => unreachable_end()?,
            () = guard_store(&shared, &workers) => unreachable_end()?,
            () = send_heartbeats(heartbeat.as_ref()) => unreachable_end()?,
            () = discover::run(|| shared.gateway.load().discovering_upstreams().collect()) => unreachable_end()?,
            () = monitor::run(|| shared.gateway.load().watched_upstreams().collect()) => unreachable_end()?,
            () = follow_operators(inspector.as_ref(), &shared, &buckets, policies.as_deref()) => unreachable_end()?,
            () = follower::follow(policies.as_deref()) => unreachable_end()?,
            () = rollout::run(watched) => unreachable_end()?,
        };

        let drain_timeout = reloader.config.drain_timeout;
        readiness.enter(LifecyclePhase::Draining);
        systemd::notify(ServiceState::Stopping);
        match (cause, offer) {
            (ShutdownCause::TakenOver(successor), offer) => {
                tracing::info!(pid = successor.pid, "another gateway has taken over");
                offer
                    .into_iter()
                    .for_each(HandoverOffer::leave_to_successor);
                admin_drain_signal.start(drain_timeout);
            }
            (ShutdownCause::Signal, offer) => {
                if offer.is_none_or(HandoverOffer::withdraw) {
                    socket_files.into_iter().for_each(SocketFile::remove);
                }
            }
        }
        tracing::info!(
            timeout_s = drain_timeout.as_secs_f64(),
            "draining: no new connections, requests in flight may end"
        );
        drain_signal.start(drain_timeout);
        let cut = tokio::select! {
            cut = workers.join() => cut?,
            // A second signal means: at once.
            () = signals.stop() => anyhow::bail!("stopped before the requests in flight had ended"),
        };
        // The others take over its share at once, however long the admin port takes.
        if let Some(heartbeat) = heartbeat {
            heartbeat.leave().await;
        }
        if let Some(log) = &reloader.access_log {
            log.flush();
        }
        // Until now it has shown how the drain goes. Whoever changes something is told what has
        // become of it.
        admin_drain_signal.start(ADMIN_DRAIN);
        tokio::select! {
            _ = admin_ended => {}
            () = signals.stop() => anyhow::bail!("stopped before the requests of the admin port had ended"),
        }
        if let Some(inspector) = inspector {
            inspector.close().await;
        }
        tracing::info!(cut, "stopped");
        Ok(ExitCode::SUCCESS)
    }
}

/// These tasks run until they are dropped: one that ends is a bug, and the gateway must not go on
/// half alive.
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

fn accepting(socket: StdListener, opened: &str) -> anyhow::Result<StdListener> {
    socket.set_nonblocking(true)?;
    tracing::info!(address = %socket.local_addr()?, "{opened}");
    Ok(socket)
}

fn own_addresses(admin: Option<&StdListener>, probes: Option<&TcpListener>) -> Vec<SocketAddr> {
    let admin = admin.and_then(|listener| listener.local_addr().ok());
    let probes = probes.and_then(|listener| listener.local_addr().ok());
    admin.into_iter().chain(probes).collect()
}

async fn serve_admin(listener: TcpListener, pages: AdminPages, drain: Drain) {
    if let Err(error) = admin::serve(listener, pages, drain).await {
        tracing::error!(%error, "the admin port failed");
    }
}

/// The buckets as operators see and change them. A change reaches the local buckets and everything
/// else in this process that caches buckets of the store.
fn bucket_service(shared: &SharedState, inspector: Option<&RedisInspector>) -> BucketService {
    let fleet = shared.fleet.as_ref().zip(inspector);
    let listeners = fleet
        .iter()
        .map(|(fleet, _)| fleet.node.clone() as Arc<dyn CacheListener>)
        .collect();
    let fleet = fleet.map(|(fleet, inspector)| FleetBuckets {
        inspect: Arc::new(inspector.clone()),
        breaker: fleet.node.breaker.clone(),
        share: fleet.node.share.clone(),
        plans: Arc::new(PlanReader::new(
            Arc::new(inspector.clone()),
            fleet.node.breaker.clone(),
        )),
    });
    BucketService::new(
        shared.memory.clone(),
        shared.permits.clone(),
        fleet,
        listeners,
    )
}

/// The service that admin pages need for policies.
fn policy_service(
    policies: &Arc<Policies>,
    inspector: Option<&RedisInspector>,
) -> Arc<PolicyService> {
    let notices = inspector.map(|inspector| Arc::new(inspector.clone()) as Arc<dyn Inspect>);
    Arc::new(policies.service(notices))
}

/// The people who may use the admin port: they live in the database of policies.
fn account_service(policies: &Policies, config: &Config) -> anyhow::Result<Arc<AccountService>> {
    let cookies = SessionCookies {
        is_secure: config.admin.as_ref().is_some_and(AdminSpec::is_secure),
    };
    let openid = config
        .admin
        .as_ref()
        .and_then(|admin| admin.openid.clone())
        .map(ProviderSignIn::new);
    Ok(Arc::new(AccountService::new(
        policies.database.people(),
        cookies,
        openid,
    )?))
}

/// The names that browsers call the admin port by.
fn own_origins(config: &Config) -> OwnOrigins {
    config
        .admin
        .as_ref()
        .map_or_else(OwnOrigins::default, |admin| OwnOrigins {
            has_tls: admin.tls.is_some(),
            public_url: admin.public_url.clone(),
        })
}

/// Follows the changes that operators made on any node: to buckets, and to policies.
async fn follow_operators(
    inspector: Option<&RedisInspector>,
    shared: &SharedState,
    buckets: &BucketService,
    policies: Option<&Policies>,
) {
    let Some(inspector) = inspector else {
        return pending().await;
    };
    let follow = |notice: ChangeNotice| async move {
        if tells_of_policies(&notice) {
            policies
                .iter()
                .for_each(|policies| policies.wake.notify_one());
            return;
        }
        let bucket = shared
            .gateway
            .load()
            .limits
            .of_key(&notice.key)
            .map(|listed| listed.ask(notice.key.clone()));
        // A limit that this node does not have holds nothing here.
        if let Some(charge) = bucket.as_ref().and_then(BucketUse::tokens) {
            buckets.follow(charge, &notice).await;
        }
    };
    inspector.listen(follow).await;
}

/// The store and the fleet, as the console shows them.
fn fleet_parts(shared: &SharedState) -> Option<FleetParts> {
    let fleet = shared.fleet.as_ref()?;
    let (breaker, share) = (fleet.node.breaker.clone(), fleet.node.share.clone());
    Some(FleetParts {
        store: fleet.spec.redacted_url(),
        breaker,
        share,
    })
}

/// Keeps what the console shows of the last minutes.
async fn take_samples(console: Option<&ConsoleState>) {
    match console {
        Some(console) => console.sample().await,
        None => pending().await,
    }
}

async fn upkeep(shared: &SharedState) {
    let lost_log_lines = LostLogLines::of_process();
    let mut window_began = clock::now();
    loop {
        lost_log_lines.record();
        sleep(UPKEEP).await;
        if clock::now().saturating_duration_since(window_began) >= DENIAL_WINDOW {
            window_began = clock::now();
            let gateway = shared.gateway.load();
            gateway
                .limit_states
                .denials
                .iter()
                .for_each(DenialWatch::turn);
        }
        shared.memory.sweep(clock::monotonic_micros());
        shared.memory.follow_clock();
        if let Some(fleet) = &shared.fleet {
            fleet.node.sweep(clock::monotonic_micros());
        }
    }
}

/// Closes the breaker again when the store is back, as seen over every worker's connection.
async fn guard_store(shared: &SharedState, workers: &Workers) {
    if let Some(fleet) = &shared.fleet {
        let stores = workers
            .stores
            .iter()
            .map(|store| Arc::new(store.clone()) as Arc<dyn Store>)
            .collect();
        recovery::run_control(fleet.node.clone(), stores).await;
    }
    pending().await
}

/// The heartbeat of this node, with what it says of itself.
fn heartbeat(fleet: &FleetMember, report: OwnReport) -> anyhow::Result<Heartbeat> {
    let heartbeat = Heartbeat::join(&fleet.spec, fleet.node.share.clone())?;
    Ok(heartbeat.stating(Arc::new(move || {
        serde_json::to_vec(&report()).unwrap_or_default()
    })))
}

async fn send_heartbeats(heartbeat: Option<&Heartbeat>) {
    match heartbeat {
        Some(heartbeat) => heartbeat.run().await,
        None => pending().await,
    }
}
