//! Decides on several equal requests at once, for those that wait in a line: tokens that come soon
//! are charged in advance.
//!
//! A request that is charged in advance waits until the bucket would have granted it. So each goes
//! on at a time at which the limit had room for it, and neither the time of a call nor a late timer
//! loses a token. Guarantees that a charge in advance is never refunded: what flowed in for it
//! meanwhile would count twice.

use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::token_bucket::TokenBucket;
use crate::clock;
use crate::decide::batch::unit;
use crate::decide::call::late_call::{LateCall, NoAnswer};
use crate::decide::call::take_call::TakeCall;
use crate::decide::check::{Checks, TokenChecks};
use crate::decide::decision::Decision;
use crate::decide::limiter::Limiter;
use crate::decide::store_client::StoreClient;
use crate::limit::key::Key;
use crate::store::BucketCharge;

/// The call of a line: equal requests that wait for the limit of `key`.
#[derive(Clone, Debug)]
pub(crate) struct UnitsCall {
    pub checks: Arc<Checks>,
    pub key: Key,
    pub units: u32,
    /// How far in advance tokens are charged. 0: they are asked for as by any request.
    pub advance: Duration,
}

/// A decision that takes effect after a wait, counted from when it was made known.
#[derive(Debug)]
pub(crate) struct DelayedDecision {
    pub decision: Decision,
    pub wait: Duration,
    /// Whether tokens were asked for in advance.
    pub in_advance: bool,
}

/// A bucket that is charged in advance, and how far.
#[derive(Clone, Copy)]
struct AdvancedBucket {
    bucket: TokenBucket,
    advance_us: u64,
}

impl Limiter {
    /// Whether tokens of the bucket of `key` may be charged in advance: nothing may come back of
    /// them. Leases are tokens taken ahead already.
    pub(crate) fn may_advance(&self, checks: &Checks, key: &Key) -> bool {
        let nodes = self
            .client()
            .map_or(1, |client| client.node.share.get().nodes());
        // A limit that cannot be divided among all nodes is that of some, which a larger capacity
        // would hide.
        let charges = checks.tokens.charges();
        checks.permits.is_empty()
            && charges.iter().any(|charge| {
                charge.key == *key
                    && charge.quota.token_bucket().is_some()
                    && charge.quota.shared_by(nodes).holds(charge.largest_cost)
            })
            && !charges.iter().any(BucketCharge::is_leased)
            && self
                .client()
                .is_none_or(|client| client.store.charges_at_once())
    }

    /// The decisions that need no call: those granted, in order, and a denial if there are fewer
    /// than asked for.
    pub(crate) fn units_locally(&self, call: &UnitsCall) -> Option<Vec<DelayedDecision>> {
        if !call.checks.permits.is_empty() {
            return self
                .decide(&call.checks)
                .done()
                .map(|decision| vec![decision.without_wait()]);
        }
        let advances = !call.advance.is_zero();
        match self.client() {
            None if advances => Some(self.units_in_advance(call)),
            Some(client) if advances && !client.is_any_away(&call.checks.tokens) => None,
            _ => {
                let plain = self.plain_units(&call.checks.tokens, call.units);
                (!plain.is_empty()).then_some(plain)
            }
        }
    }

    /// The decisions, from the store if it answers in time.
    pub(crate) async fn units_by_store(&self, call: &UnitsCall) -> Vec<DelayedDecision> {
        let leased = call
            .checks
            .tokens
            .charges()
            .iter()
            .any(BucketCharge::is_leased);
        let client = match self.client() {
            Some(client)
                if call.checks.permits.is_empty()
                    && !leased
                    && !client.is_any_away(&call.checks.tokens) =>
            {
                client
            }
            _ => return vec![self.decide(&call.checks).wait().await.without_wait()],
        };
        let decided = if call.advance.is_zero() {
            let checks = call.checks.tokens.clone();
            let decisions = take(checks, call.units, |checks| {
                TakeCall::new(client, checks, call.units)
            })
            .await;
            decisions.map(|decisions| decisions.into_iter().map(Decision::without_wait).collect())
        } else {
            let (checks, advanced) = in_advance(call);
            let decisions = take(checks, call.units, |checks| {
                TakeCall::new(client, checks, call.units).without_refunds()
            })
            .await;
            decisions.map(|decisions| {
                decisions
                    .into_iter()
                    .map(|one| delayed(one, &advanced))
                    .collect()
            })
        };
        decided.unwrap_or_else(|NoAnswer(late)| {
            self.during_outage_units(call, client, late.as_deref())
        })
    }

    /// Decisions of this process alone, some of them in advance.
    fn units_in_advance(&self, call: &UnitsCall) -> Vec<DelayedDecision> {
        let (checks, advanced) = in_advance(call);
        let decisions = self.plain_units(&checks, call.units);
        decisions
            .into_iter()
            .map(|delayed_decision| delayed(delayed_decision.decision, &advanced))
            .collect()
    }

    /// Decisions that need no call, one after the other, up to the first denial.
    fn plain_units(&self, checks: &TokenChecks, units: u32) -> Vec<DelayedDecision> {
        until_denied((0..units).map_while(|_| self.tokens_locally(checks)))
    }

    fn during_outage_units(
        &self,
        call: &UnitsCall,
        client: &StoreClient,
        late: Option<&LateCall>,
    ) -> Vec<DelayedDecision> {
        until_denied(
            (0..call.units).map(|_| self.during_outage(&call.checks.tokens, &client.node, late)),
        )
    }
}

impl Decision {
    fn without_wait(self) -> DelayedDecision {
        DelayedDecision {
            decision: self,
            wait: Duration::ZERO,
            in_advance: false,
        }
    }
}

fn until_denied(decisions: impl Iterator<Item = Decision>) -> Vec<DelayedDecision> {
    let mut list = Vec::new();
    for decision in decisions {
        let granted = decision.granted;
        list.push(decision.without_wait());
        if !granted {
            break;
        }
    }
    list
}

/// The decisions of a `call` of `units` units: those that grant them, and a denial if there are
/// fewer.
async fn take(
    checks: TokenChecks,
    units: u32,
    call: impl FnOnce(&Arc<TokenChecks>) -> TakeCall,
) -> Result<Vec<Decision>, NoAnswer> {
    let checks = Arc::new(checks);
    let call = call(&checks);
    let deadline = clock::now() + call.timeout();
    let grant = call.grant_by(deadline).await?;
    let decisions = grant.units.saturating_add(1).min(units);
    Ok((0..decisions)
        .map(|index| unit(checks.charges(), &grant, index))
        .collect())
}

/// The checks of a call with the bucket of its key in advance. The buckets are in the order of the
/// checks.
fn in_advance(call: &UnitsCall) -> (TokenChecks, Vec<Option<AdvancedBucket>>) {
    let advance_us = u64::try_from(call.advance.as_micros()).unwrap_or(u64::MAX);
    let mut checks = TokenChecks::default();
    let mut buckets = Vec::with_capacity(call.checks.tokens.len());
    for (charge, policy) in call.checks.tokens.iter() {
        let mut charge = charge.clone();
        let mut advanced = None;
        if charge.key == call.key
            && let Some(bucket) = charge.quota.token_bucket()
        {
            charge.quota = bucket.in_advance(advance_us).into();
            advanced = Some(AdvancedBucket { bucket, advance_us });
        }
        checks.push(charge, policy);
        buckets.push(advanced);
    }
    (checks, buckets)
}

/// A decision on a request that was charged in advance: its wait, and the levels at the end of
/// that.
fn delayed(mut decision: Decision, buckets: &[Option<AdvancedBucket>]) -> DelayedDecision {
    let granted = decision.granted;
    let mut wait_us = 0;
    for (level, advanced) in decision.levels.iter().zip(buckets) {
        if let Some(advanced) = advanced
            && granted
        {
            wait_us = wait_us.max(advanced.bucket.wait_us(level.reset_after_us));
        }
    }
    for (level, advanced) in decision.levels.iter_mut().zip(buckets) {
        let Some(AdvancedBucket { bucket, advance_us }) = *advanced else {
            continue;
        };
        level.reset_after_us = level.reset_after_us.saturating_sub(wait_us);
        level.remaining = bucket.tokens_left(level.reset_after_us);
        if level.retry_after_us > 0 {
            level.retry_after_us = level.retry_after_us.saturating_add(advance_us);
        }
    }
    // By the shared store's clock, the request goes on when its tokens are there.
    decision.delay(wait_us);
    DelayedDecision {
        decision,
        wait: Duration::from_micros(wait_us),
        in_advance: true,
    }
}
