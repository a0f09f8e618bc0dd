//! `plans`: other numbers for some clients, in a table of the file or in Redis.

use super::algorithm::RawQuota;
use super::cost::RawCost;
use super::key::RawKeyPart;
use crate::config::file::scalar::number::BoundedDuration;
use crate::config::file::scalar::text::{DefinedName, PlainText};
use crate::config::yaml::collection::Mapping;
use crate::config::yaml::decode::Located;
use crate::config::yaml::record::record;

record! {
    /// Other rates for some clients. Exactly one of table and redis.
    RawPlans at location {
        /// The part of the request that tells a client's plan. Default: the first part of the
        /// limit's key.
        optional by: RawKeyPart,
        /// The plans, by what that part says.
        optional table: Mapping<PlainText, RawPlan>,
        /// A hash in Redis with the plans by what that part says, changed without a reload.
        optional redis: RawPlanHash,
    }
}

record! {
    /// Plans in Redis: texts such as "100/s burst=200 cost=2" in a hash.
    RawPlanHash at location {
        /// The name of the hash, behind the store's key_prefix.
        required hash: Located<DefinedName>,
        /// How long a node uses a plan before it reads it again. 100ms to 1h.
        default("5s") cache: Located<BoundedDuration<3_600_000, 100>>,
    }
}

record! {
    /// A rate instead of the limit's own.
    RawPlan at location {
        /// The plan's own quota.
        group quota: RawQuota,
        /// Tokens one request takes. Default: the limit's cost.
        optional cost: RawCost,
    }
}
