//! What some clients have instead of a limit's own rate.
//!
//! Guarantees a look-up that neither waits nor copies, however many plans there are. Refuses to know who gave a client its
//! plan, and whether the client may say so itself.

use std::collections::HashMap;

use super::algorithm::{Algorithm, QuotaError};
use super::cost::Cost;
use super::key::{Facts, KeyPart};
use super::quota::Quota;

/// Rates by a value of the request. A request without it, or with one that has no plan, has the limit's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plans {
    pub by: KeyPart,
    pub source: PlanSource,
}

/// Where plans are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanSource {
    /// Here, by the value as the key part reads it: addresses by their prefix, hosts in lower case.
    Table(HashMap<Box<[u8]>, Plan>),
}

/// A rate, and all that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    algorithm: Algorithm,
    quota: Quota,
    cost: Option<Cost>,
}

impl Plans {
    /// The plan of this request.
    pub fn find(&self, facts: &Facts<'_>) -> Option<&Plan> {
        match &self.source {
            PlanSource::Table(table) => self.by.lend(facts, |value| table.get(value))?,
        }
    }

    /// Every plan there is, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Plan> {
        match &self.source {
            PlanSource::Table(table) => table.values(),
        }
    }
}

impl Plan {
    /// Counts by `algorithm`; each request takes `cost`, or as many tokens as the limit says.
    ///
    /// # Errors
    /// When the algorithm's numbers cannot be counted by.
    pub fn new(algorithm: Algorithm, cost: Option<Cost>) -> Result<Self, QuotaError> {
        Ok(Self { quota: algorithm.quota()?, algorithm, cost })
    }

    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// `None`: the limit's.
    pub fn cost(&self) -> Option<&Cost> {
        self.cost.as_ref()
    }
}
