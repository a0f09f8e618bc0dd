//! The checks of a request: tokens of buckets and windows, and permits for requests in flight.

use std::borrow::Cow;
use std::time::Duration;

use smallvec::SmallVec;

use crate::limit::definition::OnOutage;
use crate::limit::key::Key;
use crate::node::permits::PermitNeed;
use crate::store::BucketCharge;

/// The checks of a request, all or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    pub tokens: TokenChecks,
    /// Few requests need permits.
    pub permits: Vec<PermitCheck>,
}

/// The token checks of a request: the charges for a store, and beside each the policy that only the
/// limiter needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenChecks {
    charges: SmallVec<[BucketCharge; 2]>,
    policies: SmallVec<[CheckPolicy; 2]>,
}

/// The limiter's treatment of a check, whatever the store says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckPolicy {
    pub on_outage: OnOutage,
}

/// A request's check of a limit of requests in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitCheck {
    pub need: PermitNeed,
    /// The most permits that any request of this limit takes (see [`BucketCharge::largest_cost`]).
    pub largest_cost: u64,
    pub on_outage: OnOutage,
}

/// A single charge, enforced by the node's share while the store is away.
impl From<BucketCharge> for Checks {
    fn from(charge: BucketCharge) -> Self {
        Self {
            tokens: TokenChecks::one(charge, CheckPolicy::default()),
            permits: Vec::new(),
        }
    }
}

impl TokenChecks {
    /// A single check.
    pub fn one(charge: BucketCharge, policy: CheckPolicy) -> Self {
        let mut checks = Self::default();
        checks.push(charge, policy);
        checks
    }

    #[inline]
    pub fn push(&mut self, charge: BucketCharge, policy: CheckPolicy) {
        self.charges.push(charge);
        self.policies.push(policy);
    }

    /// Replaces the check at `at`.
    pub fn replace(&mut self, at: usize, charge: BucketCharge, policy: CheckPolicy) {
        if let (Some(known), Some(known_policy)) =
            (self.charges.get_mut(at), self.policies.get_mut(at))
        {
            (*known, *known_policy) = (charge, policy);
        }
    }

    pub fn remove(&mut self, at: usize) -> (BucketCharge, CheckPolicy) {
        (self.charges.remove(at), self.policies.remove(at))
    }

    /// The checks that `keep` accepts.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(&BucketCharge, CheckPolicy) -> bool) -> Self {
        let mut kept = Self::default();
        for (charge, policy) in self.iter().filter(|(charge, policy)| keep(charge, *policy)) {
            kept.push(charge.clone(), policy);
        }
        kept
    }

    /// The checks with policies as they are by now, where some change with the time that the
    /// store is away. `away`: for how long the bucket of a key has been.
    #[must_use]
    pub fn as_of_now(&self, away: impl Fn(&Key) -> Duration) -> Cow<'_, Self> {
        if !self
            .policies
            .iter()
            .any(|policy| matches!(policy.on_outage, OnOutage::LocalFor { .. }))
        {
            return Cow::Borrowed(self);
        }
        let mut checks = self.clone();
        for (charge, policy) in checks.charges.iter().zip(&mut checks.policies) {
            policy.on_outage = policy.on_outage.after(away(&charge.key));
        }
        Cow::Owned(checks)
    }

    /// The charges, for a store.
    #[inline]
    pub fn charges(&self) -> &[BucketCharge] {
        &self.charges
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&BucketCharge, CheckPolicy)> {
        self.charges.iter().zip(self.policies.iter().copied())
    }

    /// Whether every limit is enforced by the node's share while the store is away, which is nearly
    /// always.
    #[inline]
    pub fn all_local(&self) -> bool {
        self.policies
            .iter()
            .all(|policy| policy.on_outage == OnOutage::Local)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.charges.len()
    }
}
