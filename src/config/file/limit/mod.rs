//! `limits`: a rate limit as the file has it.
//!
//! `policy` is the whole limit. Each question that a limit answers has a file: `key` (what is
//! counted), `algorithm` (how, and how much), `cost` and `response_cost` (what a request takes),
//! `count` (which requests take it), `plan` (other numbers for some clients), `on_limit` (what
//! happens beyond) and `on_outage` (what happens without the store). `limit_use` is how a listener
//! or a route refers to a limit.

mod algorithm;
mod cost;
mod count;
pub mod key;
mod limit_use;
mod on_limit;
mod on_outage;
mod plan;
mod policy;
mod response_cost;

pub use algorithm::AlgorithmChoice;
pub use cost::RawCost;
pub use key::{CookieName, RawKey, RawKeyPart};
pub use limit_use::RawLimitUse;
pub use on_limit::{RawDegrade, RawOnLimit};
pub use plan::{RawPlan, RawPlanHash, RawPlans};
pub use policy::RawLimit;
pub use response_cost::{AbsentCost, RawResponseField};
