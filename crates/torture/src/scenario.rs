//! The scenarios: the faults that a run meets, and how each changes the plan and the terms of its verdict.

use std::num::{NonZeroU32, NonZeroU64};

use crate::limit::TestedLimit;
use crate::plan::RunPlan;

/// Keys of [`Scenario::ManyKeys`], unless the plan has more than one.
const MANY_KEYS: u32 = 100_000;

/// A fault, or a pattern of load, that a run is put through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// Nothing but the demand.
    Steady,
    /// A single key, as fast as it goes.
    HotKey,
    /// 100 000 keys, some of them much in demand, with a thousandth of the limit each.
    ManyKeys,
    /// Each node is further from Redis than the one before, one way only. For redis://host:port.
    Skew,
    /// Every call to Redis takes its own time, so that calls overtake each other. For redis://host:port.
    Reorder,
    /// Nodes end in the middle of what they do, and start anew.
    Crash,
    /// Redis is out of reach again and again. For redis://host:port.
    Flap,
    /// The limit is halved and doubled, on one node after the other.
    Reload,
}

impl Scenario {
    pub const ALL: [Self; 8] =
        [Self::Steady, Self::HotKey, Self::ManyKeys, Self::Skew, Self::Reorder, Self::Crash, Self::Flap, Self::Reload];

    pub fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::HotKey => "hot-key",
            Self::ManyKeys => "many-keys",
            Self::Skew => "skew",
            Self::Reorder => "reorder",
            Self::Crash => "crash",
            Self::Flap => "flap",
            Self::Reload => "reload",
        }
    }

    /// Whether the scenario is about how Redis is reached, or about buckets that outlive a node.
    pub fn needs_redis(self) -> bool {
        matches!(self, Self::Skew | Self::Reorder | Self::Crash | Self::Flap)
    }

    /// Whether the scenario needs a proxy between the nodes and Redis.
    pub fn needs_proxy(self) -> bool {
        matches!(self, Self::Skew | Self::Reorder | Self::Flap)
    }

    /// Whether a correct limiter also admits what a reference bucket would. Not so when tokens die with a node, when the shares
    /// of an outage are smaller than the load on them, or when the limit changes.
    pub fn must_admit_expected(self) -> bool {
        !matches!(self, Self::Crash | Self::Flap | Self::Reload)
    }

    /// The plan as this scenario runs it.
    pub fn adapt(self, plan: &RunPlan) -> RunPlan {
        let plan = plan.clone();
        match self {
            Self::HotKey => RunPlan { keys: NonZeroU32::MIN, demand: f64::INFINITY, ..plan },
            Self::ManyKeys => {
                let many = NonZeroU32::new(MANY_KEYS).unwrap_or(NonZeroU32::MIN);
                let keys = if plan.keys.get() > 1 { plan.keys } else { many };
                let thousand = NonZeroU64::new(1_000).unwrap_or(NonZeroU64::MIN);
                let small = plan.limit.divided_by(thousand);
                // A request must fit what one key may have.
                let burst = small.burst.max(plan.cost);
                RunPlan { keys, demand: f64::INFINITY, limit: TestedLimit { burst, ..small }, ..plan }
            }
            _ => plan,
        }
    }
}
