//! The limits on one request, explained to people.
//!
//! Guarantees the keys, plans and costs that a request gets, since the same code finds them. Asks
//! no store and counts nothing.

use std::num::NonZeroU64;
use std::sync::Arc;

use http::HeaderValue;

use crate::decide::plans::cache::PlanQuery;
use crate::limit::algorithm::{Algorithm, CompiledAlgorithm};
use crate::limit::cost::ResponseCost;
use crate::limit::cost::quota_unit::QuotaScale;
use crate::limit::definition::Limit;
use crate::limit::key::{ExtractedKey, Facts, Key, KeyPart, KeySpec, OnMissing};
use crate::limit::plan::Plan;
use crate::node::permits::PermitNeed;
use crate::request::answer::denial::Denial;
pub use crate::request::compiled_limit::PlanOrigin;
use crate::request::compiled_limit::{Charge, CompiledLimit};
use crate::store::BucketCharge;

/// The limits of a route, applied to a request.
#[derive(Debug)]
pub struct LimitsExplanation {
    /// In the order in which they are asked.
    pub limits: Vec<AppliedLimit>,
    /// `RateLimit-Policy` of the answer.
    pub policy: Option<HeaderValue>,
}

/// A limit on a request.
#[derive(Clone, Debug)]
pub struct AppliedLimit {
    pub limit: Arc<Limit>,
    /// The client's plan, as a key has it: secrets are hashed.
    pub plan: Option<String>,
    /// The origin of the plan, or the place where it was looked for. `None`: the limit has no
    /// plans, or the request does not name one.
    pub origin: Option<PlanOrigin>,
    /// The query that is needed, if the plan is not known or too old.
    pub lookup: Option<PlanQuery>,
    /// The algorithm of the plan, or the limit's own.
    pub algorithm: Algorithm,
    /// Whether the plan lets nothing pass. Then the algorithm has one token.
    pub is_closed: bool,
    pub counting: CompiledAlgorithm,
    /// Tokens that this request takes.
    pub cost: NonZeroU64,
    /// The unit in which the client is shown what is left.
    pub scale: QuotaScale,
    largest_cost: u64,
    /// Set when the cost is settled after the response; then `cost` is the reservation.
    pub later: Option<Arc<ResponseCost>>,
    /// The parts of the key that the request lacks, by [`KeyPart::name`].
    pub lacking: Vec<String>,
    pub bucket: CountedBy,
}

/// The use that a request would make of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketUse {
    Tokens(BucketCharge),
    Permits(PermitNeed),
}

/// The bucket that a limit counts a request in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountedBy {
    /// The bucket with this key.
    Enforced(Key),
    /// The bucket with this key, as a shadow: the limit is not enforced on the request.
    Shadow(Key),
    /// The request is exempt.
    Exempt,
    /// A part is missing: the limit does not apply.
    Skipped,
    /// A part is missing: the request is refused with 400.
    Refused,
}

impl AppliedLimit {
    pub(crate) fn new(compiled: &CompiledLimit, facts: &Facts<'_>) -> Self {
        let (plan, lookup) = compiled.plan(facts);
        let Charge {
            counting,
            cost,
            scale,
            largest_cost,
            later,
        } = compiled.charge(plan.as_deref(), facts);
        let limit = compiled.limit.clone();
        Self {
            plan: plan
                .as_ref()
                .and_then(|_| shown(&limit.plans.as_ref()?.by, facts)),
            origin: compiled.origin(facts),
            lookup,
            algorithm: plan
                .as_deref()
                .map_or(&limit.algorithm, Plan::algorithm)
                .clone(),
            is_closed: plan.as_deref().is_some_and(Plan::is_closed),
            counting,
            cost,
            scale,
            largest_cost,
            later,
            lacking: lacking(&limit.key, facts),
            bucket: CountedBy::new(&limit, facts),
            limit,
        }
    }

    /// The refusal of a request that lacks a part of the key.
    pub fn key_missing(&self) -> Denial {
        let limit = self.limit.name.clone();
        let part = self.lacking.first().cloned().unwrap_or_default();
        Denial::KeyMissing {
            limit,
            part,
            hidden: self.limit.hidden,
        }
    }

    /// The bucket that the request would use, if any.
    pub fn ask(&self) -> Option<BucketUse> {
        let (CountedBy::Enforced(key) | CountedBy::Shadow(key)) = &self.bucket else {
            return None;
        };
        Some(self.use_of(key.clone()))
    }

    /// The use that such a request would make of the bucket with this key.
    pub(crate) fn use_of(&self, key: Key) -> BucketUse {
        let cost = self.cost.get();
        let largest_cost = self.largest_cost;
        match self.counting {
            CompiledAlgorithm::Tokens(quota) => BucketUse::Tokens(BucketCharge {
                key,
                quota,
                cost,
                largest_cost,
                local_us: u64::MAX,
            }),
            CompiledAlgorithm::Permits(limit) => {
                BucketUse::Permits(PermitNeed { key, limit, cost })
            }
        }
    }

    pub(crate) fn acts(&self) -> bool {
        matches!(self.bucket, CountedBy::Enforced(_))
    }
}

impl BucketUse {
    pub fn key(&self) -> &Key {
        match self {
            Self::Tokens(charge) => &charge.key,
            Self::Permits(need) => &need.key,
        }
    }

    /// `None`: it takes permits.
    pub fn tokens(&self) -> Option<&BucketCharge> {
        match self {
            Self::Tokens(charge) => Some(charge),
            Self::Permits(_) => None,
        }
    }
}

impl CountedBy {
    fn new(limit: &Limit, facts: &Facts<'_>) -> Self {
        if limit.exemption.applies_to(facts) {
            return Self::Exempt;
        }
        match limit.key.extract(&limit.name, facts) {
            ExtractedKey::Key(key) if limit.rollout.takes(key.as_bytes()) => Self::Enforced(key),
            ExtractedKey::Key(key) => Self::Shadow(key),
            ExtractedKey::Skip => Self::Skipped,
            ExtractedKey::Refuse => Self::Refused,
        }
    }
}

/// The value of `part` in a request, as keys have it.
fn shown(part: &KeyPart, facts: &Facts<'_>) -> Option<String> {
    let alone = KeySpec {
        parts: vec![part.clone()],
        on_missing: OnMissing::Skip,
    };
    let ExtractedKey::Key(key) = alone.extract("", facts) else {
        return None;
    };
    // Less the colon behind the name.
    Some(String::from_utf8_lossy(key.as_bytes().get(1..)?).into_owned())
}

/// The parts of `spec` that a request lacks, by [`KeyPart::name`].
pub fn lacking(spec: &KeySpec, facts: &Facts<'_>) -> Vec<String> {
    spec.parts
        .iter()
        .filter(|part| shown(part, facts).is_none())
        .map(KeyPart::name)
        .collect()
}
