//! Decisions that need no call: from tokens taken ahead, or because the store denied the same a
//! moment ago.
//!
//! Guarantees all or nothing: a request that cannot pay all of its leased limits pays none.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::Handle;

use crate::algorithm::level::Level;
use crate::clock;
use crate::decide::check::{CheckPolicy, TokenChecks};
use crate::decide::decision::{DecidedBy, Decision};
use crate::decide::store_client::StoreClient;
use crate::node::Node;
use crate::node::lease::SpentLease;
use crate::store::{self, BucketCharge, Levels};

/// Tokens spent for the leased limits of a request, in the order of its checks; `None` for the
/// others.
pub(crate) type SpentTokens = SmallVec<[Option<SpentLease>; 2]>;

/// Whether only leased limits deny.
pub(crate) fn lacks_leased(charges: &[BucketCharge], decision: &Decision) -> bool {
    let denying = charges
        .iter()
        .zip(&decision.levels)
        .filter(|(_, level)| level.retry_after_us > 0);
    let mut denying = denying.peekable();
    !decision.granted && denying.peek().is_some() && denying.all(|(charge, _)| charge.is_leased())
}

/// The decision on a request whose limits are all paid with tokens taken ahead.
pub(crate) fn paid(spent: &SpentTokens) -> Decision {
    let leases = spent.iter().flatten();
    let taken_at_us = leases
        .clone()
        .map(|spent| spent.source.taken_at_us)
        .min()
        .unwrap_or_default();
    let levels = leases.map(|spent| spent.level).collect();
    Decision::new(DecidedBy::Lease, true, taken_at_us, levels)
}

impl StoreClient {
    /// The decision, when no call is needed for it.
    pub fn known(self: &Arc<Self>, checks: &TokenChecks) -> Option<Decision> {
        let charges = checks.charges();
        let leased = charges.iter().filter(|charge| charge.is_leased()).count();
        if leased == 0 {
            return denied_before(charges, &self.node, |_| true);
        }
        let exact_denied = self.denied(charges);
        if exact_denied.is_some() {
            return exact_denied;
        }
        let Some(spent) = self.spend(checks) else {
            return denied_before(charges, &self.node, BucketCharge::is_leased);
        };
        if leased < charges.len() {
            // The other limits need a call, and the tokens must not be lost here.
            self.give_back(charges, &spent);
            return None;
        }
        Some(paid(&spent))
    }

    /// The denial, when the store is known to deny one of the limits of `charges` that are not
    /// leased.
    pub fn denied(&self, charges: &[BucketCharge]) -> Option<Decision> {
        denied_before(charges, &self.node, |charge| {
            !charge.is_leased() && !self.is_away(&charge.key)
        })
    }

    /// Spends tokens taken ahead for each leased limit of `checks`, or for none of them. When other
    /// limits need a call, the tokens must still be valid when its answer comes.
    pub fn spend(self: &Arc<Self>, checks: &TokenChecks) -> Option<SpentTokens> {
        let charges = checks.charges();
        let alone = charges.iter().all(BucketCharge::is_leased);
        let life_us = if alone {
            0
        } else {
            u64::try_from(self.timeout().as_micros()).unwrap_or(u64::MAX)
        };
        let now_us = clock::monotonic_micros();
        let nodes = self.node.share.get().nodes();
        let mut all = SpentTokens::new();
        for (charge, policy) in checks.iter() {
            if !charge.is_leased() {
                all.push(None);
                continue;
            }
            let Some(spent) = self.node.leases.spend(charge, nodes, now_us, life_us) else {
                self.give_back(charges, &all);
                // A call for this limit alone takes tokens ahead by itself.
                if charges.len() > 1 {
                    self.fill(
                        charge,
                        policy,
                        self.node.leases.lack(charge, nodes, now_us),
                        now_us,
                    );
                }
                return None;
            };
            self.fill(charge, policy, spent.fill, now_us);
            all.push(Some(spent));
        }
        Some(all)
    }

    /// Undoes [`Self::spend`].
    pub fn give_back(&self, charges: &[BucketCharge], spent: &SpentTokens) {
        for (charge, spent) in charges.iter().zip(spent) {
            if let Some(spent) = spent {
                self.node.leases.give_back(charge, spent.source);
            }
        }
    }

    /// Takes `tokens` ahead in the background, unless the bucket is known to be empty.
    fn fill(
        self: &Arc<Self>,
        charge: &BucketCharge,
        policy: CheckPolicy,
        tokens: u64,
        now_us: u64,
    ) {
        let units = u32::try_from(tokens / charge.cost.max(1)).unwrap_or(u32::MAX);
        if units == 0
            || !self.may_take_ahead(charge)
            || self
                .node
                .denials
                .find(charge, charge.cost, now_us)
                .is_some()
        {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let client = self.clone();
            let checks = TokenChecks::one(charge.clone(), policy);
            runtime.spawn(async move { client.take_ahead(&checks, units).await });
        }
    }
}

/// The denial, when the store is known to deny one of `charges`. Charges that do not `count` are
/// not looked up.
fn denied_before(
    charges: &[BucketCharge],
    node: &Node,
    counts: impl Fn(&BucketCharge) -> bool,
) -> Option<Decision> {
    if node.denials.is_empty() {
        return None;
    }
    let now_us = clock::monotonic_micros();
    let mut denied = false;
    let levels: Levels = charges
        .iter()
        .map(|charge: &BucketCharge| -> Level {
            let found = if counts(charge) {
                node.denials
                    .find(charge, store::cost_of(charges, charge), now_us)
            } else {
                None
            };
            denied |= found.is_some();
            found.unwrap_or_default()
        })
        .collect();
    denied.then(|| Decision::new(DecidedBy::DenialCache, false, now_us, levels).with_denials_only())
}
