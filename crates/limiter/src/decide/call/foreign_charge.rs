//! Charges to keys that hold a value which is not Tollgate's: the store cannot decide on them, and
//! decides on the others.
//!
//! Guarantees that such a limit is enforced by this node's share, that a request is charged by all
//! of its limits or by none, and that the breaker hears nothing of it: one key's value is no
//! outage.

use std::sync::Arc;

use crate::algorithm::level::Level;
use crate::clock;
use crate::decide::check::TokenChecks;
use crate::decide::store_client::StoreClient;
use crate::limit::definition::OnOutage;
use crate::store::adjustment::{Adjustment, AdjustmentBatch, Change};
use crate::store::{Grant, Levels};

impl StoreClient {
    /// The decision on up to `requests` equal requests, when the store could not decide on some of
    /// the charges in `grant`. Those follow their limits' `on_outage`.
    pub fn decide_foreign(
        self: &Arc<Self>,
        checks: &TokenChecks,
        grant: Grant,
        requests: u32,
    ) -> Grant {
        let now_us = clock::monotonic_micros();
        let share = self.node.share.get();
        let mut local = TokenChecks::default();
        let mut denied = false;
        for (_, (charge, policy)) in checks
            .iter()
            .enumerate()
            .filter(|(index, _)| grant.foreign.contains(index))
        {
            self.node.foreign_keys.remember(&charge.key, now_us);
            match policy.on_outage {
                OnOutage::Local | OnOutage::LocalFor { .. } => local.push(charge.clone(), policy),
                OnOutage::Allow => {}
                OnOutage::Deny => denied = true,
            }
        }
        let most = if denied { 0 } else { grant.units.min(requests) };
        let decided = self
            .node
            .memory
            .take_at(local.charges(), most, now_us, share);
        let mut decided_levels = decided.levels.into_iter();
        let extra = u64::from(grant.units - decided.units.min(grant.units));
        let mut levels = Levels::new();
        let mut refunds = Vec::new();
        for (index, ((charge, policy), level)) in checks.iter().zip(&grant.levels).enumerate() {
            levels.push(match (grant.foreign.contains(&index), policy.on_outage) {
                (true, OnOutage::Local | OnOutage::LocalFor { .. }) => {
                    decided_levels.next().unwrap_or_default()
                }
                (true, OnOutage::Allow) => Level {
                    remaining: charge.quota.burst(),
                    ..Level::default()
                },
                (true, OnOutage::Deny) => Level::DENIED_WITHOUT_STORE,
                (false, _) => *level,
            });
            if extra > 0 && !grant.foreign.contains(&index) {
                let charge_of_extra = charge.quota.charge(charge.cost.saturating_mul(extra));
                let change = Change::Refund {
                    charge: charge_of_extra,
                    taken_at_us: grant.at_us,
                };
                refunds.push(Adjustment {
                    key: charge.key.clone(),
                    quota: charge.quota,
                    change,
                });
            }
        }
        if !refunds.is_empty() {
            let client = self.clone();
            tokio::spawn(async move { client.adjust(&AdjustmentBatch::once(refunds)).await });
        }
        Grant {
            units: decided.units,
            levels,
            ..grant
        }
    }
}
