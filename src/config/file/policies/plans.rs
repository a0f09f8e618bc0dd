//! The plans of applications for limits: raw numbers, and the clients that have each plan.

use std::collections::HashMap;
use std::sync::Arc;

use crate::config::file::limit::{RawKeyPart, RawPlan};
use crate::config::report::Location;

/// The plans of policies, by the limit that they are of.
#[derive(Default)]
pub struct PolicyPlans(pub HashMap<String, Arc<StrategyPlans>>);

/// The plans of one limit.
pub struct StrategyPlans {
    /// Where the strategy is.
    pub location: Location,
    pub application: Arc<ApplicationClients>,
    /// The part of a request that names the client. `None`: the first part of the limit's key.
    pub by: Option<RawKeyPart>,
    pub plans: Vec<StrategyPlan>,
}

/// The settings of a plan for one limit.
pub struct StrategyPlan {
    pub name: Arc<str>,
    /// `None`: its mistake is reported already.
    pub raw: Option<RawPlan>,
}

/// The clients of an application that have a plan.
pub struct ApplicationClients {
    pub name: Arc<str>,
    pub clients: Vec<AssignedClient>,
}

/// A client and its plan.
pub struct AssignedClient {
    pub client: String,
    pub location: Location,
    pub plan: Arc<str>,
}
