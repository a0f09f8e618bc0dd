//! The services behind the pages of the admin port, put together once at the start.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_limiter::decide::plans::reader::PlanReader;
use tollgate_limiter::store::inspect::{CacheListener, Inspect};
use tollgate_limiter::store::redis::heartbeat::Heartbeat;
use tollgate_limiter::store::redis::inspect::RedisInspector;

use super::ControlPlane;
use crate::admin::accounts::AccountService;
use crate::admin::accounts::cookie::SessionCookies;
use crate::admin::accounts::provider::ProviderSignIn;
use crate::admin::browser_guard::OwnOrigins;
use crate::admin::bucket_service::{BucketService, FleetBuckets};
use crate::admin::fleet_nodes::{FleetConnection, FleetNodes, OwnReport};
use crate::admin::pages::health::{MAX_RENDERINGS, MAX_RENDERINGS_PER_CLIENT};
use crate::admin::policy_service::PolicyService;
use crate::admin::server::answers::AnswerBound;
use crate::admin::state::{AdminState, Readiness};
use crate::app::exporter::Exporter;
use crate::app::node_report;
use crate::app::policies::handle::Policies;
use crate::app::shared::{FleetMember, SharedState};
use crate::clock;
use crate::config::{AdminSpec, Config};
use crate::console::state::{ConsoleParts, ConsoleState, FleetParts};
use crate::console::tokens::FormTokens;

/// The services that operators use, with this node's own connection to the store and its place in
/// the fleet.
pub struct OperatorServices {
    pub state: AdminState,
    pub exporter: Arc<Exporter>,
    /// The connection for operators. `None`: there is no store.
    pub inspector: Option<RedisInspector>,
    pub heartbeat: Option<Heartbeat>,
}

impl OperatorServices {
    /// Connects to the store and to the database of accounts, as far as there are any.
    ///
    /// # Errors
    /// When a connection cannot be set up, or the settings of accounts do not fit.
    pub fn new(control: &ControlPlane) -> anyhow::Result<Self> {
        let shared = &control.shared;
        let config = &control.reloader.config;
        let policies = control.reloader.policies.as_ref();
        let exporter = Arc::new(Exporter::new(
            control.metrics.clone(),
            shared,
            control.workers.in_flight.clone(),
            policies.cloned(),
        ));
        let report = node_report::of_node(
            config.node_name.clone(),
            shared,
            control.reloader.status.clone(),
        );
        let (inspector, heartbeat) = match &shared.fleet {
            Some(fleet) => (
                Some(RedisInspector::connect(&fleet.spec)?),
                Some(heartbeat(fleet, report.clone())?),
            ),
            None => (None, None),
        };
        let state = AdminState {
            readiness: Readiness::default(),
            render: {
                let exporter = exporter.clone();
                Arc::new(move || exporter.render())
            },
            renderings: Arc::new(AnswerBound::new(MAX_RENDERINGS, MAX_RENDERINGS_PER_CLIENT)),
            gateway: shared.gateway.clone(),
            buckets: Arc::new(bucket_service(shared, inspector.as_ref())),
            nodes: Arc::new(fleet_nodes(report, inspector.as_ref(), heartbeat.as_ref())),
            origins: Arc::new(own_origins(config)),
            accounts: match policies {
                Some(policies) => Some(account_service(policies, config)?),
                None => None,
            },
            policies: policies.map(|policies| policy_service(policies, inspector.as_ref())),
        };
        Ok(Self {
            state,
            exporter,
            inspector,
            heartbeat,
        })
    }

    /// The console of an admin port that is bound to `address`.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn console(
        &self,
        control: &ControlPlane,
        address: SocketAddr,
    ) -> anyhow::Result<ConsoleState> {
        let exporter = self.exporter.clone();
        let tokens =
            FormTokens::new().map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
        Ok(ConsoleState::new(ConsoleParts {
            admin: self.state.clone(),
            address,
            config: control.reloader.status.clone(),
            metrics: control.metrics.clone(),
            in_flight: Arc::new(move || exporter.in_flight()),
            fleet: control.shared.fleet.as_ref().map(fleet_parts),
            started: clock::now(),
            tokens,
            live: Mutex::default(),
        }))
    }
}

/// The heartbeat of this node, with what it says of itself.
fn heartbeat(fleet: &FleetMember, report: OwnReport) -> anyhow::Result<Heartbeat> {
    let heartbeat = Heartbeat::join(&fleet.spec, fleet.node.share.clone())?;
    Ok(heartbeat.stating(Arc::new(move || {
        serde_json::to_vec(&report()).unwrap_or_default()
    })))
}

fn fleet_nodes(
    report: OwnReport,
    inspector: Option<&RedisInspector>,
    heartbeat: Option<&Heartbeat>,
) -> FleetNodes {
    let mut fleet = None;
    if let (Some(inspector), Some(heartbeat)) = (inspector, heartbeat) {
        fleet = Some(FleetConnection {
            inspector: Arc::new(inspector.clone()),
            own_id: heartbeat.id().into(),
        });
    }
    FleetNodes::new(report, fleet)
}

/// The buckets as operators see and change them. A change reaches the local buckets and everything
/// else in this process that caches buckets of the store.
fn bucket_service(shared: &SharedState, inspector: Option<&RedisInspector>) -> BucketService {
    let mut listeners: Vec<Arc<dyn CacheListener>> = Vec::new();
    let mut buckets = None;
    if let (Some(fleet), Some(inspector)) = (&shared.fleet, inspector) {
        let inspector = Arc::new(inspector.clone());
        let breaker = fleet.node.breaker.clone();
        listeners.push(fleet.node.clone());
        buckets = Some(FleetBuckets {
            inspect: inspector.clone(),
            breaker: breaker.clone(),
            share: fleet.node.share.clone(),
            plans: Arc::new(PlanReader::new(inspector, breaker)),
        });
    }
    BucketService::new(
        shared.memory.clone(),
        shared.permits.clone(),
        buckets,
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
    let provider = config.admin.as_ref().and_then(|admin| admin.openid.clone());
    Ok(Arc::new(AccountService::new(
        policies.database.people(),
        cookies,
        provider.map(ProviderSignIn::new),
    )?))
}

/// The names that browsers call the admin port by.
fn own_origins(config: &Config) -> OwnOrigins {
    match &config.admin {
        Some(admin) => OwnOrigins {
            has_tls: admin.tls.is_some(),
            public_url: admin.public_url.clone(),
        },
        None => OwnOrigins::default(),
    }
}

/// The store and the fleet, as the console shows them.
fn fleet_parts(fleet: &FleetMember) -> FleetParts {
    FleetParts {
        store: fleet.spec.redacted_url(),
        breaker: fleet.node.breaker.clone(),
        share: fleet.node.share.clone(),
    }
}
