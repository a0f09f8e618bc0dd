//! The scenarios: the faults that a run meets, and how each changes the plan and the terms of its
//! verdict.

use std::num::{NonZeroU32, NonZeroU64};

use tollgate_limiter::limit::definition::Consistency;

use crate::limit::TestedLimit;
use crate::plan::RunPlan;

/// Keys of [`Scenario::ManyKeys`], unless the plan has more than one.
const MANY_KEYS: u32 = 100_000;

/// Keys of [`Scenario::ClusterNodeDown`], unless the plan has more than one: some for each master.
const CLUSTER_KEYS: u32 = 32;

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
    /// Every call to Redis takes its own time, so that calls overtake each other. For
    /// redis://host:port.
    Reorder,
    /// Nodes end in the middle of what they do, and start anew; then one alone, which does not.
    Crash,
    /// Redis is out of reach of all nodes again and again. For redis://host:port.
    Flap,
    /// Redis is out of reach of half of the nodes, for seconds. For redis://host:port.
    Partition,
    /// Redis answers nothing for 1.5 times the store's time limit, again and again. For
    /// redis://host:port.
    Stalls,
    /// Each call takes 85 % of the store's time limit. For redis://host:port.
    SlowStore,
    /// Each call takes 130 % of the store's time limit. For redis://host:port.
    LateStore,
    /// The limit is halved and doubled, on one node after the other.
    Reload,
    /// Fixed and sliding windows, under the faults of skew and flap. For redis://host:port.
    Windows,
    /// Bursts of requests at once, on all nodes, for a limit of requests in flight that is as large
    /// as --burst.
    ColdConcurrency,
    /// Requests over the limit wait for their turn, 3 ms from Redis. For redis://host:port.
    Queue,
    /// Gateways in processes of their own, one of which is stopped for 3 s again and again
    /// (SIGSTOP).
    Suspended,
    /// A master of a Redis Cluster answers nothing for 2 s, again and again. For
    /// redis-cluster://host:port.
    ClusterNodeDown,
}

impl Scenario {
    pub const ALL: [Self; 17] = [
        Self::Steady,
        Self::HotKey,
        Self::ManyKeys,
        Self::Skew,
        Self::Reorder,
        Self::Crash,
        Self::Flap,
        Self::Partition,
        Self::Stalls,
        Self::SlowStore,
        Self::LateStore,
        Self::Reload,
        Self::Windows,
        Self::ColdConcurrency,
        Self::Queue,
        Self::Suspended,
        Self::ClusterNodeDown,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::HotKey => "hot-key",
            Self::ManyKeys => "many-keys",
            Self::Skew => "skew",
            Self::Reorder => "reorder",
            Self::Crash => "crash",
            Self::Flap => "flap",
            Self::Partition => "partition",
            Self::Stalls => "stalls",
            Self::SlowStore => "slow-store",
            Self::LateStore => "late-store",
            Self::Reload => "reload",
            Self::Windows => "windows",
            Self::ColdConcurrency => "cold-concurrency",
            Self::Queue => "queue",
            Self::Suspended => "suspended",
            Self::ClusterNodeDown => "cluster-node-down",
        }
    }

    /// Whether the scenario is about how Redis is reached, or about buckets that outlive a node.
    pub fn needs_redis(self) -> bool {
        self.needs_proxy() || matches!(self, Self::Crash | Self::Suspended | Self::ClusterNodeDown)
    }

    /// Whether the scenario needs a proxy between the nodes and Redis.
    pub fn needs_proxy(self) -> bool {
        match self {
            Self::Skew | Self::Reorder | Self::SlowStore | Self::Windows | Self::Queue => true,
            Self::ClusterNodeDown => false,
            _ => self.fails_calls(),
        }
    }

    /// Whether the scenario is about a Redis Cluster.
    pub fn needs_cluster(self) -> bool {
        self == Self::ClusterNodeDown
    }

    /// Whether the limit is one whose tokens may be leased.
    pub fn leases(self) -> bool {
        !matches!(self, Self::Windows | Self::ColdConcurrency | Self::Queue)
    }

    /// Whether calls to Redis are meant to fail.
    pub fn fails_calls(self) -> bool {
        matches!(
            self,
            Self::Flap | Self::Partition | Self::Stalls | Self::LateStore | Self::ClusterNodeDown
        )
    }

    /// The least that is admitted, in per cent of what a reference bucket would admit. `None`: that
    /// is not judged, where tokens die with a node, where the shares of an outage are smaller than
    /// the load on them, or where the limit changes.
    pub fn least_percent(self) -> Option<f64> {
        match self {
            Self::Steady | Self::HotKey | Self::ManyKeys | Self::Skew | Self::Reorder => Some(97.0),
            Self::Windows | Self::ColdConcurrency | Self::Queue => Some(97.0),
            Self::SlowStore => Some(95.0),
            Self::Suspended | Self::ClusterNodeDown => None,
            Self::Crash
            | Self::Flap
            | Self::Partition
            | Self::Stalls
            | Self::LateStore
            | Self::Reload => None,
        }
    }

    /// The tokens that a key may have beyond its limit; empty: none.
    pub fn conceded(self) -> &'static str {
        match self {
            Self::Flap => {
                "one burst more for each outage, and the tokens of the time until all nodes notice its end"
            }
            Self::Partition => "the share of the nodes cut off more, until the others notice",
            Self::Stalls | Self::LateStore => "one burst more in the whole run",
            Self::ClusterNodeDown => {
                "one burst more for each pause of their master, and the tokens of the time until all nodes notice its end; at \
                 least 99 % of the other keys decided by Redis, and no node's breaker opened more than twice for a pause"
            }
            Self::Reload => "by the larger limit",
            _ => "",
        }
    }

    /// The plan as this scenario runs it.
    pub fn adapt(self, plan: &RunPlan) -> RunPlan {
        let plan = plan.clone();
        match self {
            Self::HotKey => RunPlan {
                keys: NonZeroU32::MIN,
                demand: f64::INFINITY,
                ..plan
            },
            Self::ManyKeys => {
                let many = NonZeroU32::new(MANY_KEYS).unwrap_or(NonZeroU32::MIN);
                let keys = if plan.keys.get() > 1 { plan.keys } else { many };
                let thousand = NonZeroU64::new(1_000).unwrap_or(NonZeroU64::MIN);
                let small = plan.limit.divided_by(thousand);
                // A request must fit what one key may have.
                let burst = small.burst.max(plan.cost);
                RunPlan {
                    keys,
                    demand: f64::INFINITY,
                    limit: TestedLimit { burst, ..small },
                    ..plan
                }
            }
            Self::ClusterNodeDown => {
                let some = NonZeroU32::new(CLUSTER_KEYS).unwrap_or(NonZeroU32::MIN);
                let keys = if plan.keys.get() > 1 { plan.keys } else { some };
                let small = plan.limit.divided_by(keys.into());
                RunPlan {
                    keys,
                    limit: TestedLimit {
                        burst: small.burst.max(plan.cost),
                        ..small
                    },
                    ..plan
                }
            }
            Self::ColdConcurrency | Self::Queue => RunPlan {
                keys: NonZeroU32::MIN,
                cost: NonZeroU64::MIN,
                consistency: Consistency::Exact,
                ..plan
            },
            _ => plan,
        }
    }
}
