//! The services behind the pages of the admin port, put together once at the start.

use std::sync::Arc;

use tollgate_limiter::decide::plans::reader::PlanReader;
use tollgate_limiter::store::inspect::{CacheListener, Inspect};
use tollgate_limiter::store::redis::heartbeat::Heartbeat;
use tollgate_limiter::store::redis::inspect::RedisInspector;

use super::plane::ControlPlane;
use crate::app::exporter::Exporter;
use crate::app::node_report;
use crate::app::optional::console::ShownParts;
use crate::app::optional::team::TeamControl;
use crate::app::shared::{FleetMember, SharedState};
use tollgate_admin::browser_guard::OwnOrigins;
use tollgate_admin::bucket_service::{BucketService, FleetBuckets};
use tollgate_admin::fleet_nodes::{FleetConnection, FleetNodes, OwnReport};
use tollgate_admin::pages::health::{MAX_RENDERINGS, MAX_RENDERINGS_PER_CLIENT};
use tollgate_admin::server::answers::AnswerBound;
use tollgate_admin::state::{AdminState, Readiness};
use tollgate_config::Config;

/// The services that operators use, with this node's own connection to the store and its place in
/// the fleet.
pub struct OperatorServices {
    pub state: AdminState,
    pub team: TeamControl,
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
        let notices = inspector.clone();
        let notices = notices.map(|inspector| Arc::new(inspector) as Arc<dyn Inspect>);
        let team = TeamControl::new(policies.cloned(), config, notices)?;
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
            callers: team.callers(),
        };
        Ok(Self {
            state,
            team,
            exporter,
            inspector,
            heartbeat,
        })
    }

    /// The parts that a console shows.
    pub fn shown<'a>(&'a self, control: &'a ControlPlane) -> ShownParts<'a> {
        let exporter = self.exporter.clone();
        ShownParts {
            admin: self.state.clone(),
            team: &self.team,
            status: control.reloader.status.clone(),
            metrics: control.metrics.clone(),
            in_flight: Arc::new(move || exporter.in_flight()),
            shared: &control.shared,
        }
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
