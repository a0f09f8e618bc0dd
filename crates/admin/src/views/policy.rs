//! The numbers of a limit or a plan as JSON, and the level of a bucket.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};
use tollgate_limiter::algorithm::level::Level;
use tollgate_limiter::decide::plans::cache::FieldContent;
use tollgate_limiter::limit::algorithm::Algorithm;
use tollgate_limiter::limit::cost::ResponseCost;
use tollgate_limiter::limit::definition::{AfterLocal, Limit, OnOutage};
use tollgate_limiter::limit::units::show_duration;
use tollgate_limiter::request::explanation::{AppliedLimit, PlanOrigin};

/// A limit's numbers, or a plan's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PolicyView {
    /// The name of its algorithm, as the file writes it.
    pub algorithm: String,
    /// The rate as the file writes it; of a fixed window with its time zone.
    pub rate: String,
    /// Tokens in a full bucket, or of a window.
    pub burst: u64,
    /// Tokens that a request takes; where the response settles it, those that are reserved.
    pub cost: u64,
    /// How the cost is settled after the response; none: it is known before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<SettledView>,
    /// The status codes of the responses that count: `401, 5xx`; none: all count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<String>,
    pub on_outage: String,
    /// Microseconds for which a node may hold tokens that it took ahead; none: the store is asked
    /// for each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_us: Option<u64>,
    /// The client's plan that has these numbers; none: they are the limit's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Where the plan is from, or was looked for; none: the limit has no plans, or nothing tells
    /// which one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_from: Option<String>,
}

/// The part of a response that says what its request cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SettledView {
    /// The field as the file writes it: `response_header x-tokens-used`.
    pub by: String,
    /// Tokens at most.
    pub max: u64,
    /// Tokens of a successful response that does not say; none: those that are reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<u64>,
}

/// The level of a bucket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LevelView {
    /// Whole tokens.
    pub remaining: u64,
    /// Seconds until a request of the policy's cost would pass; 0 when it would now.
    pub retry_after: f64,
    /// Seconds until it is full.
    pub reset_after: f64,
    pub full: bool,
}

impl PolicyView {
    pub fn new(applied: &AppliedLimit) -> Self {
        let AppliedLimit {
            limit,
            plan,
            algorithm,
            counting,
            cost,
            later,
            ..
        } = applied;
        let leased_us = Some(counting.lease_us()).filter(|lease_us| *lease_us > 0);
        let plan_from = match &applied.origin {
            Some(origin) => show_origin(origin, plan.is_some()),
            None => None,
        };
        let settled = later.as_deref().map(SettledView::new);
        let mut view = Self {
            leased_us,
            plan: plan.clone(),
            plan_from,
            settled,
            ..Self::with(limit, algorithm, cost.get())
        };
        if applied.is_closed {
            // The one token of such a plan is too few for any request.
            view.rate = view.rate.replacen('1', "0", 1);
            view.burst = 0;
        }
        view
    }

    /// The numbers of `algorithm`, for a request that costs `cost`.
    pub fn with(limit: &Limit, algorithm: &Algorithm, cost: u64) -> Self {
        let settled = limit.cost.later().map(|later| SettledView::new(later));
        Self {
            algorithm: algorithm.kind().name().to_owned(),
            rate: algorithm.show(),
            burst: algorithm.burst().get(),
            cost,
            settled,
            counted: limit.count.as_ref().map(ToString::to_string),
            on_outage: show_on_outage(limit.on_outage),
            leased_us: None,
            plan: None,
            plan_from: None,
        }
    }
}

impl SettledView {
    fn new(later: &ResponseCost) -> Self {
        Self {
            by: later.field.to_string(),
            max: later.max.get(),
            absent: later.absent.map(NonZeroU64::get),
        }
    }
}

fn show_on_outage(on_outage: OnOutage) -> String {
    match on_outage {
        OnOutage::Local => "local".to_owned(),
        OnOutage::Allow => "allow".to_owned(),
        OnOutage::Deny => "deny".to_owned(),
        OnOutage::LocalFor { time, then } => {
            let then = match then {
                AfterLocal::Deny => "deny",
                AfterLocal::Allow => "allow",
            };
            format!("local for {}, then {then}", show_duration(time))
        }
    }
}

/// The origin of a plan, in words. `has_plan`: there is one.
fn show_origin(origin: &PlanOrigin, has_plan: bool) -> Option<String> {
    let (hash, reading) = match origin {
        PlanOrigin::File if has_plan => return Some("the file".to_owned()),
        PlanOrigin::File => return None,
        PlanOrigin::Hash { hash, reading } => (hash, reading),
    };
    let Some(reading) = reading else {
        return Some(format!(
            "the hash {hash}, which was not read: the limit's own rate holds"
        ));
    };
    let content = match &reading.content {
        FieldContent::Plan => String::new(),
        FieldContent::Absent => ", which has none".to_owned(),
        FieldContent::Invalid(why) => format!(", which has none that can be read: {why}"),
    };
    let age = seconds(reading.age_us);
    Some(format!("the hash {hash}{content}; read {age:.1}s ago"))
}

impl From<Level> for LevelView {
    fn from(level: Level) -> Self {
        Self {
            remaining: level.remaining,
            retry_after: seconds(level.retry_after_us),
            reset_after: seconds(level.reset_after_us),
            full: level.reset_after_us == 0,
        }
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1_000_000.0
}
