//! Stand-ins for people and policies, in a build without the feature `team`: there are none.

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::future::pending;
use tokio::runtime::Runtime;
use tollgate_limiter::store::inspect::{ChangeNotice, Inspect};

use tollgate_admin::AdminExtension;
use tollgate_admin::caller::{Callers, LocalCallers};
use tollgate_config::{Candidate, Config, Ground, Loaded, Mistakes};
use tollgate_gateway::Gateway;
use tollgate_gateway::observe::recorder::MetricsHandle;

/// The policies that a gateway begins with.
pub struct FirstPolicies(Infallible);

/// The policies of a running gateway.
pub struct Policies(Infallible);

/// The policies of a revision as this node applies them to its file.
#[derive(Clone)]
pub struct NodePolicies(Infallible);

/// Tells of newer policies.
pub struct PolicyNews(Infallible);

/// The people of a running gateway.
pub struct TeamControl;

/// The configuration as it is: a file that names a database of policies does not pass the check.
///
/// # Errors
/// Never.
pub fn with_policies(
    _: &Runtime,
    loaded: Loaded,
    _: Option<&Ground>,
) -> anyhow::Result<(Loaded, Option<FirstPolicies>)> {
    Ok((loaded, None))
}

impl TeamControl {
    /// # Errors
    /// Never.
    pub fn new(
        _: Option<Arc<Policies>>,
        _: &Config,
        _: Option<Arc<dyn Inspect>>,
    ) -> anyhow::Result<Self> {
        Ok(Self)
    }

    /// The callers that may use the admin port.
    pub fn callers(&self) -> Arc<dyn Callers> {
        Arc::new(LocalCallers)
    }

    pub fn extension(&self) -> Option<AdminExtension> {
        None
    }

    pub fn takes_notice(&self, _: &ChangeNotice) -> bool {
        false
    }

    /// Runs until dropped.
    pub async fn run(&self, _: MetricsHandle, _: Arc<ArcSwap<Gateway>>) {
        pending().await
    }
}

impl Policies {
    pub fn new(first: FirstPolicies, _: Ground, _: &Config) -> Self {
        match first.0 {}
    }

    pub fn choices(&self) -> Vec<NodePolicies> {
        match self.0 {}
    }

    pub fn running_revision(&self) -> u64 {
        match self.0 {}
    }

    pub fn runs(&self, _: &NodePolicies) -> bool {
        match self.0 {}
    }

    pub fn took_over(&self, _: NodePolicies) {
        match self.0 {}
    }

    pub fn ground(&self) -> Arc<Ground> {
        match self.0 {}
    }

    pub fn set_ground(&self, _: Ground) {
        match self.0 {}
    }

    pub fn set_acting(&self, _: Vec<Candidate>) {
        match self.0 {}
    }

    pub fn note_refused(&self) {
        match self.0 {}
    }

    pub fn show_age(&self) {
        match self.0 {}
    }
}

impl NodePolicies {
    /// # Errors
    /// Never.
    pub fn apply(&self, _: &Ground) -> Result<Loaded, Mistakes> {
        match self.0 {}
    }

    pub fn revision(&self) -> u64 {
        match self.0 {}
    }

    pub fn is_like(&self, _: &Self) -> bool {
        match self.0 {}
    }
}

impl PolicyNews {
    pub fn of(policies: &Policies) -> Self {
        match policies.0 {}
    }

    pub async fn changed(&mut self) {
        match self.0 {}
    }
}
