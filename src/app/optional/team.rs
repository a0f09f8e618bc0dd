//! People and what they edit, as a part of the control plane: policies follow their database, and
//! the admin port gets its callers and the pages for programs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::runtime::Runtime;
use tollgate_limiter::store::inspect::{ChangeNotice, Inspect};

use tollgate_admin::AdminExtension;
use tollgate_admin::caller::Callers;
use tollgate_config::{AdminSpec, Config, Ground, Loaded};
use tollgate_gateway::Gateway;
use tollgate_gateway::observe::recorder::MetricsHandle;
use tollgate_team::accounts::AccountService;
use tollgate_team::accounts::cookie::SessionCookies;
use tollgate_team::accounts::provider::ProviderSignIn;
use tollgate_team::policies::follower;
pub use tollgate_team::policies::handle::Policies;
pub use tollgate_team::policies::local::NodePolicies;
pub use tollgate_team::policies::news::PolicyNews;
use tollgate_team::policies::service::tells_of_policies;
use tollgate_team::policies::start;
pub use tollgate_team::policies::start::FirstPolicies;
use tollgate_team::rollout::watch::{self as rollout, WatchedGateway};
use tollgate_team::{Team, api};

/// The configuration together with the policies that a gateway begins with, if its file says where
/// these come from.
///
/// # Errors
/// When there are no policies to begin with, and they are required.
pub fn with_policies(
    runtime: &Runtime,
    loaded: Loaded,
    ground: Option<&Ground>,
) -> anyhow::Result<(Loaded, Option<FirstPolicies>)> {
    let (Some(origin), Some(ground)) = (start::source(&loaded.config)?, ground) else {
        return Ok((loaded, None));
    };
    let (first, loaded) = runtime.block_on(start::begin(origin, ground))?;
    Ok((loaded, Some(first)))
}

/// The people of a running gateway.
pub struct TeamControl {
    pub team: Team,
    policies: Option<Arc<Policies>>,
}

impl TeamControl {
    /// The people of a gateway with these policies, who tell other nodes of changes by `notices`.
    ///
    /// # Errors
    /// Never: the bounds on sign-ins are within the limiter's bounds.
    pub fn new(
        policies: Option<Arc<Policies>>,
        config: &Config,
        notices: Option<Arc<dyn Inspect>>,
    ) -> anyhow::Result<Self> {
        let mut team = Team::default();
        if let Some(policies) = &policies {
            team.accounts = Some(Arc::new(accounts(policies, config)?));
            team.policies = Some(Arc::new(policies.service(notices)));
        }
        Ok(Self { team, policies })
    }

    /// The callers that may use the admin port.
    pub fn callers(&self) -> Arc<dyn Callers> {
        Arc::new(self.team.clone())
    }

    /// The pages for programs on the admin port.
    pub fn extension(&self) -> Option<AdminExtension> {
        Some(api::extension(self.team.clone()))
    }

    /// Whether a notice of another node tells of a new revision. Then the follower looks for it.
    pub fn takes_notice(&self, notice: &ChangeNotice) -> bool {
        if !tells_of_policies(notice) {
            return false;
        }
        if let Some(policies) = &self.policies {
            policies.wake.notify_one();
        }
        true
    }

    /// Follows the database of policies and judges candidates. Runs until dropped, of a gateway
    /// without policies too.
    pub async fn run(&self, metrics: MetricsHandle, gateway: Arc<ArcSwap<Gateway>>) {
        let watched = match (&self.policies, &self.team.policies) {
            (Some(policies), Some(service)) => Some(WatchedGateway {
                policies: policies.clone(),
                service: service.clone(),
                metrics,
                gateway,
            }),
            _ => None,
        };
        tokio::join!(
            follower::follow(self.policies.as_deref()),
            rollout::run(watched)
        );
    }
}

/// The people who may use the admin port: they live in the database of policies.
fn accounts(policies: &Policies, config: &Config) -> anyhow::Result<AccountService> {
    let admin = config.admin.as_ref();
    let cookies = SessionCookies {
        is_secure: admin.is_some_and(AdminSpec::is_secure),
    };
    let openid = admin.and_then(|admin| admin.openid.clone());
    let people = policies.database.people();
    Ok(AccountService::new(
        people,
        cookies,
        openid.map(ProviderSignIn::new),
    )?)
}
