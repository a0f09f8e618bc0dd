//! The steps of a route's pipeline, one per file: plain types with one method each, which checks a
//! request or changes it.
//!
//! [`Pipeline`] has the steps that a route uses. [`super::pipeline`] runs them, and says why each
//! stands where it does.

pub mod action;
pub mod answer_rules;
pub mod body_bound;
pub mod cors;
pub mod identity;
pub mod networks;
pub mod panic_guard;
pub mod rate_limit;
pub mod request_fields;
pub mod shed;
pub mod time;

use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::layer::RateLimitLayer;

use self::answer_rules::AnswerRules;
use self::body_bound::BodyBound;
use self::cors::CrossOrigin;
use self::identity::Authentication;
use self::networks::ClientNetworks;
use self::rate_limit::WorkerLimiter;
use self::request_fields::RequestChanges;
use self::shed::RequestBound;
use super::body_keys::BodyKeys;
use super::maintenance::RouteMaintenance;

/// The steps that a route uses behind one listener, in the order in which they run; or those of the
/// listener, for requests without a route. Immutable: a request borrows it.
#[derive(Default)]
pub struct Pipeline {
    /// The longest time from a request's head to its answer's end, with all that it waits for.
    pub whole_time: Option<Duration>,
    pub cors: Option<CrossOrigin>,
    pub answer_rules: Option<AnswerRules>,
    pub networks: Option<ClientNetworks>,
    pub maintenance: Option<Arc<RouteMaintenance>>,
    pub authentication: Option<Authentication>,
    pub request_bound: Option<RequestBound>,
    pub body_keys: Option<Arc<BodyKeys>>,
    pub rate_limit: Option<RateLimitLayer<WorkerLimiter>>,
    pub body_bound: Option<BodyBound>,
    pub request_changes: Option<Arc<RequestChanges>>,
    /// The longest time from the limits' pass to the answer's head.
    pub head_time: Option<Duration>,
}
